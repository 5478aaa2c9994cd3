"""Bad input at every HTTP door: a typed problem, never a 5xx, and the server serves on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fleet import Fleet, body, fleet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from examples import examples


@pytest.fixture(scope="module")
def served() -> Iterator[Fleet]:
    with fleet(max_live_tasks=100_000, grace_s=0.5) as running:
        yield running


def post(served: Fleet, content: bytes, kind: str = "application/json") -> httpx.Response:
    return served.http.post("/v1/tasks", content=content, headers={"Content-Type": kind})


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json"
    data = answer.json()
    assert set(data) >= {"type", "title", "status", "code", "detail", "where"}
    assert data["status"] == answer.status_code
    assert data["type"] == f"urn:timely:problem:{data['code']}"
    assert data["detail"]
    # What the clients of OpenAI show: the message alone.
    message = f"{data['where']}: {data['detail']}" if data["where"] else data["detail"]
    error = {"message": message, "type": data["code"], "param": data["where"] or None}
    assert data["error"] == {**error, "code": data["status"]}
    return dict(data)


@pytest.mark.parametrize(
    ("change", "status", "code", "where"),
    [
        ({"skill_set": "nope"}, 422, "unknown_name", "skill_set"),
        ({"skill_set": "../../etc/passwd"}, 422, "invalid_input", "skill_set"),
        ({"robot": "nope"}, 422, "unknown_name", "robot"),
        ({"robot": "/etc/passwd"}, 422, "invalid_input", "robot"),
        ({"robot": "one-arm"}, 422, "invalid_input", "robot"),
        ({"tuf": {"alpha": 0.5}}, 422, "invalid_input", "tuf.alpha"),
        ({"tuf": {"beta": 0.0}}, 422, "invalid_input", "tuf.beta"),
        ({"tuf": {"ert_s": -1.0}}, 422, "invalid_input", "tuf.ert_s"),
        ({"tuf": {"ert_s": 1.0, "cutoff_s": 0.5}}, 422, "invalid_input", "tuf.cutoff_s"),
        ({"tuf": {"alpha": -1.0, "cutoff_s": 2.0}}, 422, "invalid_input", "tuf.cutoff_s"),
        ({"tuf": {"ert_s": "1"}}, 422, "invalid_input", "tuf.ert_s"),
        ({"tuf": {"ert_s": True}}, 422, "invalid_input", "tuf.ert_s"),
        ({"tuf": {"slope": 1.0}}, 422, "invalid_input", "tuf.slope"),
        ({"tuf": "whenever"}, 422, "invalid_input", "tuf"),
        ({"tuf": {"alpha": -1e300}}, 422, "invalid_input", "tuf.alpha"),
        ({"task": ""}, 422, "invalid_input", "task"),
        ({"task": "   "}, 422, "invalid_input", "task"),
        ({"task": 5}, 422, "invalid_input", "task"),
        ({"task": "x" * 8_001}, 413, "too_large", "task"),
        ({"scene": "x" * 32_001}, 413, "too_large", "scene"),
        ({"max_tokens": 100_000}, 413, "too_large", "max_tokens"),
        ({"max_tokens": 0}, 422, "invalid_input", "max_tokens"),
        ({"urgency": 5}, 422, "invalid_input", "urgency"),
        ({"urgency": 2.5}, 422, "invalid_input", "urgency"),
        ({"temperature": 3.0}, 422, "invalid_input", "temperature"),
        ({"deadline_s": 0}, 422, "invalid_input", "deadline_s"),
        ({"deadline_s": 5.0, "network_s": 5.0}, 422, "invalid_input", "deadline_s"),
        ({"network_s": -0.1}, 422, "invalid_input", "network_s"),
        ({"agent": "a\nb"}, 422, "invalid_input", "agent"),
        ({"agent": "drone\u200b-1"}, 422, "invalid_input", "agent"),
        ({"app": "\u202eevil"}, 422, "invalid_input", "app"),
        ({"id": "../x"}, 422, "invalid_input", "id"),
        ({"report_token": "short"}, 422, "invalid_input", "report_token"),
        ({"surprise": 1}, 422, "invalid_input", "surprise"),
        ({"tuf": {"\ud800": 1}}, 422, "invalid_input", "tuf.\ud800"),
    ],
)
def test_a_wrong_field_is_named(
    served: Fleet, change: dict[str, Any], status: int, code: str, where: str
) -> None:
    answer = post(served, json.dumps(body(**change)).encode())
    data = problem_of(answer)
    assert (answer.status_code, data["code"], data["where"]) == (status, code, where), data


@pytest.mark.parametrize("agent", ["drone\u200b-1", "a\nb", "x" * 129])
def test_a_wrong_name_of_a_robot_is_explained_without_a_pattern(served: Fleet, agent: str) -> None:
    data = problem_of(post(served, json.dumps(body(agent=agent)).encode()))
    assert data["detail"] == "must have at most 128 characters, all visible"


def test_unknown_names_list_the_known_ones(served: Fleet) -> None:
    data = problem_of(served.http.post("/v1/tasks", json=body(skill_set="nope")))
    assert "tiny-drone" in data["detail"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"task": }',
        b"\xff\xfe",
        b'{"task": NaN}',
        b'{"task": "a", "skill_set": "tiny-drone", "tuf": {"ert_s": NaN}}',
        b'{"task": "a", "skill_set": "tiny-drone", "tuf": {"ert_s": Infinity}}',
        b'{"task": "a", "task": "b", "skill_set": "tiny-drone"}',
        b"[" * 100_000,
        b'{"seed": ' + b"9" * 5_000 + b"}",
    ],
)
def test_what_is_no_json_is_400(served: Fleet, content: bytes) -> None:
    answer = post(served, content)
    data = problem_of(answer)
    assert (answer.status_code, data["code"], data["where"]) == (400, "invalid_input", "body")


@pytest.mark.parametrize("content", [b"[]", b"null", b'"task"', b"3"])
def test_json_that_is_no_object_is_400(served: Fleet, content: bytes) -> None:
    answer = post(served, content)
    assert (answer.status_code, problem_of(answer)["where"]) == (400, "body")


@pytest.mark.parametrize("content", [b'{"tuf": {"ert_s": 1e999}}', b'{"task": "\\ud800"}'])
def test_json_of_the_wrong_shape_is_422(served: Fleet, content: bytes) -> None:
    answer = post(served, content)
    assert (answer.status_code, problem_of(answer)["code"]) == (422, "invalid_input")


@pytest.mark.parametrize("field", ["scene", "history"])
def test_a_text_with_half_a_character_is_422(served: Fleet, field: str) -> None:
    """Else the task could never be shown."""
    answer = post(served, json.dumps({**body(), field: "a table \ud800"}).encode())
    assert (answer.status_code, problem_of(answer)["where"]) == (422, field)


def test_a_body_that_does_not_say_it_is_json_is_415(served: Fleet) -> None:
    answer = post(served, json.dumps(body()).encode(), "text/plain")
    assert (answer.status_code, problem_of(answer)["code"]) == (415, "unsupported_media_type")


def test_ten_megabytes_are_refused_and_the_server_serves_on(served: Fleet) -> None:
    answer = served.http.post("/v1/tasks", json=body("x" * 10_000_000))
    data = problem_of(answer)
    assert (answer.status_code, data["code"], data["where"]) == (413, "too_large", "body")
    assert served.http.get("/healthz").status_code == 200


def test_a_prompt_over_the_models_limit_is_413() -> None:
    with fleet(engine={"max_prompt_tokens": 40}) as served:
        answer = served.http.post("/v1/tasks", json=body("go up " * 200))
        data = problem_of(answer)
        assert (answer.status_code, data["code"], data["where"]) == (413, "too_large", "prompt")
        assert served.service.tasks.open_tasks() == []


@pytest.mark.parametrize(
    ("report", "status", "where"),
    [
        ({"segment": -1, "kind": "done"}, 422, "segment"),
        ({"segment": 0, "kind": "flown"}, 422, "kind"),
        ({"segment": 0, "kind": "progress"}, 422, "remaining_s"),
        ({"segment": 0, "kind": "value"}, 422, "value"),
        ({"segment": 0, "kind": "value", "value": "x" * 2_001}, 422, "value"),
        ({"segment": 0, "kind": "done", "elapsed_s": -1.0}, 422, "elapsed_s"),
        ({"segment": 0, "kind": "done", "height": 1.0}, 422, "height"),
        ([], 422, "reports"),
        ([{"segment": 0, "kind": "done"}, {"segment": True, "kind": "done"}], 422, "1.segment"),
        ([{"segment": 0, "kind": "done"}] * 257, 413, "reports"),
        ("done", 400, "body"),
    ],
)
def test_a_wrong_report_is_named(served: Fleet, report: Any, status: int, where: str) -> None:
    answer = served.http.post("/v1/tasks/whatever/reports", json=report)
    assert (answer.status_code, problem_of(answer)["where"]) == (status, where)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/tasks/none", 404, "unknown_name"),
        ("GET", "/v1/tasks/none/events", 404, "unknown_name"),
        ("DELETE", "/v1/tasks/none", 404, "unknown_name"),
        ("GET", "/v1/skill_sets/none", 404, "unknown_name"),
        ("GET", "/v1/skill_sets/..%2f..%2fetc%2fpasswd", 404, "not_found"),
        ("GET", "/v1/robot_profiles/none", 404, "unknown_name"),
        ("GET", "/nowhere", 404, "not_found"),
        ("PATCH", "/v1/tasks", 405, "method_not_allowed"),
        ("PATCH", "/v1/chat/completions", 405, "method_not_allowed"),
        ("PATCH", "/tokenize", 405, "method_not_allowed"),
        ("POST", "/v1/chat/completions", 501, "unsupported"),
        ("GET", "/v1/models", 501, "unsupported"),
    ],
)
def test_what_is_not_there_is_a_problem_too(
    served: Fleet, method: str, path: str, status: int, code: str
) -> None:
    answer = served.http.request(method, path, json={} if method in ("POST", "PATCH") else None)
    problem = problem_of(answer)
    assert (answer.status_code, problem["code"]) == (status, code)
    if code == "method_not_allowed":
        assert problem["detail"] == "PATCH is not one of: POST"
    assert problem["where"]


@pytest.mark.parametrize("value", [{"name": "nope"}, {"name": 3}, {}, {"name": "fcfs", "x": 1}])
def test_a_wrong_discipline_leaves_the_current_one(served: Fleet, value: Any) -> None:
    before = served.http.get("/v1/disciplines").json()["current"]
    assert served.http.put("/v1/disciplines", json=value).status_code == 422
    assert served.http.get("/v1/disciplines").json()["current"] == before


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    with fleet(body_timeout_s=0.05) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as slow:
            slow.sendall(
                b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
            )
            assert slow.recv(100).startswith(b"HTTP/1.1 408")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = (
    "task", "skill_set", "robot", "scene", "history", "tuf", "agent", "app", "urgency", "priority", "max_tokens",
    "temperature", "seed", "network_s", "deadline_s", "id", "report_token", "unknown",
)  # fmt: skip
LIKELY: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["short", "tiny-drone", "tiny", "one-arm", "urgent", "", 0, 1, -1, 0.5, 1e308, 2**70]),
    st.fixed_dictionaries(
        {},
        optional={name: st.floats() | st.integers() for name in ("ert_s", "alpha", "beta", "cutoff_s")},
    ),
    JSON_VALUES,
)


def check(answer: httpx.Response) -> None:
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
    if answer.status_code != 200:
        problem_of(answer)


@pytest.mark.process
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(FIELDS), LIKELY, max_size=4))
def test_no_body_of_any_fields_is_an_error_of_the_server(served: Fleet, changes: dict[str, Any]) -> None:
    content = json.dumps({**body(), **changes}).encode()
    headers = {"Content-Type": "application/json"}
    with served.http.stream("POST", "/v1/tasks", content=content, headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
        check(answer)
        task_id = answer.headers.get("timely-task-id")
    if task_id is not None:
        proof = {"Timely-Task-Token": served.service.tasks.get(task_id).token}
        assert served.http.delete(f"/v1/tasks/{task_id}", headers=proof).status_code == 200
        served.run_for(400.0)  # forgotten again, so that ids do not run into each other


@pytest.mark.process
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_bytes_are_an_error_of_the_server(served: Fleet, content: bytes) -> None:
    for path in ("/v1/tasks", "/v1/tasks/some/reports", "/v1/disciplines"):
        answer = served.http.post(path, content=content, headers={"Content-Type": "application/json"})
        assert 400 <= answer.status_code < 500
        problem_of(answer)


CHAT_FIELDS = (
    "messages", "prompt", "model", "priority", "max_tokens", "max_completion_tokens", "n", "best_of", "temperature",
    "stop", "stream", "tools", "tool_choice", "response_format", "vllm_xargs", "logit_bias", "timely", "nvext", "user",
)  # fmt: skip
CHAT_VALUES: st.SearchStrategy[Any] = st.one_of(
    LIKELY,
    st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": JSON_VALUES}), max_size=2),
    st.dictionaries(st.sampled_from(("tuf", "urgency", "priority", "app", "agent", "text", *FIELDS)), LIKELY),
)


async def _reads_the_body(scope: Scope, receive: Receive, send: Send) -> None:
    json.loads((await receive())["body"].decode())
    await JSONResponse({})(scope, receive, send)


@pytest.mark.process
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(("chat/completions", "completions")),
    fields=st.dictionaries(st.sampled_from(CHAT_FIELDS), CHAT_VALUES, max_size=5),
)
def test_no_chat_of_any_fields_is_an_error_of_the_server(
    served: Fleet, path: str, fields: dict[str, Any]
) -> None:
    served.engine.openai_app = _reads_the_body  # type: ignore[attr-defined]
    content = json.dumps({"messages": [], **fields}).encode()
    headers = {"Content-Type": "application/json"}
    check(served.http.post(f"/v1/{path}", content=content, headers=headers))


def test_after_all_that_it_serves(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body()) as response:
        assert response.status_code == 200
        served.run_for(20.0)
        assert '"outcome":"complete"' in response.read().decode()
