"""Skill sets, robot profiles, disciplines, status, metrics and health."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from timely.core.errors import EngineFailed
from timely.server.catalogue import look_up_catalogue_entry
from timely.server.http.bodies import http_body_schema, read_http_body
from timely.server.http.request_state import Caller, Service
from timely.server.http.status import http_status_snapshot
from timely.server.problems import problem_details
from timely.server.tasks.request import DisciplineBody
from timely.server.telemetry.metrics import CONTENT_TYPE

METRICS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Metrics",
        "content": {CONTENT_TYPE.partition(";")[0]: {"schema": {"type": "string"}}},
    }
}


router = APIRouter(tags=["server"])


@router.get("/v1/skill_sets")
async def skill_sets(service: Service) -> JSONResponse:
    """Names of the skill sets."""
    return JSONResponse({"skill_sets": list(await service.catalogue.skill_set_names())})


@router.get("/v1/skill_sets/{name}")
async def skill_set(name: str, service: Service) -> JSONResponse:
    """One skill set: skills, arguments, units, the fixed parts of its prompt, its fingerprint."""
    skill_set = await look_up_catalogue_entry(service.catalogue.skill_set(name), "path.name")
    return JSONResponse({**skill_set.model_dump(mode="json"), "fingerprint": skill_set.fingerprint})


@router.get("/v1/robot_profiles")
async def robot_profiles(service: Service) -> JSONResponse:
    """Names of the robot profiles."""
    return JSONResponse({"robot_profiles": list(await service.catalogue.profile_names())})


@router.get("/v1/robot_profiles/{name}")
async def robot_profile(name: str, service: Service) -> JSONResponse:
    """One robot profile: limits and execution times."""
    profile = await look_up_catalogue_entry(service.catalogue.profile(name), "path.name")
    return JSONResponse(profile.model_dump(mode="json"))


@router.get("/v1/disciplines")
async def disciplines(service: Service) -> JSONResponse:
    """The queue disciplines and the one in use."""
    infos = await service.engine.disciplines()
    stats, _ = await service.engine.last_stats()
    return JSONResponse({"current": stats.discipline, "disciplines": infos})


@router.put("/v1/disciplines", openapi_extra=http_body_schema(DisciplineBody))
@router.post("/v1/disciplines", openapi_extra=http_body_schema(DisciplineBody))
async def switch(request: Request, service: Service, caller: Caller) -> JSONResponse:
    """Switch the discipline while serving; body ``{"name": ...}``. Nothing is lost or repeated."""
    body = await read_http_body(request, DisciplineBody)
    await service.set_discipline(body.name, caller)
    return await disciplines(service)


@router.get("/v1/status")
async def status(service: Service, caller: Caller) -> JSONResponse:
    """What the live page shows, as data; of tasks, those that the principal may see."""
    return JSONResponse(await http_status_snapshot(service, caller))


@router.get("/metrics", response_class=Response, responses=METRICS)
async def metrics(service: Service, caller: Caller) -> Response:
    """For Prometheus, with the engine's own metrics. Without an engine, the server's own numbers."""
    caller.require("viewer", "operator", action="read the metrics")
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
async def live(service: Service) -> JSONResponse:
    """200 while the server answers at all. It starts a dead engine itself, so only another answer calls for a
    restart."""
    return JSONResponse({"status": "ok", "engine_deaths": service.engine.supervisor.deaths})


@router.get("/readyz")
async def ready(service: Service) -> Response:
    """200 while tasks are taken, else 503. ``draining``: the last plans finish. ``shutting_down``: the end is near.
    ``overloaded``: the engine is started again, or the disk refuses records of tasks."""
    if service.stopping:
        return problem_details("shutting_down", "the server is shutting down").response()
    service.check_takes_tasks()
    return JSONResponse({"status": "ok"})


@router.get("/health")
@router.get("/healthz")
async def health(service: Service) -> Response:
    """200 while tasks are taken and the engine answers, else 503. vLLM has it at ``/health``. It waits for no engine
    that hangs: ``engine_silent_s`` is the time since the latest question that the engine answered."""
    if service.stopping:
        return problem_details("shutting_down", "the server is shutting down").response()
    try:
        stats = await service.engine.stats()
    except EngineFailed as error:
        problem = problem_details("engine_failed", error.message, error.where)
        return problem.with_status(503).response()
    service.check_takes_tasks()
    silent_s, uptime_s = round(service.engine.silent_s, 3), round(service.uptime_s, 3)
    return JSONResponse(
        {"status": "ok", "engine": stats.engine, "engine_silent_s": silent_s, "uptime_s": uptime_s}
    )
