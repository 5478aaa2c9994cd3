"""Names of a planner's requests on the bits of a step's grammar: rows of several requests, drafts, answers, ends."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from timely.core.errors import InvalidInput
from timely.core.reports import ExecutionReport
from timely.engines.base import PastReport, PlanHistory, SegmentReady
from timely.engines.vllm.boundaries import VllmCountedBoundaries
from timely.engines.vllm.name_constraint import VllmPromptNames, vllm_prompt_names
from timely.engines.vllm.params import MOST_NAMES, TimelyParams, parse_vllm_extra_args
from timely.engines.vllm.resumed_plan import resume_vllm_state

TOKENS = [bytes([byte]) for byte in range(128)]
PLAN = list(b"g('")
MOST_DRAFTS = 3


def scheduler(tokens: list[bytes] | None = TOKENS) -> Any:
    """Its requests have a compiled grammar with these tokens; None: one of a backend that is not xgrammar."""
    compiled = SimpleNamespace(tokenizer_info=SimpleNamespace(decoded_vocab=tokens))
    grammar = SimpleNamespace(ctx=compiled) if tokens is not None else SimpleNamespace()
    request = SimpleNamespace(structured_output_request=SimpleNamespace(grammar=grammar))
    return SimpleNamespace(requests=defaultdict(lambda: request), num_spec_tokens=MOST_DRAFTS)


def params_with(*names: str) -> TimelyParams:
    params = parse_vllm_extra_args({"timely": {"skill_set": "drone", "names": list(names)}})
    assert params is not None
    return params


def step(names: VllmPromptNames, *ids: str, full: bool = False, **drafted: list[int]) -> list[str]:
    """Letters that each row has left; ``full``: each request has the rows of the most drafts, as since vLLM 0.33."""
    rows = sum(MOST_DRAFTS + 1 if full else len(drafted.get(request_id, ())) + 1 for request_id in ids)
    bits = np.full((rows, 4), -1, dtype=np.int32)
    output = SimpleNamespace(structured_output_request_ids=list(ids), grammar_bitmask=bits)
    names.narrow(output, drafted)
    return [
        "".join(chr(t) for t in range(97, 123) if row[t >> 5] >> (t & 31) & 1)
        if not (row == -1).all()
        else "*"
        for row in bits
    ]


def test_each_request_has_its_own_names() -> None:
    names = VllmPromptNames(scheduler())
    names.begin("cats", params_with("cat"))
    names.begin("dogs", params_with("dog", "duck"))
    names.begin("any", TimelyParams.model_validate({"skill_set": "drone"}))
    for request_id in ("cats", "dogs", "any"):
        names.wrote(request_id, PLAN)
    assert step(names, "dogs", "any", "unknown", "cats") == ["d", "*", "*", "c"]
    names.wrote("dogs", list(b"d"))
    assert step(names, "cats", "dogs") == ["c", "ou"]
    names.forget("dogs")
    assert step(names, "cats", "dogs") == ["c", "*"]


def test_a_row_for_every_drafted_token() -> None:
    names = VllmPromptNames(scheduler())
    names.begin("cats", params_with("cat"))
    names.begin("dogs", params_with("dog"))
    names.wrote("cats", PLAN)
    names.wrote("dogs", list(b"mu("))
    assert step(names, "cats", "dogs", cats=list(b"ca"), dogs=[-1]) == ["c", "a", "t", "*", "*"]
    for drafts in ("", "c", "cat"):
        rows = ["c", "a", "t", ""]
        rows[len(drafts) + 1 :] = "*" * (MOST_DRAFTS - len(drafts))
        both = step(names, "dogs", "cats", full=True, cats=list(drafts.encode()), dogs=[-1])
        assert both == ["*"] * 4 + rows


def test_an_answer_brings_its_names() -> None:
    names = VllmPromptNames(scheduler())
    names.begin("cats", params_with("cat"))
    names.wrote("cats", list(b"rp();g('"))
    assert step(names, "cats") == ["c"]
    names.add_answer("cats", "Scene: zebra, lamp on the table")
    assert step(names, "cats") == ["cltz"]
    names.add_answer("cats", "猫")
    assert step(names, "cats") == ["*"], "where names cannot be told from words, any may be written"


def test_a_plan_that_is_resumed_keeps_the_names_of_its_answers() -> None:
    names = VllmPromptNames(scheduler())
    names.begin("cats", params_with("cat"))
    plan = list(b"rp();g('")
    segment = SegmentReady("cats", 0, "rp();", 5, 1.0, 0.1, 1.1, blocking=True, token_ids=tuple(plan[:5]))
    answer = PastReport(ExecutionReport(0, "value", value="zebra"), 2.0)
    state: Any = SimpleNamespace(
        request=SimpleNamespace(request_id="cats"),
        job=SimpleNamespace(awaiting=None, spec=SimpleNamespace(segmented=True)),
        boundaries=VllmCountedBoundaries([("rp();", 5, 0.1, True)]),
        new_boundaries=[],
    )
    resume_vllm_state(state, names, PlanHistory(0.0, (segment, answer)))
    names.wrote("cats", plan[5:])
    assert step(names, "cats") == ["cz"]


def test_another_grammar_backend_leaves_names_alone() -> None:
    names = VllmPromptNames(scheduler(None))
    names.begin("cats", params_with("cat"))
    names.wrote("cats", PLAN)
    assert step(names, "cats") == ["*"]


def test_names_for_a_prompt() -> None:
    names = vllm_prompt_names("Scene: cup\nTask: Throw away the peel.\nPlan:", ["bin"])
    assert names is not None
    assert {"bin", "cup", "peel", "throw"} <= set(names)
    assert names == sorted(names)
    assert vllm_prompt_names("扔掉杯子", ["bin"]) is None
    with pytest.raises(InvalidInput, match="names"):
        parse_vllm_extra_args({"timely": {"names": ["x"] * (MOST_NAMES + 1)}})
