"""The same requests to stock ``vllm serve``, to it with our scheduler, and to ``timely serve``: the same answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from timely.core.child_process import ChildProcess, free_tcp_port
from timely.engines.base import MAX_OUTPUT_TOKENS
from timely.engines.vllm.model import default_vllm_model

pytestmark = [pytest.mark.engine, pytest.mark.process, pytest.mark.long, pytest.mark.timeout(3600)]

START_S, ANSWER_S = 900.0, 300.0

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
STORY = "Once upon a time a robot found a key under the table and"
LONG = "The robot moved the red box to the shelf. " * 150
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GREEDY = {"temperature": 0.0}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}
GRAMMAR = 'root ::= "go(" [0-9]{1,3} ");" root | "end"'


def story(max_tokens: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return COMPLETIONS, {"prompt": STORY, "max_tokens": max_tokens, **fields}


def chat(text: str, max_tokens: int, **fields: Any) -> tuple[str, dict[str, Any]]:
    return CHATS, {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens, **fields}


REQUESTS = [
    story(24, logprobs=3, **GREEDY),
    story(16, n=3, seed=7, temperature=0.8),
    story(8, prompt_logprobs=2, **GREEDY),
    story(6, echo=True, logprobs=2, **GREEDY),
    (COMPLETIONS, {"prompt": [STORY, "Red, green and"], "max_tokens": 10, "n": 2, "seed": 3, "top_p": 0.9}),
    (COMPLETIONS, {"prompt": [504, 1022, 28, 260], "max_tokens": 12, **GREEDY}),
    story(30, stop=[" the", "."], **GREEDY),
    story(30, stop=["."], include_stop_str_in_output=True, min_tokens=8, **GREEDY),
    story(20, seed=11, temperature=1.2, top_k=20, min_p=0.02, presence_penalty=0.5, repetition_penalty=1.1),
    story(12, logit_bias={"260": -100}, bad_words=[" robot"], **GREEDY),
    story(12, structured_outputs={"regex": r"(yes|no), [0-9]{3}"}, **GREEDY),
    story(12, structured_outputs={"choice": ["left", "right"]}, seed=5, temperature=1.0),
    story(20, structured_outputs={"grammar": GRAMMAR}, seed=5, temperature=1.0),
    (COMPLETIONS, {"prompt": LONG, "max_tokens": 8, "prompt_logprobs": 0, **GREEDY}),
    (COMPLETIONS, {"prompt": LONG + "Then", "max_tokens": 12, **GREEDY}),
    story(10, logprobs=1, **STREAM, **GREEDY),
    story(10, return_token_ids=True, seed=1),
    chat("Name three colours.", 24, logprobs=True, top_logprobs=3, **GREEDY),
    chat("Name three colours.", 20, n=2, seed=9, temperature=1.0),
    chat("Name three colours.", 24, stop=["\n"], **GREEDY),
    chat("Who are you?", 40, response_format={"type": "json_object"}, **GREEDY),
    chat("Who are you?", 40, seed=2, response_format={
        "type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA},
    }),
    chat("Tell a joke.", 20, seed=4, temperature=0.7, **STREAM),
    chat("Tell a joke.", 8, prompt_logprobs=1, **GREEDY),
    chat("Hello.", 12, n=2, seed=4, temperature=0.9, **STREAM),
    chat("Hello.", 12, ignore_eos=True, skip_special_tokens=False, seed=8),
]  # fmt: skip
AT_ONCE = [
    chat(f"Write about the number {n}.", 24, **({"seed": n, "temperature": 1.0} if n % 2 else GREEDY))
    for n in range(12)
]
MADE_ANEW = {"id", "created", "request_id", "system_fingerprint"}
"""Fields whose values differ from answer to answer."""


def lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: lasting(entry) for key, entry in value.items() if key not in MADE_ANEW}
    return [lasting(entry) for entry in value] if isinstance(value, list) else value


def joined_stream(text: str) -> list[Any]:
    """What the chunks add up to: texts, ends and log probabilities by choice, the last chunk, the last line.

    How many tokens come in a chunk is a matter of time.
    """
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    chunks = [lasting(json.loads(line)) for line in lines if line.startswith("{")]
    choices: dict[int, list[Any]] = {}
    for chunk in chunks:
        for choice in chunk.get("choices", []):
            parts = choices.setdefault(choice["index"], ["", None, []])
            parts[0] += choice.get("text") or choice.get("delta", {}).get("content") or ""
            parts[1] = choice.get("finish_reason") or parts[1]
            parts[2] += ((choice.get("logprobs") or {}).get("token_logprobs")) or []
    return [choices, chunks[-1].get("usage"), lines[-1]]


def answer(client: httpx.Client, request: tuple[str, Mapping[str, Any]]) -> list[Any]:
    path, body = request
    response = client.post(path, json={"model": "m", **body})
    content = joined_stream(response.text) if body.get("stream") else lasting(response.json())
    return [response.status_code, content]


def answers(command: list[str], log: Path) -> list[list[Any]]:
    """A server's answers, one after the other and then at once. The server ends."""
    port = free_tcp_port()
    arguments = [
        "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m", "--enforce-eager",
        "--block-size", "32", "--max-model-len", "4096", "--max-num-seqs", "64", "--max-num-batched-tokens", "1024",
        # In bfloat16 stock vLLM's own answers depend on which requests share a step.
        "--dtype", "float32",
    ]  # fmt: skip
    process = ChildProcess(command[0], [*command, *arguments], {"VLLM_CPU_KVCACHE_SPACE": "1"}, log=log)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=ANSWER_S) as client:

        def is_up() -> bool:
            try:
                return client.get("/v1/models").status_code == 200
            except httpx.HTTPError:
                return False

        try:
            process.start()
            process.wait_until(is_up, START_S)
            alone = [answer(client, request) for request in REQUESTS]
            with ThreadPoolExecutor(len(AT_ONCE)) as pool:
                return [*alone, *pool.map(lambda request: answer(client, request), AT_ONCE)]
        finally:
            process.stop()


def test_answers_are_those_of_stock_vllm(tmp_path: Path) -> None:
    model, programs = str(default_vllm_model()), Path(sys.executable).parent
    limit = ["--override-generation-config", json.dumps({"max_new_tokens": MAX_OUTPUT_TOKENS})]
    stock = [str(programs / "vllm"), "serve", model, *limit]
    plug = ["--scheduler-cls", "timely.engines.vllm.scheduler.TimelyScheduler"]
    served = [str(programs / "timely"), "serve", "--planner", "none", "--model", model, "--client-grammars"]
    # They round otherwise than vLLM does; seeded requests draw as in vLLM by default.
    served += ["--additional-config", json.dumps({"timely": {"fused_kernels": False}})]
    expected = answers(stock, tmp_path / "stock.log")
    assert [status for status, _ in expected] == [200] * len(expected)
    for name, command in {"plugged": [*stock, *plug], "served": served}.items():
        for request, ours, theirs in zip(
            REQUESTS + AT_ONCE, answers(command, tmp_path / f"{name}.log"), expected, strict=True
        ):
            assert ours == theirs, (name, request)
