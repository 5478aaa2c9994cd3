"""What a request may tell the scheduler, nested, flat and through the OpenAI body."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from timely.core.errors import InvalidInput
from timely.core.utility import NORMAL, TimeUtility
from timely.engines.vllm.params import flatten_vllm_xargs, parse_extra_args


def test_nothing_said_is_none() -> None:
    assert parse_extra_args(None) is None
    assert parse_extra_args({}) is None
    assert parse_extra_args({"kv_transfer_params": {"x": 1}}) is None


def test_nested_and_flat_say_the_same() -> None:
    nested = parse_extra_args(
        {"timely": {"skill_set": "drone", "tuf": {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0}}}
    )
    flat = parse_extra_args(
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
    params = parse_extra_args(flatten_vllm_xargs(fields))
    assert params is not None
    assert params.utility == TimeUtility.from_cutoff(0.5, 1.0, 3.0)
    assert params.app is None


def test_defaults_are_the_normal_task() -> None:
    params = parse_extra_args({"timely_robot": "tello"})
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
        parse_extra_args(fields)
    assert caught.value.where == where


class TestOpenAIBody:
    def test_timely_moves_into_vllm_xargs(self) -> None:
        from timely.engines.vllm.openai import translate_vllm_openai_body

        body = {"model": "m", "messages": [], "vllm_xargs": {"x": 1}, "timely": {"ert_s": 0.2, "agent": "a"}}
        data = json.loads(translate_vllm_openai_body(json.dumps(body).encode())[0])
        assert "timely" not in data
        assert data["vllm_xargs"] == {"x": 1, "timely_agent": "a", "timely_ert_s": 0.2}

    def test_a_body_with_images_passes(self) -> None:
        from timely.engines.vllm.openai import translate_vllm_openai_body

        image = "x" * (16 << 20)
        data = json.loads(
            translate_vllm_openai_body(json.dumps({"image": image, "timely": {"agent": "a"}}).encode())[0]
        )
        assert data["image"] == image
        assert data["vllm_xargs"] == {"timely_agent": "a"}

    def test_other_bodies_stay_as_they_are(self) -> None:
        from timely.engines.vllm.openai import translate_vllm_openai_body

        for body in (b'{"model": "m"}', b"{broken", b'"timely"', b'["timely"]', b""):
            assert translate_vllm_openai_body(body) == (body, None)

    @pytest.mark.parametrize(
        "timely",
        [
            {"alpha": 3},
            {"arrival_s": 1.0},
            {"forced_ids": [1]},
            {"what": 1},
            7,
            {"tuf": {"x": 1}},
        ],
    )
    def test_unusable_timely_is_refused(self, timely: object) -> None:
        from timely.engines.vllm.openai import translate_vllm_openai_body

        with pytest.raises(InvalidInput, match=r"."):
            translate_vllm_openai_body(json.dumps({"timely": timely}).encode())


@pytest.mark.asyncio
async def test_a_priority_that_our_own_server_has_checked_reaches_the_scheduler() -> None:
    """Objectives of gateways and hints of Dynamo become priorities; a client of ``vllm serve`` may name none."""
    pytest.importorskip("vllm", reason="needs vLLM")
    from timely.engines.vllm.openai import Receive, Scope, Send, TimelyField
    from timely.engines.vllm.plugin import _validating

    processed: list[Any] = []
    process_inputs = _validating(lambda self, request_id, prompt, params: processed.append(params.extra_args))

    async def vllm_app(scope: Scope, receive: Receive, send: Send) -> None:
        fields = json.loads((await receive())["body"])
        process_inputs(None, "chatcmpl-1", {}, SimpleNamespace(extra_args=fields["vllm_xargs"]))

    async def ask(timely: dict[str, Any]) -> None:
        body = json.dumps({"messages": [], "timely": timely}).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        scope = {"type": "http", "method": "POST", "headers": []}
        await TimelyField(vllm_app)(scope, receive, lambda message: asyncio.sleep(0))

    for fields in ({"priority": -10.0, "task_id": "chatcmpl-1"}, {"task_id": "chatcmpl-2"}):
        await asyncio.create_task(ask(fields))
    params = [parse_extra_args(extra_args) for extra_args in processed]
    assert [one.hints(0.0).priority for one in params if one is not None] == [-10.0, 0.0]
    assert [one.awaits_values for one in params if one is not None] == [False, False]
