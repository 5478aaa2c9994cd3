"""Under stock ``vllm serve``: an ordinary OpenAI client, our scheduler by flag; and two engines behind our server."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from packaging.version import Version

from timely.engines.vllm.model import default_vllm_model
from timely.planner.training.compute_type import compute_type

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

START_S = 240.0

STREAMS_SEGMENTS = Version(version("vllm")) >= Version("0.33")
"""Whether the last chunk of vLLM's streams carries the field that our segments come in."""


@contextlib.contextmanager
def server(command: Sequence[str], port: int, log: Path, **environment: str) -> Iterator[httpx.Client]:
    """A server process of its own session, gone with everything it started at the end."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "VLLM_LOGGING_LEVEL": "WARNING", "VLLM_CPU_KVCACHE_SPACE": "1", **environment},
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client:
            wait_until_healthy(client, process, log)
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def wait_until_healthy(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        for path in ("/healthz", "/health"):
            with contextlib.suppress(httpx.HTTPError):
                if client.get(path).status_code == 200:
                    return
        time.sleep(0.3)
    raise AssertionError(f"not healthy within {START_S} s: {log.read_text(errors='replace')[-3000:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_ordinary_openai_client_on_stock_vllm(tmp_path: Path) -> None:
    port = free_port()
    command = [
        str(Path(sys.executable).parent / "vllm"), "serve", str(default_vllm_model()), "--served-model-name", "m",
        "--host", "127.0.0.1", "--port", str(port), "--enforce-eager", "--block-size", "32",
        "--max-model-len", "1024", "--max-num-seqs", "8", "--dtype", compute_type(),
        "--scheduler-cls", "timely.engines.vllm.scheduler.TimelyScheduler",
        "--additional-config", json.dumps({"timely": {"discipline": "pud"}}),
    ]  # fmt: skip
    with server(command, port, tmp_path / "vllm.log", VLLM_LOGGING_LEVEL="INFO") as client:
        chat: dict[str, Any] = {
            "model": "m", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "temperature": 0.0,
        }  # fmt: skip
        assert "Timely schedules: discipline pud, mode segmented" in (tmp_path / "vllm.log").read_text()
        plain = client.post("/v1/chat/completions", json=chat)
        assert plain.status_code == 200
        assert plain.json()["choices"][0]["message"]["content"]

        said = {"timely_ert_s": 0.2, "timely_alpha": -6.67, "timely_beta": 2.0, "timely_agent": "drone1"}
        with_tuf = client.post("/v1/chat/completions", json={**chat, "vllm_xargs": said})
        assert with_tuf.status_code == 200
        assert with_tuf.json()["choices"] == plain.json()["choices"]

        wrong = client.post("/v1/chat/completions", json={**chat, "vllm_xargs": {"timely_alpha": 3.0}})
        assert wrong.status_code == 400
        assert "timely.tuf.alpha" in wrong.text

        # A segmented plan through the ordinary door: the boundaries come back in the final answer.
        plan: dict[str, Any] = {
            "model": "m", "prompt": "mf(50);tc(30);", "max_tokens": 40, "temperature": 0.0,
            "structured_outputs": {"regex": r"mf\(50\);tc\(30\);mu\(40\);"},
            "vllm_xargs": {"timely_skill_set": "drone", "timely_robot": "tello"},
        }  # fmt: skip
        segmented = client.post("/v1/completions", json=plan)
        assert segmented.status_code == 200
        body = segmented.json()
        assert body["choices"][0]["text"].strip() == "mf(50);tc(30);mu(40);"
        assert segment_texts(body) == ["mf(50);", "tc(30);", "mu(40);"]

        # A stop string is seen in vLLM's front-end only, behind the last segment that the engine closed.
        stopped = client.post("/v1/completions", json={**plan, "stop": ["mu("]}).json()
        assert stopped["choices"][0]["text"].strip() == "mf(50);tc(30);"
        assert segment_texts(stopped) == ["mf(50);", "tc(30);"]
        with client.stream(
            "POST", "/v1/completions", json={**plan, "stop": ["mu("], "stream": True}
        ) as stream:
            chunks = [
                line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: {")
            ]
        if STREAMS_SEGMENTS:
            assert segment_texts(json.loads(chunks[-1])) == ["mf(50);", "tc(30);"]

        # An endpoint picker reads the load where it reads vLLM's own metrics.
        lines = [
            'timely_engine_runnable{engine="0",model_name="m"} 0.0',
            'timely_engine_backlog_seconds{class="normal",engine="0",model_name="m"} 0.0',
            'timely_engine_generations{engine="0",model_name="m",state="parked"} 0.0',
            'vllm:num_requests_running{engine="0",model_name="m"} 0.0',
        ]
        page, deadline = "", time.monotonic() + 60.0
        while not all(line in page for line in lines):
            assert time.monotonic() < deadline, page
            page = client.get("/metrics").text

        beams = {"use_beam_search": True, "n": 2, "max_tokens": 4}
        for path, body in (("/v1/chat/completions", {**chat, "vllm_xargs": said}), ("/v1/completions", plan)):
            refused = client.post(path, json={**body, **beams})
            assert refused.status_code == 400
            assert "beam search" in refused.text

        (api_server,) = (
            pid for pid in child_pids(os.getpid()) if str(port) in Path(f"/proc/{pid}/cmdline").read_text()
        )
        engines = [os.pidfd_open(pid) for pid in child_pids(api_server)]
        os.kill(api_server, signal.SIGKILL)
        for engine in engines:
            assert select.select([engine], [], [], 60.0)[0], "a killed server left an engine"
            os.close(engine)


def child_pids(pid: int) -> list[int]:
    return [
        int(child)
        for children in Path(f"/proc/{pid}/task").glob("*/children")
        for child in children.read_text().split()
    ]


def segment_texts(body: dict[str, Any]) -> list[str]:
    return [segment["text"] for segment in body["kv_transfer_params"]["timely"]["segments"]]


@pytest.mark.long
def test_a_fleet_on_two_engines_every_report_and_cancel_finds_its_task(tmp_path: Path) -> None:
    port = free_port()
    command = [
        sys.executable, "-m", "timely.cli.main", "serve", "--port", str(port), "--data-parallel-size", "2",
        "--max-model-len", "1024",
    ]  # fmt: skip
    with server(command, port, tmp_path / "timely.log", VLLM_CPU_OMP_THREADS_BIND="0|1") as client:
        with contextlib.ExitStack() as stack:
            streams = [
                stack.enter_context(
                    client.stream(
                        "POST",
                        "/v1/tasks",
                        json={
                            "task": f"Go up {20 + n} cm",
                            "skill_set": "drone",
                            "robot": "tello",
                            "agent": f"d{n}",
                        },
                    )
                )
                for n in range(6)
            ]
            iterators = [stream.iter_lines() for stream in streams]
            tasks = [next_event(lines, "accepted") for lines in iterators]
            firsts = [next_event(lines, "segment") for lines in iterators]
            assert [first["index"] for first in firsts] == [0] * 6
            for number, task in enumerate(tasks):
                report = {"segment": 0, "kind": "started", "agent": f"d{number}"}
                token = {"Timely-Task-Token": task["report_token"]}
                answer = client.post(f"/v1/tasks/{task['task_id']}/reports", json=report, headers=token)
                assert answer.status_code in (200, 202), answer.text
            for task in tasks[:3]:
                token = {"Timely-Task-Token": task["report_token"]}
                answer = client.delete(f"/v1/tasks/{task['task_id']}", headers=token)
                assert answer.status_code in (200, 202, 204), answer.text
            outcomes = [next_event(lines, "result", "error") for lines in iterators]
            assert len(outcomes) == 6
        engine = client.get("/v1/status").json()["engine"]
        assert engine["waiting"] + engine["running"] + engine["parked"] == 0
        assert engine["kv_usage"] == 0.0


def next_event(lines: Iterator[str], *names: str) -> dict[str, Any]:
    """Data of the next server-sent event of one of these names."""
    current = ""
    for line in lines:
        if line.startswith("event: "):
            current = line.removeprefix("event: ")
        elif line.startswith("data: ") and current in names:
            return dict(json.loads(line.removeprefix("data: ")))
    raise AssertionError(f"the stream ended without {names}")
