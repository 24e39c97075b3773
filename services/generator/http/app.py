"""The FastAPI application of a service."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from services.generator import problems
from services.generator.http import openapi, operator_routes, page_routes, routes, task_routes, view_routes
from services.generator.http.access import Access, asks_for_keys
from services.generator.http.body_limit import BodyLimit
from services.generator.http.intake import Intake
from services.generator.service import Service


def create_app(service: Service) -> FastAPI:
    """HTTP is up as soon as the application starts; engine and Redis are waited for in the background."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    needs_keys = asks_for_keys(service.settings)
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, generate_unique_id_function=openapi.operation_id)
    app.state.service = service
    app.state.intake = Intake(service.settings, service.writers)
    app.include_router(routes.router)
    app.include_router(view_routes.router)
    app.include_router(task_routes.router)
    app.include_router(operator_routes.router)
    app.include_router(page_routes.router)
    app.add_middleware(Access, channels=service.channels, asks_for_keys=needs_keys)
    app.add_middleware(
        BodyLimit,
        max_header_bytes=service.settings.max_header_bytes,
        max_json_bytes=service.settings.max_json_bytes,
        max_body_bytes=service.settings.max_body_bytes,
        timeout_s=service.settings.body_timeout_s,
    )
    problems.install(app)
    openapi.install(app, needs_keys)
    return app
