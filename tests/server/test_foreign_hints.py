"""Hints of other serving systems on the OpenAI endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fleet import fleet
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from timely.cli.main import run_timely_command
from timely.core.errors import InvalidInput
from timely.server.http.foreign_hints import foreign_http_hints

OBJECTIVES = {"critical": 10, "batch": -5}


@pytest.mark.parametrize(
    ("headers", "body", "hints"),
    [
        ({}, {}, {}),
        ({"x-slo-ttft-ms": "250"}, {}, {"tuf": {"ert_s": 0.25}}),
        ({"x-llm-d-slo-ttft-ms": "250"}, {"max_tokens": 9}, {"tuf": {"ert_s": 0.25}}),
        (
            {"x-slo-ttft-ms": "200", "x-slo-tpot-ms": "50"},
            {"max_tokens": 16},
            {"tuf": {"ert_s": 0.2}, "pace_s": 0.05},
        ),
        ({"x-llm-d-slo-tpot-ms": "50"}, {}, {"pace_s": 0.05}),
        ({"x-gateway-inference-objective": "critical"}, {}, {"priority": -10.0}),
        ({"x-llm-d-inference-objective": "batch"}, {}, {"priority": 5.0}),
        ({"x-gateway-inference-objective": "unlisted"}, {}, {"priority": 0.0}),
        ({"x-slo-ttft-ms": "0", "x-slo-tpot-ms": "0.001"}, {}, {"tuf": {"ert_s": 0.0}, "pace_s": 1e-6}),
        ({}, {"nvext": {"agent_hints": {"osl": 1}}}, {"expected_tokens": 1.0}),
        ({"x-gateway-inference-fairness-id": "tenant-1"}, {}, {"app": "tenant-1"}),
        (
            {},
            {"nvext": {"agent_hints": {"priority": 3, "osl": 64}}},
            {"priority": -3.0, "expected_tokens": 64.0},
        ),
        ({}, {"nvext": {"agent_hints": None}}, {}),
        ({}, {"nvext": None}, {}),
        ({}, {"nvext": {"agent_hints": {"osl": None, "speculative_prefill": True}}}, {}),
        # llm-d's own names stand above those that it calls deprecated.
        (
            {
                "x-slo-ttft-ms": "50",
                "x-llm-d-slo-ttft-ms": "200",
                "x-slo-tpot-ms": "1",
                "x-llm-d-slo-tpot-ms": "9",
            },
            {},
            {"tuf": {"ert_s": 0.2}, "pace_s": 0.009},
        ),
        (
            {
                "x-gateway-inference-objective": "batch",
                "x-llm-d-inference-objective": "critical",
                "x-gateway-inference-fairness-id": "old",
                "x-llm-d-inference-fairness-id": "new",
            },
            {},
            {"priority": -10.0, "app": "new"},
        ),
    ],
)
def test_each_hint_becomes_a_field(
    headers: dict[str, str], body: dict[str, Any], hints: dict[str, Any]
) -> None:
    assert foreign_http_hints(headers, body, OBJECTIVES) == hints


@pytest.mark.parametrize(
    ("headers", "body", "where"),
    [
        ({"x-slo-ttft-ms": "soon"}, {}, "x-slo-ttft-ms"),
        ({"x-slo-ttft-ms": "nan"}, {}, "x-slo-ttft-ms"),
        ({"x-slo-ttft-ms": "-1"}, {}, "x-slo-ttft-ms"),
        ({"x-slo-ttft-ms": "3600001"}, {}, "x-slo-ttft-ms"),
        ({"x-slo-ttft-ms": "1", "x-slo-tpot-ms": "inf"}, {}, "x-slo-tpot-ms"),
        ({"x-slo-tpot-ms": "0"}, {}, "x-slo-tpot-ms"),
        ({"x-slo-tpot-ms": "60001"}, {}, "x-slo-tpot-ms"),
        ({"x-llm-d-inference-fairness-id": "a" * 1000}, {}, "x-llm-d-inference-fairness-id"),
        ({}, {"nvext": [1]}, "nvext"),
        ({}, {"nvext": ""}, "nvext"),
        ({}, {"nvext": {"agent_hints": "high"}}, "nvext.agent_hints"),
        ({}, {"nvext": {"agent_hints": {"priority": True}}}, "nvext.agent_hints.priority"),
        ({}, {"nvext": {"agent_hints": {"priority": "5"}}}, "nvext.agent_hints.priority"),
        ({}, {"nvext": {"agent_hints": {"priority": 0.5}}}, "nvext.agent_hints.priority"),
        ({}, {"nvext": {"agent_hints": {"osl": "64"}}}, "nvext.agent_hints.osl"),
        ({}, {"nvext": {"agent_hints": {"priority": 1_000_001}}}, "nvext.agent_hints.priority"),
        ({}, {"nvext": {"agent_hints": {"priority": -1_000_001}}}, "nvext.agent_hints.priority"),
        ({}, {"nvext": {"agent_hints": {"osl": 0}}}, "nvext.agent_hints.osl"),
        ({}, {"nvext": {"agent_hints": {"osl": 1_000_001}}}, "nvext.agent_hints.osl"),
    ],
)
def test_a_wrong_value_is_named(headers: dict[str, str], body: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        foreign_http_hints(headers, body, {})
    assert raised.value.where == where


def test_the_engine_reads_them_and_the_requests_own_fields_win() -> None:
    passed: list[dict[str, Any]] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(json.loads((await receive())["body"])["timely"])
        await JSONResponse({})(scope, receive, send)

    chat = {"messages": [{"role": "user", "content": "a story"}]}
    headers = {"X-SLO-TTFT-ms": "300", "X-Gateway-Inference-Objective": "critical"}
    with fleet(objectives=OBJECTIVES) as served:
        served.engine.openai_app = inner  # type: ignore[attr-defined]
        for own in ({}, {"timely": {"ert_s": 2.0, "priority": 1.0}}):
            assert served.http.post("/v1/chat/completions", json={**chat, **own}, headers=headers).is_success
        wrong = served.http.post("/v1/chat/completions", json=chat, headers={"X-SLO-TTFT-ms": "soon"})
    assert [(hints["tuf"]["ert_s"], hints["priority"]) for hints in passed] == [(0.3, -10.0), (2.0, 1.0)]
    assert (wrong.status_code, wrong.json()["where"]) == (422, "x-slo-ttft-ms")


def test_an_objective_has_a_priority(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("critical", "=1", "critical=1.5", "critical=" + "9" * 5000):
        assert run_timely_command(["serve", "--engine", "scripted", "--objective", text]) == 2
    assert "NAME=PRIORITY" in capsys.readouterr().err
