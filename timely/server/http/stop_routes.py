"""``/v1/stop``: stop all robots, follow and acknowledge the stop, reset it."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from timely.core.errors import TimelyError
from timely.server.http.access_control import http_request_principal
from timely.server.http.bodies import body_schema, read_body
from timely.server.http.body_limit import CLOSE, UNUSABLE_BODY
from timely.server.http.request_state import http_request_service
from timely.server.http.sse import EVENTS, StopEvents
from timely.server.tasks.request import BRIDGE_PATTERN, LABEL_PATTERN, AcknowledgementBody, StopBody

Agents = Annotated[
    list[Annotated[str, Field(min_length=1, pattern=LABEL_PATTERN)]],
    Query(max_length=1000, description="a robot of the bridge"),
]

Bridge = Annotated[
    str, Query(pattern=BRIDGE_PATTERN, description="the bridge's identity, the same after its restart")
]

router = APIRouter(prefix="/v1/stop", tags=["stop"])


@router.post("", openapi_extra=body_schema(StopBody, required=False))
async def stop(request: Request) -> JSONResponse:
    """Stop every robot. The response has each robot's state: ``halted``, ``at_rest``, or ``unknown`` without an
    acknowledgement in time. ``success`` needs at least one robot and none that is unknown. A stop needs no body, and
    one that cannot be used stops the robots all the same: ``ignored`` says why."""
    stops = http_request_service(request).fleet_stop
    body, ignored = StopBody(), request.scope.get(UNUSABLE_BODY)
    headers = CLOSE if ignored else None
    try:
        if await request.body():
            body = await read_body(request, StopBody)
    except (TimelyError, HTTPException) as error:
        ignored = error.detail if isinstance(error, HTTPException) else str(error)
    answer = await stops.stop(http_request_principal(request), body.reason, body.deadline_s)
    return JSONResponse({"ignored": ignored, **answer} if ignored else answer, headers=headers)


@router.get("")
async def show(request: Request) -> JSONResponse:
    """The latched stop with every robot's state."""
    stops = http_request_service(request).fleet_stop
    return JSONResponse(stops.view(http_request_principal(request)))


@router.post("/reset")
async def reset(request: Request) -> JSONResponse:
    """Release the latched stop. Bridges and drivers keep their own latches until they hear of the reset."""
    stops = http_request_service(request).fleet_stop
    return JSONResponse(await stops.reset(http_request_principal(request)))


@router.delete("/robots")
async def remove(request: Request, agent: Agents) -> JSONResponse:
    """Expect robots no longer that are out of service: of these names, all that no bridge follows the stop for.
    Any stop without an acknowledgement of them is no success before that. It needs the role operator."""
    stops = http_request_service(request).fleet_stop
    return JSONResponse(await stops.remove_robots(http_request_principal(request), agent))


@router.get("/events", response_class=Response, responses=EVENTS)
async def events(request: Request, agent: Agents, bridge: Bridge = "") -> Response:
    """Follow the stop as a bridge: ``stop``, ``reset`` or ``clear``, the present state first. The server expects
    an acknowledgement of every robot named here, also after the stream has ended. The first event
    and each stop have the ``stream_token``, which proves acknowledgements of this bridge's robots."""
    service, principal = http_request_service(request), http_request_principal(request)
    service.fleet_stop.admit_follower(principal, agent)
    return StopEvents(service, principal.name, agent, bridge)


@router.post("/acknowledgements", openapi_extra=body_schema(AcknowledgementBody))
async def acknowledge(request: Request) -> JSONResponse:
    """Say what is known of one stopped robot. It needs the ``stream_token`` of an open stream with this robot,
    or a named operator. It counts for the robot of the stream's bridge alone."""
    stops = http_request_service(request).fleet_stop
    body = await read_body(request, AcknowledgementBody)
    stops.acknowledge(http_request_principal(request), body)
    return JSONResponse({"stop_id": body.stop_id, "agent": body.agent, "state": body.state})
