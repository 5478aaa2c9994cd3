"""Principals, roles and tokens: what each may do, and what a stranger may not."""

from __future__ import annotations

import http.client
import http.cookies
import json
import math
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from fleet import TOKEN, WAIT_S, Fleet, Reader, body, fleet
from guarded import HIGH_CLAIMS, TOKENS, Guarded, write_principals
from manual_clock import ManualClock
from starlette.responses import JSONResponse

from lrtrace.yaml_file import MAX_BYTES
from timely.client import TimelyClient
from timely.core.errors import InvalidInput, NotAllowed
from timely.principals import (
    LOCAL_PAGE,
    ROLES,
    PrincipalRegistry,
    new_principal_entry,
    principal_token_digest,
)
from timely.server.access import sessions
from timely.server.http.access_control import OPEN_PATHS
from timely.server.listener import bind_server_socket
from timely.server.settings import ServerSettings
from timely.server.tasks import recorder

PROOF = {"Timely-Task-Token": TOKEN}


def submitted(guarded: Guarded, name: str, **fields: Any) -> str:
    """The id of a task of that principal, with its first segment released."""
    with guarded.as_(name) as http, http.stream("POST", "/v1/tasks", json=body("long", **fields)) as answer:
        task_id = str(Reader(answer).next()[2]["task_id"])
    guarded.fleet.run_for(0.3)
    return task_id


# ------------------------------------------------------------------ beyond loopback


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/status"), ("GET", "/metrics"), ("GET", "/v1/skill_sets"), ("GET", "/openapi.json"),
        ("POST", "/v1/tasks"), ("GET", "/v1/tasks/x"), ("DELETE", "/v1/tasks/x"), ("PUT", "/v1/disciplines"),
        ("POST", "/v1/stop"), ("POST", "/v1/stop/reset"), ("GET", "/v1/stop/events?agent=drone-1"),
        ("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("PUT", "/v1/tasks/x/urgency"),
    ],
)  # fmt: skip
def test_a_stranger_reads_health_and_nothing_else(common_guarded: Guarded, method: str, path: str) -> None:
    assert httpx.get(common_guarded.fleet.url + "/healthz").status_code == 200
    for headers in ({}, {"Authorization": f"Bearer {TOKENS['stranger']}"}, {"Cookie": "timely_session=x"}):
        answer = httpx.request(method, common_guarded.fleet.url + path, headers=headers, json={})
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_every_endpoint_but_health_needs_a_principal(common_guarded: Guarded) -> None:
    with common_guarded.as_("ops") as http:
        endpoints = http.get("/openapi.json").json()["paths"]
    with httpx.Client(base_url=common_guarded.fleet.url) as stranger:
        answers = {
            (method, path): stranger.request(method, re.sub(r"\{\w+\}", "x", path)).status_code
            for path, methods in endpoints.items()
            for method in methods
        }
    closed = {key: status for key, status in answers.items() if key[1] not in OPEN_PATHS}
    assert len(closed) > 15
    assert set(closed.values()) == {401}


