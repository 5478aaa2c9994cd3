"""``/v1/stop``: stop all robots, follow and acknowledge the stop, reset it."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from timely.core.errors import TimelyError
from timely.server.http.bodies import http_body_schema, read_http_body
from timely.server.http.body_limit import CLOSE, UNUSABLE_BODY
from timely.server.http.request_state import Caller, Service
from timely.server.http.sse import EVENTS, HttpStopEvents
from timely.server.tasks.request import (
    BRIDGE_PATTERN,
    LABEL_PATTERN,
    AcknowledgementBody,
    ProblemsBody,
    ResetBody,
    StopBody,
)

Agents = Annotated[
    list[Annotated[str, Field(min_length=1, pattern=LABEL_PATTERN)]],
    Query(max_length=1000, description="a robot of the bridge"),
]

Bridge = Annotated[
    str, Query(pattern=BRIDGE_PATTERN, description="the bridge's identity, the same after its restart")
]

Sequence = Annotated[int, Header(ge=0, lt=2**63, description="higher for each acknowledgement of a stream")]

router = APIRouter(prefix="/v1/stop", tags=["stop"])


@router.post("", openapi_extra=http_body_schema(StopBody, required=False))
async def stop(request: Request, service: Service, caller: Caller) -> JSONResponse:
    """Stop every robot. The response has each robot's state: ``halted``, ``at_rest``, or ``unknown`` without an
    acknowledgement in time. ``success`` needs at least one robot and none that is unknown. A stop needs no body, and
    one that cannot be used stops the robots all the same: ``ignored`` says why. ``stop_id`` names this stop, also where
    a later one is latched already."""
    body, ignored = StopBody(), request.scope.get(UNUSABLE_BODY)
    headers = CLOSE if ignored else None
    try:
        if await request.body():
            body = await read_http_body(request, StopBody)
    except (TimelyError, HTTPException) as error:
        ignored = error.detail if isinstance(error, HTTPException) else str(error)
    answer = await service.fleet_stop.stop(caller, body.reason, body.deadline_s)
    return JSONResponse({"ignored": ignored, **answer} if ignored else answer, headers=headers)


@router.get("")
async def show(service: Service, caller: Caller) -> JSONResponse:
    """The latched stop with every robot's state."""
    return JSONResponse(service.fleet_stop.view(caller))


@router.post("/reset", openapi_extra=http_body_schema(ResetBody, required=False))
async def reset(request: Request, service: Service, caller: Caller) -> JSONResponse:
    """Release the latched stop. With ``stop_id`` it is refused with 409 where a later stop is latched, so a reset that
    the network delays releases none. Bridges and drivers keep their own latches until they hear of the reset."""
    body = await read_http_body(request, ResetBody) if await request.body() else ResetBody()
    return JSONResponse(await service.fleet_stop.reset(caller, body.stop_id))


@router.delete("/robots")
async def remove(service: Service, caller: Caller, agent: Agents) -> JSONResponse:
    """Expect robots no longer that are out of service: of these names, all that no bridge follows the stop for.
    Any stop without an acknowledgement of them is no success before that. It needs the role operator."""
    return JSONResponse(await service.fleet_stop.remove_robots(caller, agent))


@router.get("/events", response_class=Response, responses=EVENTS)
async def events(service: Service, caller: Caller, agent: Agents, bridge: Bridge = "") -> Response:
    """Follow the stop as a bridge: ``stop``, ``reset`` or ``clear``, the present state first. The server expects
    an acknowledgement of every robot named here, also after the stream has ended. Each event has the
    ``stream_token``, which proves acknowledgements of this bridge's robots."""
    service.fleet_stop.admit_follower(caller, agent)
    return HttpStopEvents(service, caller.name, agent, bridge)


@router.post("/acknowledgements", openapi_extra=http_body_schema(AcknowledgementBody))
async def acknowledge(
    request: Request, service: Service, caller: Caller, timely_sequence: Sequence = 0
) -> JSONResponse:
    """Say what is known of one stopped robot. It needs the ``stream_token`` of an open stream with this robot,
    or a named operator. It counts for the robot of the stream's bridge alone. One that comes behind a later one
    of its stream is refused with 409."""
    body = await read_http_body(request, AcknowledgementBody)
    service.fleet_stop.acknowledge(caller, body, timely_sequence)
    return JSONResponse({"stop_id": body.stop_id, "agent": body.agent, "state": body.state})


@router.post("/problems", openapi_extra=http_body_schema(ProblemsBody))
async def problems(request: Request, service: Service, caller: Caller) -> JSONResponse:
    """Say what keeps robots of a bridge from their tasks, such as a lost link. It replaces what the bridge said before,
    ends with its stream, and is shown by ``GET /v1/status``. It needs the ``stream_token`` of an open stream with
    these robots."""
    body = await read_http_body(request, ProblemsBody)
    service.fleet_stop.set_problems(caller, body)
    return JSONResponse({"problems": body.problems})
