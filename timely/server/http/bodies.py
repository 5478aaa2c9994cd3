"""Reads JSON bodies strictly and describes them in the OpenAPI schema."""

import json
import re
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from fastapi import Request
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from timely.core.errors import InvalidInput, TooLarge
from timely.core.files import core_decode_json
from timely.server.http.problem_handlers import http_problem_from_validation
from timely.server.tasks.request import ReportBody

Model = TypeVar("Model")

REPORT: TypeAdapter[ReportBody] = TypeAdapter(ReportBody)

MAX_VALUES = 200_000
"""Most values of a body. Python reads JSON in one piece, so all robots wait for as long as that takes."""

VALUE_START = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""A text, or what begins another value; a text without an end reaches to the end of the body."""


async def read_http_body(request: Request, model: type[Model]) -> Model:
    """The body of a request as an instance of ``model``.

    Raises:
        InvalidInput: names the first field that is wrong. HTTPException: the body is not declared as JSON.
    """
    return validate_http_body(TypeAdapter(model), await _read_http_json(request))


async def read_http_reports(request: Request, limit: int) -> list[ReportBody]:
    """The reports of a body: one or a list.

    Raises:
        InvalidInput: names the first field that is wrong. TooLarge: more than ``limit``.
    """
    value = await _read_http_json(request)
    if not isinstance(value, list):
        return [validate_http_body(REPORT, value)]
    if len(value) > limit:
        raise TooLarge(f"{len(value)} reports; the limit is {limit}", where="reports")
    if not value:
        raise InvalidInput("no reports", where="reports")
    reports = []
    for index, item in enumerate(value):
        try:
            reports.append(validate_http_body(REPORT, item))
        except InvalidInput as error:
            raise InvalidInput(error.message, where=f"{index}.{error.where}") from error
    return reports


async def _read_http_json(request: Request) -> Any:
    """The body of a request that is declared as JSON; a web page of another origin cannot declare so.

    Raises:
        InvalidInput: it is no JSON. HTTPException: another content type.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"send application/json, not {kind[:80] or 'nothing named'}")
    return decode_http_body(await request.body())


def decode_http_body(body: bytes) -> Any:
    """Decode JSON strictly: no NaN or Infinity, no key twice, bounded nesting, at most ``MAX_VALUES`` values.

    Raises:
        InvalidInput, TooLarge: where ``body``.
    """
    if _has_http_body_too_many_values(body):
        raise TooLarge(f"more than {MAX_VALUES} values", where="body")
    try:
        return core_decode_json(body.decode(json.detect_encoding(body), "surrogatepass"))
    except UnicodeDecodeError as error:
        raise InvalidInput("not UTF-8 text", where="body") from error
    except RecursionError as error:
        raise InvalidInput("nested too deeply", where="body") from error
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", where="body"
        ) from error
    except ValueError as error:
        # Python also refuses numbers with thousands of digits.
        raise InvalidInput(f"not JSON: {str(error)[:200]}", where="body") from error


def _has_http_body_too_many_values(body: bytes) -> bool:
    """Whether JSON has more than ``MAX_VALUES``; it may be no JSON."""
    if sum(map(body.count, b"[{,")) <= MAX_VALUES:
        return False
    # Some may be in texts. A value has two texts at most, one of them its name.
    starts = bytes(body[match.start()] for match in islice(VALUE_START.finditer(body), 3 * MAX_VALUES))
    return len(starts) == 3 * MAX_VALUES or len(starts) - starts.count(b'"') > MAX_VALUES


def validate_http_body(model: TypeAdapter[Model], value: object) -> Model:
    """``value`` as an instance of the model.

    Raises:
        InvalidInput: names the first field that is wrong.
    """
    try:
        return model.validate_python(value)
    except ValidationError as error:
        raise http_problem_from_validation(error) from error


@cache
def http_body_schema(model: type[object], *, many: bool = False, required: bool = True) -> dict[str, Any]:
    """The OpenAPI of a body that the route reads itself: one, or with ``many`` a list of them, too."""
    schema = TypeAdapter(model).json_schema()
    if model is ReportBody:
        schema["anyOf"] = [
            {"properties": {"kind": {"enum": ["started", "done", "failed"]}}},
            {
                "properties": {"kind": {"const": "progress"}, "remaining_s": {"type": "number"}},
                "required": ["remaining_s"],
            },
            {"properties": {"kind": {"const": "value"}, "value": {"type": "string"}}, "required": ["value"]},
        ]
    if many:
        schema = {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}]}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}