def test_a_program_without_a_token_reads_where_it_belongs(
    common_guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIMELY_TOKEN", raising=False)
    for token in (None, "of-nobody"):
        with TimelyClient(common_guarded.fleet.url, token=token) as timely:
            with pytest.raises(NotAllowed, match="TIMELY_TOKEN"):
                timely.stats()
            with pytest.raises(NotAllowed, match="TIMELY_TOKEN"):
                timely.submit("short", skill_set="tiny-drone")


def test_an_address_beyond_loopback_needs_principals_or_insecure() -> None:
    with pytest.raises(InvalidInput, match="insecure"):
        bind_server_socket("0.0.0.0", 0, authenticated=False)
    bind_server_socket("0.0.0.0", 0, authenticated=True).close()
    bind_server_socket("0.0.0.0", 0, authenticated=False, insecure=True).close()
    bind_server_socket("127.0.0.1", 0, authenticated=False).close()


# ------------------------------------------------------------------ roles


@pytest.mark.parametrize(
    ("name", "agent", "status"),
    [
        ("drones", "drone-7", 200),
        ("drones", "arm-1", 403),
        ("drones", "", 403),
        ("arms", "arm-1", 200),
        ("arms", "crane-2", 200),
        ("planner", "drone-1", 200),
        ("planner", "drone-2", 403),
        ("planner", "", 200),
        ("ops", "arm-1", 200),
        ("watcher", "drone-1", 403),
        ("watcher", "", 403),
    ],
)
def test_a_principal_commands_the_robots_on_its_list(
    guarded: Guarded, name: str, agent: str, status: int
) -> None:
    request = body(agent=agent)
    with guarded.as_(name) as http, http.stream("POST", "/v1/tasks", json=request) as answer:
        assert answer.status_code == status
        if status == 403:
            answer.read()
            assert answer.json()["code"] == "not_allowed"


@pytest.mark.parametrize(
    ("name", "token", "status"),
    [("drones", True, 200), ("drones", False, 403), ("arms", True, 404), ("planner", True, 404),
     ("watcher", True, 403), ("ops", False, 200)],
)  # fmt: skip
def test_a_task_is_steered_with_its_token_or_by_an_operator(
    guarded: Guarded, name: str, token: bool, status: int
) -> None:
    task_id = submitted(guarded, "drones", agent="drone-2")
    with guarded.as_(name, **(PROOF if token else {})) as http:
        report = http.post(f"/v1/tasks/{task_id}/reports", json={"segment": 0, "kind": "started"})
        assert report.status_code == status
        if status != 200:
            assert http.post(f"/v1/tasks/{task_id}/replan", json={}).status_code == status
        assert http.delete(f"/v1/tasks/{task_id}").status_code == status


@pytest.mark.parametrize(
    ("agent", "name", "status"),
    [("drone-2", "drones", 200), ("drone-2", "arms", 404), ("", "drones", 404), ("drone-1", "planner", 404),
     ("drone-2", "watcher", 200)],
)  # fmt: skip
def test_a_robot_sees_its_tasks_whoever_requested_them(
    guarded: Guarded, agent: str, name: str, status: int
) -> None:
    task_id = submitted(guarded, "ops", agent=agent)
    with guarded.as_(name) as http:
        assert http.get(f"/v1/tasks/{task_id}").status_code == status


@pytest.mark.parametrize(("agent", "status"), [("drone-2", 403), ("", 200), ("arm-2", 200)])
def test_an_operator_of_some_robots_steers_no_task_of_others(
    guarded: Guarded, agent: str, status: int
) -> None:
    task_id = submitted(guarded, "ops", agent=agent)
    with guarded.as_("arm-ops") as http:
        word = {"urgency": 0, "operator": "jane"}
        assert http.put(f"/v1/tasks/{task_id}/urgency", json=word).status_code == status
        report = http.post(f"/v1/tasks/{task_id}/reports", json={"segment": 0, "kind": "started"})
        assert report.status_code == status
        if status != 200:
            assert http.post(f"/v1/tasks/{task_id}/replan", json={}).status_code == status
        assert http.delete(f"/v1/tasks/{task_id}").status_code == status


@pytest.mark.parametrize("name", ["drones", "planner", "watcher"])
def test_only_an_operator_sets_urgency_and_discipline_and_resets(guarded: Guarded, name: str) -> None:
    task_id = submitted(guarded, "drones", agent="drone-2")
    word = {"urgency": 0, "operator": "jane"}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("PUT", f"/v1/tasks/{task_id}/urgency", word),
        ("PUT", "/v1/disciplines", {"name": "edf"}),
        ("POST", "/v1/stop/reset", {}),
    ]
    with guarded.as_(name) as http:
        for method, path, content in requests:
            assert http.request(method, path, json=content).status_code == 403
    with guarded.as_("ops") as http:
        for method, path, content in requests[:2]:
            assert http.request(method, path, json=content).status_code == 200


