"""Hints of other serving systems, as fields of ``timely``. Fields that the request has under ``timely`` win.

| source | becomes |
|---|---|
| ``x-slo-ttft-ms``, ``x-llm-d-slo-ttft-ms`` | ``tuf.ert_s`` |
| ``x-slo-tpot-ms``, ``x-llm-d-slo-tpot-ms`` | ``pace_s`` |
| ``x-gateway-inference-objective``, ``x-llm-d-inference-objective`` | ``priority``, by the operator's table |
| ``x-gateway-inference-fairness-id``, ``x-llm-d-inference-fairness-id`` | ``app`` |
| ``nvext.agent_hints.priority``, ``nvext.agent_hints.osl`` (Dynamo) | ``priority``, ``expected_tokens`` |

Objectives and Dynamo count priorities upward, vLLM and ``timely`` downward.
"""

import math
from collections.abc import Mapping
from typing import Any

from timely.core.errors import InvalidInput

TTFT_HEADERS = ("x-slo-ttft-ms", "x-llm-d-slo-ttft-ms")
TPOT_HEADERS = ("x-slo-tpot-ms", "x-llm-d-slo-tpot-ms")
OBJECTIVE_HEADERS = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
FAIRNESS_HEADERS = ("x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")
FOREIGN_HEADERS = frozenset(TTFT_HEADERS + TPOT_HEADERS + OBJECTIVE_HEADERS + FAIRNESS_HEADERS)

MAX_SLO_MS = 3_600_000.0
LEAST_PACE_MS, MAX_PACE_MS = 0.001, 60_000.0


def foreign_http_hints(
    headers: Mapping[str, str], data: Mapping[str, Any], objectives: Mapping[str, int]
) -> dict[str, Any]:
    """The fields of ``timely`` that headers and body of a request say in other systems' words.

    Args:
        headers: by lower-case name.
        objectives: priority by name of an objective, larger is more important; others have priority 0.

    Raises:
        InvalidInput: a number that is none, or is out of range.
    """
    hints: dict[str, Any] = {}
    extension = data.get("nvext")
    agent_hints = extension.get("agent_hints") if isinstance(extension, Mapping) else None
    if isinstance(agent_hints, Mapping):
        if agent_hints.get("priority") is not None:
            hints["priority"] = -_http_header_number(
                agent_hints["priority"], "nvext.agent_hints.priority", -1e6, 1e6
            )
        if agent_hints.get("osl") is not None:
            hints["expected_tokens"] = _http_header_number(
                agent_hints["osl"], "nvext.agent_hints.osl", 1.0, 1e6
            )
    if FOREIGN_HEADERS.isdisjoint(headers):
        return hints
    if objective := _first_http_header(headers, OBJECTIVE_HEADERS)[1]:
        hints["priority"] = -float(objectives.get(objective, 0))
    if app := _first_http_header(headers, FAIRNESS_HEADERS)[1]:
        hints["app"] = app
    name, value = _first_http_header(headers, TTFT_HEADERS)
    if value:
        hints["tuf"] = {"ert_s": _http_header_number(value, name, 0.0, MAX_SLO_MS) / 1000.0}
    name, value = _first_http_header(headers, TPOT_HEADERS)
    if value:
        hints["pace_s"] = _http_header_number(value, name, LEAST_PACE_MS, MAX_PACE_MS) / 1000.0
    return hints


def _first_http_header(headers: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """Name and value of the first of the headers that is there; empty without one."""
    return next(((name, headers[name].strip()) for name in names if headers.get(name)), ("", ""))


def _http_header_number(value: object, where: str, least: float, most: float) -> float:
    try:
        number = (
            float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
        )
    except (ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        raise InvalidInput(f"must be a number from {least:g} to {most:g}", where=where)
    return number
