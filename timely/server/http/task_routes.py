"""``/v1/tasks``: ask for a plan, follow it, report on it, cancel it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from timely.core.errors import InvalidInput
from timely.server.http import schemas
from timely.server.http.sse import EVENT_STREAM, EventStream, resume_point
from timely.server.tasks.service import TaskService
from timely.server.tasks.task_events import encode

ACCEPTED_ID = 1
"""Id of the event ``accepted``."""

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
}


def _body(model: Any, *, many: bool = False) -> dict[str, Any]:
    """OpenAPI for a body that is read by hand, for the sake of its own errors."""
    schema = model.json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    # Nested models are written out: FastAPI collects only those it validates itself.
    schema = _inline(schema, definitions)
    if many:
        schema = {"anyOf": [schema, {"type": "array", "items": schema}]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _inline(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            return _inline(definitions[str(node["$ref"]).rsplit("/", 1)[-1]], definitions)
        return {key: _inline(value, definitions) for key, value in node.items()}
    if isinstance(node, list):
        return [_inline(value, definitions) for value in node]
    return node


async def json_body(request: Request) -> bytes:
    """The body of a request that says it is JSON; a web page of another origin cannot say so unasked."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"send application/json, not {kind[:80] or 'nothing named'}")
    return await request.body()


def router(service: TaskService) -> APIRouter:
    """The routes of one task service."""
    routes = APIRouter(prefix="/v1/tasks", tags=["tasks"])

    @routes.post("", openapi_extra=_body(schemas.TASK), response_class=Response, responses=EVENTS)
    async def submit(request: Request) -> Response:
        """Ask for a plan. The answer is a stream of server-sent events: ``accepted``, each ``segment``, then
        ``result`` or ``error``."""
        body = schemas.validate(schemas.TASK, schemas.decode(await json_body(request)))
        task = await service.submit(body.request(service.settings))
        first = encode(ACCEPTED_ID, "accepted", service.accepted(task, with_token=True))
        return EventStream(service, task, after=ACCEPTED_ID, first=first)

    @routes.get("/{task_id}")
    async def show(task_id: str) -> JSONResponse:
        """The state of a task, its segments with their times, and its measures so far."""
        return JSONResponse(service.get(task_id).view(service.clock.now()))

    @routes.get("/{task_id}/events", response_class=Response, responses=EVENTS)
    async def events(task_id: str, request: Request) -> Response:
        """Follow a task from the start, or from after the event named in ``Last-Event-ID``."""
        task = service.get(task_id)
        after = resume_point(request.headers.get("last-event-id"), task.events)
        return EventStream(service, task, after=after)

    @routes.post("/{task_id}/reports", openapi_extra=_body(schemas.REPORT, many=True))
    async def report(task_id: str, request: Request) -> JSONResponse:
        """Tell what the robot did: one report or a list. Who may: ``Authorization: Bearer TOKEN`` with the
        ``report_token`` of the first event, or the task's ``agent`` in each report. Repeats change nothing."""
        reports, agents = schemas.reports_of(await json_body(request), service.settings.max_reports)
        news = await service.report(task_id, reports, agents, _bearer(request))
        task = service.get(task_id)
        return JSONResponse(
            {"received": len(reports), "news": news, "state": task.state, "outcome": task.outcome}
        )

    @routes.post(
        "/{task_id}/replan",
        openapi_extra=_body(schemas.REPLAN),
        response_class=Response,
        responses=EVENTS,
    )
    async def replan(task_id: str, request: Request) -> Response:
        """End what is left of a plan and get another that knows what was done of it: after a failed skill, or when the
        scene has changed. The answer is the new task's stream. Who may: as for reports."""
        body = schemas.validate(schemas.REPLAN, schemas.decode(await json_body(request)))
        task = await service.replan(task_id, body.request(service.settings), _bearer(request))
        first = encode(ACCEPTED_ID, "accepted", service.accepted(task, with_token=True))
        return EventStream(service, task, after=ACCEPTED_ID, first=first)

    @routes.put("/{task_id}/urgency", openapi_extra=_body(schemas.URGENCY))
    async def urgency(task_id: str, request: Request) -> JSONResponse:
        """An operator's word: the urgency level of what is being generated, from now on. Signed and kept in the
        event log. The id is that of a task, or of a request of the OpenAI endpoint as its answer has it."""
        body = schemas.validate(schemas.URGENCY, schemas.decode(await json_body(request)))
        return JSONResponse(await service.set_urgency(task_id, body.urgency, body.operator, body.reason))

    @routes.delete("/{task_id}")
    async def cancel(task_id: str, request: Request) -> JSONResponse:
        """Stop generating at once. Anyone who reaches the server may: stopping is always safe."""
        task = await service.cancel(task_id)
        return JSONResponse({"task_id": task.task_id, "state": task.state, "outcome": task.outcome})

    return routes


def _bearer(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise InvalidInput("must be: Bearer TOKEN", where="Authorization")
    return token.strip()