def test_the_status_shows_a_task_to_those_who_may_see_it(guarded: Guarded) -> None:
    task_id = submitted(guarded, "drones", agent="drone-2")
    seen = {}
    for name in ("drones", "arms", "planner", "ops", "arm-ops", "watcher"):
        with guarded.as_(name) as http:
            status = http.get("/v1/status").json()
            robots = [robot["task_id"] for robot in status["robots"]]
            assert bool(robots) == bool(status["timeline"])
            seen[name] = (robots == [task_id], http.get(f"/v1/tasks/{task_id}").status_code)
    assert seen == {
        "drones": (True, 200), "arms": (False, 404), "planner": (False, 404), "ops": (True, 200),
        "arm-ops": (True, 200), "watcher": (True, 200),
    }  # fmt: skip


def test_an_answer_does_not_say_whether_a_foreign_task_exists(guarded: Guarded) -> None:
    task_id = submitted(guarded, "drones", agent="drone-2")
    with guarded.as_("arms") as http:
        answers = [http.get(f"/v1/tasks/{name}").text.replace(name, "NAME") for name in (task_id, "task-x")]
    assert answers[0] == answers[1]


def test_the_status_shows_the_robots_of_a_stop_by_role(guarded: Guarded) -> None:
    with guarded.as_("ops") as ops:
        submitted(guarded, "drones", agent="drone-2")
        ops.post("/v1/stop", json={"deadline_s": 0.0, "reason": "smoke"})
    seen = {}
    for name in ("drones", "planner", "watcher", "ops"):
        with guarded.as_(name) as http:
            stop = http.get("/v1/status").json()["stop"]
            assert stop["stopped"]
            seen[name] = (bool(stop["robots"]), stop["reason"], http.get("/v1/stop").status_code)
    shown, hidden = (True, "smoke", 200), (False, "", 403)
    assert seen == {"drones": shown, "planner": hidden, "watcher": shown, "ops": shown}


def test_the_audit_log_has_sessions_chats_and_strangers(guarded: Guarded) -> None:
    url = guarded.fleet.url
    guarded.fleet.engine.openai_app = JSONResponse({})  # type: ignore[attr-defined]
    with guarded.as_("watcher") as http:
        http.post("/v1/chat/completions", json={"messages": []})
    with guarded.as_("planner") as http:
        http.post("/v1/chat/completions", json={"messages": []})
        http.post("/v1/chat/completions", json={"messages": [], "timely": {"agent": "drone-2"}})
        with guarded.as_("ops") as ops:
            ops.post("/v1/stop", json={"deadline_s": 0.0})
        http.post("/v1/chat/completions", json={"messages": []})
    httpx.post(url + "/v1/session", json={"token": TOKENS["ops"]})
    httpx.post(url + "/v1/session", json={"token": TOKENS["stranger"]})
    httpx.get(url + "/v1/status")
    guarded.fleet.server.stop()
    lines = [json.loads(line) for line in (guarded.path.parent / "audit.jsonl").read_text().splitlines()]
    acts = [
        (line["principal"], line["action"], line["allowed"]) for line in lines if line["event"] == "audit"
    ]
    assert acts == [
        ("watcher", "chat", False), ("planner", "chat", True), ("planner", "chat", False), ("ops", "stop", True),
        ("planner", "chat", False), ("ops", "session", True), ("anonymous", "session", False),
        ("anonymous", "GET", False),
    ]  # fmt: skip


def test_a_flood_of_strangers_fills_no_audit_log(tmp_path: Path) -> None:
    writer = recorder.TaskRecorder(ManualClock(0.0))
    writer.open(ServerSettings(audit_log=tmp_path / "audit.jsonl"))
    for _ in range(2 * recorder.ANONYMOUS_BURST):
        writer.audit_anonymous("GET", "/v1/status")
    writer.close()
    assert (tmp_path / "audit.jsonl").read_text().count("anonymous") == recorder.ANONYMOUS_BURST


