"""``/v1/tasks``: request a plan, follow it, report its execution, cancel it."""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response

from timely.core.errors import InvalidInput
from timely.principals import Principal
from timely.server.http.bodies import http_body_schema, read_http_body, read_http_reports
from timely.server.http.request_state import Caller, Service
from timely.server.http.sse import EVENTS, HttpEventStream, sse_resume_point
from timely.server.tasks.permissions import holds_task_token
from timely.server.tasks.request import (
    TRACEPARENT_PATTERN,
    ReplanRequest,
    ReportBody,
    TaskRequest,
    UrgencyBody,
)
from timely.server.tasks.service import TaskService
from timely.server.tasks.task import Task
from timely.server.tasks.task_events import server_task_event_bytes

ACCEPTED_ID = 1
"""Id of the event ``accepted``."""

Dropped = Annotated[
    bool, Query(description="the robot executes no more of it, so a task in execution ends, too")
]

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])


@router.post("", openapi_extra=http_body_schema(TaskRequest), response_class=Response, responses=EVENTS)
async def submit(request: Request, service: Service, caller: Caller) -> Response:
    """Request a plan. The response is a stream of server-sent events: ``accepted``, each ``segment``, then
    ``result`` or ``error``."""
    plan = _task_request_with_http_trace(
        await read_http_body(request, TaskRequest), request.headers.get("traceparent", "")
    )
    task = await service.submit(plan, caller)
    return _http_task_stream(service, task)


@router.get("/{task_id}")
async def show(task_id: str, service: Service, caller: Caller) -> JSONResponse:
    """The state of a task, its segments with their times, and its measures so far."""
    return JSONResponse(service.visible(task_id, caller).view(service.clock.now()) | {"task_id": task_id})


@router.get("/{task_id}/events", response_class=Response, responses=EVENTS)
async def events(task_id: str, request: Request, service: Service, caller: Caller) -> Response:
    """Follow a task from the start, or from after the event named in ``Last-Event-ID``. A reader with the task's
    token has a place that readers without it cannot take."""
    task = service.visible(task_id, caller)
    after = sse_resume_point(request.headers.get("last-event-id"), task)
    with_token = holds_task_token(task, _http_task_token(request, caller))
    return HttpEventStream(service, task, with_token=with_token, after=after)


@router.post("/{task_id}/reports", openapi_extra=http_body_schema(ReportBody, many=True))
async def report(task_id: str, request: Request, service: Service, caller: Caller) -> JSONResponse:
    """Report the execution: one report or a list. The header ``Timely-Task-Token`` has the ``report_token`` of the
    first event. Repeats change nothing."""
    reports = await read_http_reports(request, service.settings.max_reports)
    task, news = await service.report(task_id, reports, caller, _http_task_token(request, caller))
    return JSONResponse(
        {"received": len(reports), "news": news, "state": task.state, "outcome": task.outcome}
    )


@router.post(
    "/{task_id}/replan",
    openapi_extra=http_body_schema(ReplanRequest),
    response_class=Response,
    responses=EVENTS,
)
async def replan(task_id: str, request: Request, service: Service, caller: Caller) -> Response:
    """End the rest of a plan and request another, after a failed skill or when the scene has changed. Its prompt
    has the old plan and its execution. The response is the new task's stream. It needs the
    task's token, as a report does."""
    change = await read_http_body(request, ReplanRequest)
    task = await service.replan(task_id, change, caller, _http_task_token(request, caller))
    return _http_task_stream(service, task)


@router.put("/{task_id}/urgency", openapi_extra=http_body_schema(UrgencyBody))
async def urgency(task_id: str, request: Request, service: Service, caller: Caller) -> JSONResponse:
    """An operator sets the urgency of a generation. The change is signed and kept in the event log. The id is
    that of a task, or the id in an answer of the OpenAI endpoint."""
    body = await read_http_body(request, UrgencyBody)
    result = await service.set_urgency(task_id, body.urgency, caller, body.operator, body.reason)
    return JSONResponse(result)


@router.delete("/{task_id}")
async def cancel(
    task_id: str, request: Request, service: Service, caller: Caller, dropped: Dropped = False
) -> JSONResponse:
    """Stop generating at once. It needs the task's token, unless an operator asks."""
    task = await service.cancel(task_id, caller, _http_task_token(request, caller), dropped=dropped)
    return JSONResponse({"task_id": task_id, "state": task.state, "outcome": task.outcome})


def _http_task_stream(service: TaskService, task: Task) -> HttpEventStream:
    """The response to a request for a plan; its first event has the task's token."""
    first = server_task_event_bytes(ACCEPTED_ID, "accepted", task.acceptance(with_token=True))
    return HttpEventStream(service, task, with_token=True, after=ACCEPTED_ID, first=first)


def _task_request_with_http_trace(plan: TaskRequest, header: str) -> TaskRequest:
    """The request with the trace context of the header, unless it has its own; other versions are ignored."""
    if plan.traceparent is None and re.fullmatch(TRACEPARENT_PATTERN, header):
        return plan.model_copy(update={"traceparent": header})
    return plan


def _http_task_token(request: Request, caller: Principal) -> str | None:
    """The task's token; on a server without principals also from ``Authorization``."""
    token = request.headers.get("timely-task-token")
    if token is not None or caller.named:
        return token
    header = request.headers.get("authorization")
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise InvalidInput("must be: Bearer TOKEN", where="Authorization")
    return token.strip()
