"""What a request may tell the scheduler, nested, flat and through the OpenAI body."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any

import pytest
from optional_packages import require_package

from timely.core.errors import InvalidInput, Unsupported
from timely.core.utility import NORMAL, TimeUtility
from timely.engines.vllm.params import (
    SERVER_PARAMS,
    flatten_vllm_xargs,
    parse_vllm_extra_args,
    vllm_openai_fields,
)
from timely.principals import LOCAL
from timely.server.http.openai_request import OpenAIHints, openai_http_hints


def test_nothing_said_is_none() -> None:
    assert parse_vllm_extra_args(None) is None
    assert parse_vllm_extra_args({}) is None
    assert parse_vllm_extra_args({"kv_transfer_params": {"x": 1}}) is None


def test_nested_and_flat_say_the_same() -> None:
    nested = parse_vllm_extra_args(
        {"timely": {"skill_set": "drone", "tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0}}}
    )
    flat = parse_vllm_extra_args(
        {"timely_skill_set": "drone", "timely_ert_s": 0.2, "timely_alpha": -6.67, "timely_beta": 2.0}
    )
    assert nested is not None
    assert flat == nested.model_copy(update={"awaits_values": False})
    assert nested.utility == TimeUtility(0.2, -6.67, 2.0)


def test_a_flattened_body_parses_back() -> None:
    fields = {
        "robot": "tello",
        "urgency": 1,
        "tuf": {"ert_s": 0.5, "cutoff_s": 1.0, "beta": 3.0},
        "app": None,
    }
    params = parse_vllm_extra_args(flatten_vllm_xargs(fields))
    assert params is not None
    assert params.utility == TimeUtility.from_cutoff(0.5, 1.0, 3.0)
    assert params.app is None


def test_defaults_are_the_normal_task() -> None:
    params = parse_vllm_extra_args({"timely_robot": "tello"})
    assert params is not None
    assert params.utility == NORMAL


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"timely": {"tuf": {"alpha": 1.0}}}, "timely.tuf.alpha"),
        ({"timely": {"tuf": {"beta": 0.0}}}, "timely.tuf.beta"),
        ({"timely": {"tuf": {"ert_s": float("nan")}}}, "timely.tuf.ert_s"),
        ({"timely": {"tuf": {"alpha": -1.0, "cutoff_s": 3.0}}}, "timely.tuf"),
        ({"timely": {"tuf": [1.0]}}, "timely.tuf"),
        ({"timely": {"tuf": "steep"}}, "timely.tuf"),
        ({"timely_alpha": -1e300}, "timely.tuf.alpha"),
        ({"timely_alpha": "-inf"}, "timely.tuf.alpha"),
        ({"timely_beta": 1e300}, "timely.tuf.beta"),
        ({"timely_ert_s": 1e300}, "timely.tuf.ert_s"),
        ({"timely_expected_tokens": 1e300}, "timely.expected_tokens"),
        ({"timely": {"tuf": {"ert_s": 1.0, "cutoff_s": 0.5}}}, "tuf.cutoff_s"),
        ({"timely": {"urgency": 5}}, "timely.urgency"),
        ({"timely": {"urgency": -1}}, "timely.urgency"),
        ({"timely": {"app": "a/1", "app_requests": 0}}, "timely.app_requests"),
        ({"timely": {"app": "a/1", "app_requests": 10_001}}, "timely.app_requests"),
        ({"timely": {"app": "a" * 201}}, "timely.app"),
        ({"timely": {"colour": "red"}}, "timely.colour"),
        ({"timely": "drone"}, "timely"),
        ({"timely_network_s": -1.0}, "timely.network_s"),
        ({"timely_pace_s": 0.0}, "timely.pace_s"),
        ({"timely_arrival_s": 0.0}, "timely_arrival_s"),
        ({"timely_keep_prompt": True}, "timely_keep_prompt"),
        ({"timely_promised": True}, "timely_promised"),
        ({"timely_priority": -5.0}, "timely_priority"),
        ({"timely_names": ["cup"]}, "timely_names"),
    ],
)
def test_unusable_parameters_name_their_field(fields: dict[str, object], where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_vllm_extra_args(fields)
    assert caught.value.where == where


ALL_HINTS: dict[str, object] = {
    "tuf": {"ert_s": 0.2, "alpha": -1.0}, "skill_set": "drone", "robot": "tello", "agent": "a", "app": "b",
    "app_requests": 3, "urgency": 1, "network_s": 0.1, "expected_tokens": 50.0, "pace_s": 0.1, "acceptance": 0.5,
    "priority": -5.0, "text": "go",
}  # fmt: skip


def test_all_hints_of_an_openai_request_reach_the_scheduler() -> None:
    assert set(ALL_HINTS) == set(OpenAIHints.model_fields)
    body = {"model": "m", "vllm_xargs": {"x": 1}, "timely": ALL_HINTS}
    context = copy_context()
    fields = context.run(vllm_openai_fields, openai_http_hints(body, LOCAL), body)
    assert context[SERVER_PARAMS] == {name: ALL_HINTS[name] for name in ("priority", "text")}
    assert (set(fields), fields["vllm_xargs"]["x"]) == ({"vllm_xargs"}, 1)
    params = parse_vllm_extra_args(fields["vllm_xargs"])
    assert params is not None
    hints = params.hints(0.0)
    assert (hints.utility.ert_s, hints.app, hints.urgency) == (0.2, "b", 1)
    assert (params.skill_set, params.robot, params.agent) == ("drone", "tello", "a")


@pytest.mark.parametrize(
    "timely", [{"alpha": 3}, {"arrival_s": 1.0}, {"forced_ids": [1]}, {"what": 1}, 7, {"tuf": {"x": 1}}]
)
def test_unusable_hints_of_an_openai_request_are_refused(timely: object) -> None:
    with pytest.raises(InvalidInput, match=r"."):
        openai_http_hints({"timely": timely}, LOCAL)


@pytest.mark.process
@pytest.mark.asyncio
async def test_what_our_own_server_says_beside_the_body_reaches_the_scheduler() -> None:
    """Objectives of gateways and hints of Dynamo become priorities; a client of ``vllm serve`` may name none.

    vLLM logs the parameters in the body of a request, but no prompt.
    """
    pytest.importorskip("vllm", reason="needs vLLM")
    from timely.engines.vllm.plugin import _validating_vllm_parameters

    processed: list[Any] = []
    process_inputs = _validating_vllm_parameters(
        lambda self, request_id, prompt, params: processed.append(params.extra_args)
    )

    async def ask(hints: dict[str, Any]) -> None:
        fields = vllm_openai_fields(hints, {})
        assert "secret" not in str(fields)
        process_inputs(None, "chatcmpl-1", {}, SimpleNamespace(extra_args=fields["vllm_xargs"]))

    first = {"priority": -10.0, "task_id": "chatcmpl-1", "text": "secret"}
    for hints in (first, {"task_id": "chatcmpl-2"}):
        await asyncio.create_task(ask(hints))
    params = [parse_vllm_extra_args(extra_args) for extra_args in processed]
    assert [one.hints(0.0).priority for one in params if one is not None] == [-10.0, 0.0]
    assert [(one.text, one.awaits_values) for one in params if one is not None] == [
        ("secret", False),
        ("", False),
    ]


@pytest.mark.engine
@pytest.mark.parametrize("field", ["skill_set", "robot"])
@pytest.mark.parametrize("name", ["nope", "../drone", "/etc/passwd"])
def test_an_unknown_name_is_refused_before_the_engine(field: str, name: str) -> None:
    require_package("vllm")
    from vllm.exceptions import VLLMValidationError

    from timely.engines.vllm.plugin import _validating_vllm_parameters

    process_inputs = _validating_vllm_parameters(lambda self, request_id, prompt, params: None)
    with pytest.raises(VLLMValidationError, match=f"{field}: unknown"):
        process_inputs(None, "cmpl-1", {}, SimpleNamespace(extra_args={f"timely_{field}": name}))


@pytest.mark.asyncio
async def test_a_model_that_generates_no_text_is_refused_at_the_start() -> None:
    from timely.engines.vllm.openai import build_vllm_openai_app

    async def tasks() -> tuple[str, ...]:
        return ("embed", "token_embed")

    with pytest.raises(Unsupported, match="vLLM runs it for: embed, token_embed"):
        await build_vllm_openai_app(SimpleNamespace(get_supported_tasks=tasks), None)