def test_claims_are_reduced_to_the_limits_of_the_role(guarded: Guarded) -> None:
    limits = {"drones": (2.0, -6.67, 0, 0.0, "drones/a"), "planner": (1.0, -2.0, 1, 0.0, "planner/a"),
              "ops": (50.0, -1000.0, 0, -5.0, "ops/a")}  # fmt: skip
    for name, (beta, alpha, urgency, priority, app) in limits.items():
        task_id = submitted(guarded, name, agent="drone-1", **HIGH_CLAIMS)
        change = {"tuf": HIGH_CLAIMS["tuf"], "urgency": 0}
        with (
            guarded.as_(name, **PROOF) as http,
            http.stream("POST", f"/v1/tasks/{task_id}/replan", json=change) as answer,
        ):
            replanned_id = Reader(answer).next()[2]["task_id"]
        for one in (task_id, replanned_id):
            request = guarded.fleet.service.tasks.get(one).request
            assert (request.tuf.beta, request.tuf.alpha) == (beta, alpha)
            assert (request.urgency, request.priority, request.app) == (urgency, priority, app)


@pytest.mark.parametrize("first", ["viewer", "program"])
def test_of_several_roles_the_one_with_the_widest_limits_counts(guarded: Guarded, first: str) -> None:
    write_principals(
        guarded.path, [{"name": "planner", "roles": [first, "viewer", "program"], "agents": ["*"]}]
    )
    guarded.fleet.run_for(1.5)
    request = guarded.fleet.service.tasks.get(submitted(guarded, "planner", **HIGH_CLAIMS)).request
    assert (request.tuf.beta, request.tuf.alpha, request.urgency) == (1.0, -2.0, 1)


