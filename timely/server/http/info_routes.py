"""Skill sets, robot profiles, disciplines, status, metrics and health."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from timely.core.errors import EngineFailed
from timely.server.catalogue import look_up_catalogue_entry
from timely.server.http.access_control import http_request_principal
from timely.server.http.bodies import body_schema, read_body
from timely.server.http.request_state import http_request_service
from timely.server.http.status import status_snapshot
from timely.server.problems import problem_details
from timely.server.tasks.request import DisciplineBody
from timely.server.tasks.service import TaskService
from timely.server.telemetry.metrics import CONTENT_TYPE

METRICS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Metrics",
        "content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}},
    }
}


router = APIRouter(tags=["server"])


@router.get("/v1/skill_sets")
async def skill_sets(request: Request) -> JSONResponse:
    """Names of the skill sets."""
    catalogue = http_request_service(request).catalogue
    return JSONResponse({"skill_sets": list(await catalogue.skill_set_names())})


@router.get("/v1/skill_sets/{name}")
async def skill_set(name: str, request: Request) -> JSONResponse:
    """One skill set: skills, arguments, units, the fixed parts of its prompt, its fingerprint."""
    catalogue = http_request_service(request).catalogue
    skill_set = await look_up_catalogue_entry(catalogue.skill_set(name), "path.name")
    return JSONResponse({**skill_set.model_dump(mode="json"), "fingerprint": skill_set.fingerprint})


@router.get("/v1/robot_profiles")
async def robot_profiles(request: Request) -> JSONResponse:
    """Names of the robot profiles."""
    catalogue = http_request_service(request).catalogue
    return JSONResponse({"robot_profiles": list(await catalogue.profile_names())})


@router.get("/v1/robot_profiles/{name}")
async def robot_profile(name: str, request: Request) -> JSONResponse:
    """One robot profile: limits and execution times."""
    catalogue = http_request_service(request).catalogue
    return JSONResponse(
        (await look_up_catalogue_entry(catalogue.profile(name), "path.name")).model_dump(mode="json")
    )


async def _discipline_list(service: TaskService) -> JSONResponse:
    infos = await service.engine.disciplines()
    stats, _ = await service.engine.last_stats()
    return JSONResponse({"current": stats.discipline, "disciplines": infos})


@router.get("/v1/disciplines")
async def disciplines(request: Request) -> JSONResponse:
    """The queue disciplines and the one in use."""
    return await _discipline_list(http_request_service(request))


@router.put("/v1/disciplines", openapi_extra=body_schema(DisciplineBody))
@router.post("/v1/disciplines", openapi_extra=body_schema(DisciplineBody))
async def switch(request: Request) -> JSONResponse:
    """Switch the discipline while serving; body ``{"name": ...}``. Nothing is lost or repeated."""
    service = http_request_service(request)
    body = await read_body(request, DisciplineBody)
    await service.set_discipline(body.name, http_request_principal(request))
    return await _discipline_list(service)


@router.get("/v1/status")
async def status(request: Request) -> JSONResponse:
    """What the live page shows, as data; of tasks, those that the principal may see."""
    return JSONResponse(await status_snapshot(http_request_service(request), http_request_principal(request)))


@router.get("/metrics", response_class=Response, responses=METRICS)
async def metrics(request: Request) -> Response:
    """For Prometheus, with the engine's own metrics. Without an engine, the server's own numbers."""
    service = http_request_service(request)
    http_request_principal(request).require("viewer", "operator", action="read the metrics")
    try:
        stats = await service.engine.stats()
    except EngineFailed:
        stats = None
    own = service.recorder.metrics
    own.unsaved.set(bool(service.log.problem))
    own.stopped.set(service.fleet_stop.latch.is_latched)
    own.duplicate_robots.set(len(service.fleet_stop.latch.duplicates()))
    page = await asyncio.to_thread(own.page, stats)
    if stats is not None:
        page += await asyncio.to_thread(service.engine.engine.metrics_page)
    return Response(page, media_type=CONTENT_TYPE)


@router.get("/livez")
async def live(request: Request) -> JSONResponse:
    """200 while the server answers at all. It starts a dead engine itself, so only another answer calls for a
    restart."""
    service = http_request_service(request)
    return JSONResponse({"status": "ok", "engine_deaths": service.engine.supervisor.deaths})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """200 while tasks are taken, else 503. ``draining``: the last plans finish. ``shutting_down``: the end is near.
    ``overloaded``: the engine is started again, or the disk refuses records of tasks."""
    service = http_request_service(request)
    if service.stopping:
        return problem_details("shutting_down", "the server is shutting down").response()
    service.check_takes_tasks()
    return JSONResponse({"status": "ok"})


@router.get("/health")
@router.get("/healthz")
async def health(request: Request) -> Response:
    """200 while tasks are taken and the engine answers, else 503. vLLM has it at ``/health``."""
    service = http_request_service(request)
    if service.stopping:
        return problem_details("shutting_down", "the server is shutting down").response()
    try:
        stats = await service.engine.stats()
    except EngineFailed as error:
        problem = problem_details("engine_failed", error.message, error.where)
        return problem.with_status(503).response()
    service.check_takes_tasks()
    return JSONResponse({"status": "ok", "engine": stats.engine, "uptime_s": round(service.uptime_s, 3)})
