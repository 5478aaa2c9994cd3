"""The OpenAPI document with every problem that a request may get."""

import copy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from timely.server.problems import MEDIA_TYPE

ALWAYS = {
    400: "The body is no JSON, or the request is no HTTP",
    401: "No principal is known by this token",
    403: "Not allowed",
    404: "There is nothing of that name",
    422: "The request cannot be used",
    429: "The principal is over a limit of its own",
    431: "The header is over its limit",
    502: "The engine failed",
    503: "No capacity at the moment, or shutting down",
}
"""Statuses of every operation; 401 only where the server has principals."""

WITH_BODY = {
    408: "The body took too long",
    409: "Contradicts the current state",
    413: "Over a size limit",
    415: "The body is not declared as JSON",
}
"""Further statuses of operations that change something."""

TASK_TOKEN = {
    "name": "Timely-Task-Token",
    "in": "header",
    "description": "the report_token of the task's first event; an operator needs none",
    "schema": {"type": "string"},
}
OWNED_PATHS = {
    "/v1/tasks/{task_id}/events": "get",
    "/v1/tasks/{task_id}/reports": "post",
    "/v1/tasks/{task_id}/replan": "post",
    "/v1/tasks/{task_id}": "delete",
}
"""Path and method of the operations that need the token of the task, or keep a place for its holder."""

NEW_TASK = ("/v1/tasks", "/v1/tasks/{task_id}/replan")
"""Paths whose response begins a task."""

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "where"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "stable; see docs/http.md"},
        "detail": {"type": "string"},
        "where": {"type": "string", "description": "the field"},
        "eta_s": {"type": "number", "description": "when such a request would be served, seconds from now"},
        "error": {
            "type": "object",
            "description": "the same for clients of OpenAI: message, type, param and code",
            "required": ["message", "type", "param", "code"],
        },
    },
}


def http_openapi_document(app: FastAPI) -> dict[str, Any]:
    """The document of an application; written once."""
    if app.openapi_schema is None:
        # A copy: every application has the same routes, with names and limits of its own.
        schema = copy.deepcopy(
            get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        )
        components = schema.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        schemas["Problem"] = PROBLEM
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        components["securitySchemes"] = {"principal": {"type": "http", "scheme": "bearer"}}
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        for operations in schema["paths"].values():
            for method, operation in operations.items():
                statuses = ALWAYS if method == "get" else ALWAYS | WITH_BODY
                for status, description in sorted(statuses.items()):
                    operation["responses"][str(status)] = {"description": description, "content": content}
        _describe_openapi_tasks(schema["paths"], app.state.service.settings.max_reports)
        for field, names in app.state.names.items():
            _list_openapi_names(schema["paths"], field, names)
        app.openapi_schema = schema
    return app.openapi_schema


def _describe_openapi_tasks(paths: dict[str, Any], max_reports: int) -> None:
    """Add the header of a task's owner, links from a new task to what may be done with it, and the limit of reports."""
    content = paths["/v1/tasks/{task_id}/reports"]["post"]["requestBody"]["content"]
    (report_list,) = (
        form for form in content["application/json"]["schema"]["anyOf"] if form.get("type") == "array"
    )
    report_list["maxItems"] = max_reports
    for path, method in OWNED_PATHS.items():
        paths[path][method]["parameters"].append(TASK_TOKEN)
    task_id = {"task_id": "$response.header.Timely-Task-Id"}
    token = {"Timely-Task-Token": "$request.body#/report_token"}
    links = {
        operation["operationId"]: {
            "operationId": operation["operationId"],
            "parameters": task_id | token if TASK_TOKEN in operation["parameters"] else task_id,
        }
        for path, operations in paths.items()
        if path.startswith("/v1/tasks/{task_id}")
        for operation in operations.values()
    }
    for path in NEW_TASK:
        response = paths[path]["post"]["responses"]["200"]
        response["headers"] = {"Timely-Task-Id": {"schema": {"type": "string"}, "required": True}}
        response["links"] = links


def _list_openapi_names(node: Any, field: str, names: list[str]) -> None:
    """Give every body field of that name the names that exist."""
    if isinstance(node, dict):
        value = node.get("properties", {}).get(field)
        if value is not None:
            for form in value.get("anyOf", [value]):
                if form.get("type") == "string":
                    form["enum"] = names
        for child in node.values():
            _list_openapi_names(child, field, names)
    elif isinstance(node, list):
        for child in node:
            _list_openapi_names(child, field, names)