def test_tokens_are_rotated_without_a_restart(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    with guarded.as_("ops") as http:
        assert http.get("/v1/status").status_code == 200
        write_principals(guarded.path, [{"name": "watcher", "roles": ["viewer"]}])
        guarded.fleet.run_for(1.5)
        assert http.get("/v1/status").status_code == 401
        with guarded.as_("watcher") as other:
            guarded.path.write_text("- name: [{")
            for _ in range(5):
                guarded.fleet.run_for(1.5)
                assert other.get("/v1/status").status_code == 200, "a broken file changes nothing"
    assert len([message for message in caplog.messages if "stay as they were" in message]) == 1


def test_a_stop_reaches_a_bridge_whose_token_was_withdrawn_and_its_robot_is_unknown(guarded: Guarded) -> None:
    """Its robots may move. What it says counts no more."""
    with guarded.as_("drones") as bridge, guarded.as_("ops") as ops:
        with bridge.stream("GET", "/v1/stop/events", params={"agent": "drone-1"}) as stream:
            reader = Reader(stream)
            reader.next()
            write_principals(guarded.path, [{"name": "ops", "roles": ["operator"]}])
            guarded.fleet.run_for(1.5)
            answer = ops.post("/v1/stop", json={"deadline_s": 0}).json()
            _, name, data = reader.next()
            assert (name, data["stop_id"]) == ("stop", answer["stop_id"])
            said = {name: data[name] for name in ("stop_id", "stream_token")}
            said |= {"agent": "drone-1", "state": "at_rest"}
            assert bridge.post("/v1/stop/acknowledgements", json=said).status_code == 401
        assert ops.get("/v1/stop").json()["robots"]["drone-1"]["state"] == "unknown"


@pytest.mark.parametrize("text", ["- name: [{", "[" * 5000, "&a [*a]", "\x00", ""])
def test_principals_that_cannot_be_read_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "principals.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"principals\.yaml") as caught:
        PrincipalRegistry(path, None, ManualClock(0.0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("claims.min_priority", math.nan),
        ("claims.max_beta", math.inf),
        ("limits.requests_per_s", math.inf),
        ("limits.requests_per_s", 1e-320),
        ("limits.plan_s", math.inf),
    ],
)
def test_a_limit_that_limits_nothing_is_named(tmp_path: Path, field: str, value: float) -> None:
    """No limit is written by leaving it out; compared with no number, a claim would pass."""
    path, (part, name) = tmp_path / "principals.yaml", field.split(".")
    write_principals(path, [{"name": "drones", "roles": ["robot"], part: {name: value}}])
    with pytest.raises(InvalidInput, match=rf"principals\.yaml:\d+, drones\.{part}\.{name}: "):
        PrincipalRegistry(path, None, ManualClock(0.0))


def test_a_large_file_of_principals_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "principals.yaml"
    write_principals(path, [{"name": "ops", "roles": ["operator"]}])
    path.write_text(path.read_text() + "#" * MAX_BYTES)
    with pytest.raises(InvalidInput, match=f"too large: .* limit {MAX_BYTES}"):
        PrincipalRegistry(path, None, ManualClock(0.0))


@pytest.mark.parametrize(
    ("names", "reason"),
    [(("ops", "jane"), "jane shares a token with another entry"), (("ops", "ops"), "ops has two entries")],
)
def test_entries_that_share_a_token_or_a_name_are_refused(
    tmp_path: Path, names: tuple[str, str], reason: str
) -> None:
    """A token of the second entry would have other limits under the same name."""
    path = tmp_path / "principals.yaml"
    digest = principal_token_digest(TOKENS["ops"])
    entries = [{"name": name, "roles": ["operator"], "token_sha256": [digest]} for name in names]
    path.write_text(yaml.safe_dump(entries))
    with pytest.raises(InvalidInput, match=reason):
        PrincipalRegistry(path, None, ManualClock(0.0))


def test_a_wrong_role_is_named_with_its_line_and_principal(tmp_path: Path) -> None:
    path = tmp_path / "principals.yaml"
    path.write_text(f"- name: d-2\n  token_sha256: [{'a' * 64}]\n  roles:\n    - robot\n    - wizard\n")
    with pytest.raises(InvalidInput) as caught:
        PrincipalRegistry(path, None, ManualClock(0.0))
    assert str(caught.value) == (
        f"{path}:5, d-2.roles.1: Input should be 'robot', 'program', 'operator' or 'viewer', not 'wizard'"
    )


def test_the_audit_log_names_the_principal(guarded: Guarded) -> None:
    task_id = submitted(guarded, "drones", agent="drone-2")
    with guarded.as_("arms", **PROOF) as http:
        http.delete(f"/v1/tasks/{task_id}")
        http.post(f"/v1/tasks/{task_id}/reports", json={"segment": 0, "kind": "started"})
        http.get("/v1/stop/events", params={"agent": "drone-2"})
    with guarded.as_("ops") as http:
        http.delete(f"/v1/tasks/{task_id}")
        http.delete(f"/v1/tasks/{task_id}", params={"dropped": "true"})
        http.put("/v1/disciplines", json={"name": "edf"})
    guarded.fleet.server.stop()
    lines = [json.loads(line) for line in (guarded.path.parent / "audit.jsonl").read_text().splitlines()]
    acts = [
        (line["principal"], line["action"], line["allowed"]) for line in lines if line["event"] == "audit"
    ]
    assert acts == [
        ("drones", "submit", True), ("arms", "cancel", False), ("arms", "report", False),
        ("arms", "follow the stop", False), ("ops", "cancel", True), ("ops", "cancel", True),
        ("ops", "discipline", True),
    ]  # fmt: skip
    assert [line["detail"] for line in lines if line.get("action") == "cancel" and line["allowed"]] == [
        "",
        "dropped",
    ]


def test_a_token_is_kept_as_its_digest_only() -> None:
    token, entry = new_principal_entry("hall-1", ["robot"], ["drone-*"])
    (written,) = yaml.safe_load(entry)
    assert token not in entry
    assert written == {
        "name": "hall-1", "roles": ["robot"], "token_sha256": [principal_token_digest(token)], "agents": ["drone-*"],
    }  # fmt: skip
    with pytest.raises(InvalidInput):
        new_principal_entry("hall-1", ["king"])
    with pytest.raises(InvalidInput, match="characters"):
        PrincipalRegistry(None, "short", None)  # type: ignore[arg-type]


def test_the_client_carries_both_tokens(guarded: Guarded) -> None:
    url = guarded.fleet.url
    with TimelyClient(url, agent="drone-1", token=TOKENS["drones"]) as timely:
        plan = timely.submit("long", skill_set="tiny-drone")
        timely.cancel(plan.task_id)
        assert timely.task(plan.task_id)["outcome"] == "cancelled"
        plan.close()
        with TimelyClient(url, agent="drone-1", token=TOKENS["drones"]) as other, pytest.raises(NotAllowed):
            other.cancel(plan.task_id)


# ------------------------------------------------------------------ on loopback


def test_a_stranger_to_a_task_cannot_steer_it_on_loopback(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("long")) as answer:
        task_id = Reader(answer).next()[2]["task_id"]
        served.run_for(0.3)
        with httpx.Client(base_url=served.url) as http:
            report = {"segment": 0, "kind": "failed", "reason": "a lie", "agent": "drone-1"}
            assert http.post(f"/v1/tasks/{task_id}/reports", json=report).status_code == 403
            assert http.post(f"/v1/tasks/{task_id}/replan", json={"agent": "drone-1"}).status_code == 403
            assert http.delete(f"/v1/tasks/{task_id}").status_code == 403
            assert (
                http.delete(f"/v1/tasks/{task_id}", headers={"Timely-Task-Token": "x" * 20}).status_code
                == 403
            )
            assert http.get(f"/v1/tasks/{task_id}").json()["outcome"] is None
            # The live page acts as the operator of this machine.
            assert "HttpOnly; Max-Age=43200; Path=/; SameSite=strict" in http.get("/").headers["set-cookie"]
            page = {"Origin": served.url}
            assert http.delete(f"/v1/tasks/{task_id}").status_code == 403, "without an origin it is no page"
            assert http.delete(f"/v1/tasks/{task_id}", headers=page).json()["outcome"] == "cancelled"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8000"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_a_page_of_another_origin_is_refused(common: Fleet, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/v1/status"), ("POST", "/v1/tasks"), ("GET", "/")):
        answer = common.http.request(method, path, headers=headers, json=body())
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "Timely-Task-Token"])
def test_a_request_that_says_twice_who_asks_is_refused(common_guarded: Guarded, name: str) -> None:
    """A proxy before the server may have checked the other one."""
    url = common_guarded.fleet.url
    values = {
        "Host": urlsplit(url).netloc, "Origin": url, "Authorization": f"Bearer {TOKENS['ops']}",
        "Timely-Task-Token": TOKEN,
    }  # fmt: skip
    statuses = []
    for names in ([*values], [*values, name]):
        connection = http.client.HTTPConnection(values["Host"], timeout=WAIT_S)
        connection.putrequest("GET", "/v1/status", skip_host=True)
        for one in names:
            connection.putheader(one, values[one])
        connection.endheaders()
        statuses.append(connection.getresponse().status)
        connection.close()
    assert statuses == [200, 422]


