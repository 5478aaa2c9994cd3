"""Composes the server: one FastAPI application for one engine."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from fastapi import FastAPI

import timely
from timely.core.clock import AsyncClock
from timely.disciplines.predictors.request_annotator import PredictorFiles
from timely.engines.base import Engine
from timely.principals import PrincipalRegistry
from timely.server.access.sessions import PrincipalSessions
from timely.server.catalogue import ServerCatalogue
from timely.server.http import info_routes, session_routes, stop_routes, task_routes
from timely.server.http.access_control import HttpAccessControl
from timely.server.http.body_limit import HttpBodyLimit
from timely.server.http.head_requests import HeadLikeGet
from timely.server.http.openai import OpenAIEndpoints
from timely.server.http.openapi import http_openapi_document
from timely.server.http.problem_handlers import install_http_problem_handlers
from timely.server.settings import ServerSettings
from timely.server.tasks.service import TaskService


def create_app(
    engine: Engine,
    settings: ServerSettings | None = None,
    clock: AsyncClock | None = None,
    catalogue: ServerCatalogue | None = None,
    predictors: PredictorFiles | None = None,
    registry: PrincipalRegistry | None = None,
) -> FastAPI:
    """The application; ``app.state.service`` is its ``TaskService``.

    Args:
        engine, settings, clock, catalogue, predictors: as for ``TaskService``.
        registry: the principals; without one every client is ``local``, for servers on loopback.
    """
    return create_task_app(TaskService(engine, settings, clock, catalogue, predictors), registry)


def create_task_app(
    service: TaskService, registry: PrincipalRegistry | None = None, hosts: Iterable[str] = ()
) -> FastAPI:
    """The application of a service, which may have started.

    Args:
        hosts: names of this server that a client may use, beside its addresses and its host name.
    """
    settings = service.settings

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        app.state.names = {
            "skill_set": list(await service.catalogue.skill_set_names()),
            "robot": list(await service.catalogue.profile_names()),
            "name": [info["name"] for info in await service.engine.disciplines()],
        }
        try:
            yield
        finally:
            await service.stop()

    app = FastAPI(
        title="Timely",
        version=timely.__version__,
        description="Plans for robots from a shared language model, in segments, each in time.",
        lifespan=lifespan,
        # FastAPI's documentation pages load scripts from other sites; /openapi.json stays.
        docs_url=None,
        redoc_url=None,
        # Many programs take a redirect for a success, and one to /v1/stop would stop no robot.
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.names = {}
    app.openapi = lambda: http_openapi_document(app)  # type: ignore[method-assign]
    install_http_problem_handlers(app)
    sessions = app.state.sessions = PrincipalSessions(registry, service.clock)
    app.state.registry = registry
    app.state.authenticated = registry is not None
    for module in (task_routes, stop_routes, info_routes, session_routes):
        app.router.routes.extend(module.router.routes)  # include_router would make every route anew
    app.add_middleware(OpenAIEndpoints, service=service)
    app.add_middleware(HeadLikeGet)
    app.add_middleware(HttpBodyLimit, settings=settings)
    app.add_middleware(
        HttpAccessControl,
        registry=registry,
        recorder=service.recorder,
        sessions=sessions,
        usage=service.usage,
        hosts=hosts,
        max_header_bytes=settings.max_header_bytes,
    )
    return app
