"""Hints of other serving systems, as fields of ``timely``. Fields that the request has under ``timely`` win.

| source | becomes |
|---|---|
| ``x-llm-d-slo-ttft-ms``, ``x-slo-ttft-ms`` | ``tuf.ert_s`` |
| ``x-llm-d-slo-tpot-ms``, ``x-slo-tpot-ms`` | ``pace_s`` |
| ``x-llm-d-inference-objective``, ``x-gateway-inference-objective`` | ``priority``, by the operator's table |
| ``x-llm-d-inference-fairness-id``, ``x-gateway-inference-fairness-id`` | ``app`` |
| ``nvext.agent_hints.priority``, ``nvext.agent_hints.osl`` (Dynamo) | ``priority``, ``expected_tokens`` |

Objectives and Dynamo count priorities upward, vLLM and ``timely`` downward. Of two names the first wins, as in llm-d,
which calls the second deprecated. A value that cannot be used is refused, as by Dynamo; llm-d leaves it out silently.
"""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from timely.core.errors import InvalidInput
from timely.server.http.bodies import validate_http_body
from timely.server.tasks.request import Label

TTFT_HEADERS = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")
TPOT_HEADERS = ("x-llm-d-slo-tpot-ms", "x-slo-tpot-ms")
OBJECTIVE_HEADERS = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
FAIRNESS_HEADERS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
FOREIGN_HEADERS = frozenset(TTFT_HEADERS + TPOT_HEADERS + OBJECTIVE_HEADERS + FAIRNESS_HEADERS)

APP: TypeAdapter[str] = TypeAdapter(Label)
MAX_INTEGER = 1_000_000
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
        InvalidInput: names the first header or field that cannot be used.
    """
    hints: dict[str, Any] = {}
    agent_hints = _http_object(_http_object(data, "nvext", "nvext"), "agent_hints", "nvext.agent_hints")
    if agent_hints.get("priority") is not None:
        priority = _http_integer(agent_hints["priority"], "nvext.agent_hints.priority", -MAX_INTEGER)
        hints["priority"] = -float(priority)
    if agent_hints.get("osl") is not None:
        hints["expected_tokens"] = float(_http_integer(agent_hints["osl"], "nvext.agent_hints.osl", 1))
    if FOREIGN_HEADERS.isdisjoint(headers):
        return hints
    if objective := _first_http_header(headers, OBJECTIVE_HEADERS)[1]:
        hints["priority"] = -float(objectives.get(objective, 0))
    name, app = _first_http_header(headers, FAIRNESS_HEADERS)
    if app:
        try:
            hints["app"] = validate_http_body(APP, app)
        except InvalidInput as error:
            raise InvalidInput(error.message, where=name) from error
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


def _http_object(data: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """An object of a body; empty without one."""
    value = data.get(name)
    if not isinstance(value, dict | None):
        raise InvalidInput("must be an object", where=where)
    return value or {}


def _http_integer(value: object, where: str, least: int) -> int:
    if type(value) is not int or not least <= value <= MAX_INTEGER:
        raise InvalidInput(f"must be an integer from {least} to {MAX_INTEGER}", where=where)
    return value


def _http_header_number(value: str, where: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise InvalidInput(f"must be a number from {least:g} to {most:g}", where=where)
    return number