def test_no_cookie_of_a_stranger_is_unquoted(served: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older Pythons need time with the square of its length: ten seconds for a header, without a token."""

    def unquote(value: str) -> str:
        assert "\\" not in value
        return value

    monkeypatch.setattr(http.cookies, "_unquote", unquote)
    for name in ("a", "timely_session"):
        cookie = {"Cookie": f'{name}="' + "\\\\" * 100 + '"'}
        for method, path in (
            ("GET", "/healthz"),
            ("GET", "/"),
            ("DELETE", "/v1/session"),
            ("GET", "/v1/status"),
        ):
            assert served.http.request(method, path, headers=cookie).status_code == 200


def test_a_link_on_another_sites_page_leads_to_the_live_page_only(served: Fleet) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    # This one would add a robot that every later stop expects.
    with served.http.stream("GET", "/v1/stop/events?agent=forged", headers=link) as answer:
        assert answer.status_code == 403
    assert served.http.post("/v1/stop", json={"deadline_s": 0.0}).json()["robots"] == {}
    assert served.http.get("/", headers=link).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:80"])
def test_the_names_of_this_machine_are_accepted(common: Fleet, host: str) -> None:
    assert common.http.get("/v1/status", headers={"Host": host}).status_code == 200


def test_the_live_page_needs_a_principals_token_where_there_are_principals(guarded: Guarded) -> None:
    url = guarded.fleet.url
    with httpx.Client(base_url=url, headers={"Origin": url}) as http:
        assert "set-cookie" not in http.get("/").headers
        assert http.post("/v1/session", json={"token": TOKENS["stranger"]}).status_code == 401
        begun = http.post("/v1/session", json={"token": TOKENS["ops"]})
        assert begun.json() == {"principal": "ops", "roles": ["operator"]}
        assert http.get("/v1/status").json()["principal"]["name"] == "ops"
        assert http.put("/v1/disciplines", json={"name": "edf"}).status_code == 200
        write_principals(guarded.path, [{"name": "watcher", "roles": ["viewer"]}])
        guarded.fleet.run_for(1.5)
        assert http.get("/v1/status").status_code == 401, "a withdrawn token ends its sessions"


def test_servers_on_two_ports_of_a_host_have_sessions_of_their_own() -> None:
    """A browser sends a cookie to every port of the host that set it."""
    with fleet() as first, fleet() as second, httpx.Client() as browser:
        for server in (first, second):
            browser.get(f"{server.url}/")
        for server in (first, second, first):
            assert browser.get(f"{server.url}/v1/status").json()["principal"]["name"] == "local-page"
        browser.delete(f"{second.url}/v1/session", headers={"Origin": second.url})
        names = [
            browser.get(f"{server.url}/v1/status").json()["principal"]["name"] for server in (first, second)
        ]
    assert names == ["local-page", "local"]


def test_sessions_of_one_principal_end_none_of_another(tmp_path: Path) -> None:
    path, clock = tmp_path / "principals.yaml", ManualClock(0.0)
    write_principals(path)
    open_sessions = sessions.PrincipalSessions(PrincipalRegistry(path, None, clock), clock)
    cookie = open_sessions.create(TOKENS["ops"])
    own = [open_sessions.create(TOKENS["watcher"]) for _ in range(2 * sessions.MAX_SESSIONS)]
    principal = open_sessions.find(cookie)
    assert principal is not None
    assert principal.name == "ops"
    assert [open_sessions.find(one) is not None for one in (own[0], own[-1])] == [False, True]


@pytest.mark.parametrize(
    "key",
    ["short", "two words and more of them", "ein-schlüssel-der-lang-ist", "a-key-of-a-file-with-its-end\n"],
)
def test_a_key_that_no_client_could_send_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        PrincipalRegistry(None, key, ManualClock(100.0))
    assert refused.value.where == "api_key"


def test_a_key_has_every_role() -> None:
    clock, headers = ManualClock(100.0), {"Authorization": f"Bearer {TOKENS['ops']}"}
    registry = PrincipalRegistry(None, TOKENS["ops"], clock)
    with fleet(registry=registry, clock=clock) as served, httpx.Client(base_url=served.url) as http:
        served.run_for(1.5)
        assert http.get("/v1/status").status_code == 401
        principal = http.get("/v1/status", headers=headers).json()["principal"]
        assert (principal["name"], set(principal["roles"])) == ("api-key", set(ROLES))
        with http.stream("POST", "/v1/tasks", json=body(id="one"), headers=headers) as answer:
            assert Reader(answer).next()[1] == "accepted"
        assert http.delete("/v1/tasks/one", headers=headers).status_code == 200, "it needs no task's token"


def test_a_session_ends_after_its_lifetime() -> None:
    clock = ManualClock(100.0)
    open_sessions = sessions.PrincipalSessions(None, clock)
    cookie = open_sessions.create(None)
    clock.advance(sessions.LIFETIME_S - 1.0)
    assert open_sessions.find(cookie) is LOCAL_PAGE
    clock.advance(1.0)
    assert open_sessions.find(cookie) is None


def test_pages_of_this_machine_do_not_end_each_others_sessions() -> None:
    """They have no token, so they are not counted as those of one principal."""
    open_sessions = sessions.PrincipalSessions(None, ManualClock(100.0))
    cookies = [open_sessions.create(None) for _ in range(sessions.MAX_SESSIONS + 1)]
    are_open = [open_sessions.find(cookie) is LOCAL_PAGE for cookie in cookies]
    assert are_open == [False] + sessions.MAX_SESSIONS * [True]
