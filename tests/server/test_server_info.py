"""Everything of the server beside tasks: names, disciplines, status, metrics, health, live page, event log."""

from __future__ import annotations

import json
import re
import resource
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import pytest
from fleet import DRONE, WAIT_S, Fleet, Reader, body, fleet
from manual_clock import ManualClock
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from lrtrace.importers.event_log import import_event_log
from timely.core.errors import EngineFailed
from timely.disciplines.base import Discipline
from timely.disciplines.registry import create_discipline
from timely.engines import active_discipline
from timely.server.problems import PROBLEMS
from timely.server.tasks.task import Outcome
from timely.server.telemetry.event_log import TelemetryEventLog


def samples(served: Fleet) -> dict[tuple[str, str], float]:
    text = served.http.get("/metrics").text
    return {
        (sample.name, ",".join(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def run(served: Fleet, task: str = "short", **fields: object) -> str:
    """One task to its end, and long enough that nothing more is expected of it."""
    with served.http.stream("POST", "/v1/tasks", json=body(task, **fields)) as response:
        reader = Reader(response)
        task_id = str(reader.next()[2]["task_id"])
        served.run_for(30.0)
        reader.rest()
    return task_id


def test_names_and_contents_of_skill_sets_and_profiles(served: Fleet) -> None:
    assert served.http.get("/v1/skill_sets").json() == {"skill_sets": ["tiny-chat", "tiny-drone"]}
    skill_set = served.http.get("/v1/skill_sets/tiny-drone").json()
    assert [skill["name"] for skill in skill_set["skills"]] == ["move_up", "turn_cw", "look", "dive"]
    assert skill_set["fingerprint"] == DRONE.fingerprint
    assert served.http.get("/v1/robot_profiles").json() == {"robot_profiles": ["one-arm", "tiny"]}
    assert (
        served.http.get("/v1/robot_profiles/tiny").json()["skills"]["move_up"]["args"]["distance"]["max"]
        == 100
    )


def test_a_discipline_is_switched_while_serving_and_nothing_is_lost_or_repeated(served: Fleet) -> None:
    listing = served.http.get("/v1/disciplines").json()
    names = [entry["name"] for entry in listing["disciplines"]]
    assert listing["current"] == "timely"
    assert {"timely", "pud", "edf", "fcfs"} <= set(names)
    with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
        reader = Reader(response)
        reader.next()
        for name in (*names, "timely"):
            served.run_for(0.7)
            answer = served.http.put("/v1/disciplines", json={"name": name})
            assert (answer.status_code, answer.json()["current"]) == (200, name)
            assert served.stats().discipline == name
        served.run_for(30.0)
        *segments, (_, name, result) = reader.rest()
        assert [data["index"] for _, _, data in segments] == list(range(12))
        assert (name, result["outcome"], result["recomputed_tokens"]) == ("result", "complete", 0)
    assert served.http.post("/v1/disciplines", json={"name": "fcfs"}).json()["current"] == "fcfs"


def test_a_discipline_that_loads_slowly_does_not_hold_up_the_server(
    served: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, loaded = threading.Event(), threading.Event()

    def slow(name: str, files: Sequence[Path] = ()) -> Discipline:
        loading.set()
        assert loaded.wait(WAIT_S)
        return create_discipline(name, files)

    monkeypatch.setattr(active_discipline, "create_discipline", slow)
    with ThreadPoolExecutor(1) as pool:
        try:
            switch = pool.submit(served.http.put, "/v1/disciplines", json={"name": "fcfs"})
            assert loading.wait(WAIT_S)
            assert served.http.get("/healthz").status_code == 200
            assert served.http.get("/v1/disciplines").json()["current"] == "timely"
        finally:
            loaded.set()
        assert switch.result(WAIT_S).json()["current"] == "fcfs"


def test_the_engines_own_metrics_stand_behind_the_servers(
    served: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.engine, "metrics_page", lambda: b"vllm:num_requests_running 1.0\n")
    lines = served.http.get("/metrics").text.splitlines()
    assert lines[-1] == "vllm:num_requests_running 1.0"
    assert lines[0].startswith("# HELP timely_")


def test_health_is_where_vllm_has_it_too(served: Fleet) -> None:
    assert served.http.get("/health").json()["engine"] == served.http.get("/healthz").json()["engine"]


def test_metrics_count_outcomes_latencies_and_utility(served: Fleet) -> None:
    run(served, tuf="urgent")
    run(served)
    run(served, "forbidden")
    assert served.http.post("/v1/tasks", json=body(skill_set="nope")).status_code == 422
    values = samples(served)
    assert values["timely_tasks_arrived_total", ""] == 4
    assert values["timely_tasks_total", "urgent,complete"] == 1
    assert values["timely_tasks_total", "normal,complete"] == 1
    assert values["timely_tasks_total", "normal,unsafe_segment"] == 1
    assert values["timely_tasks_live", ""] == 0
    assert values["timely_segments_released_total", ""] == 4
    assert values["timely_response_time_seconds_count", "urgent"] == 1
    assert values["timely_waiting_time_seconds_count", "normal"] == 1
    assert 0 < values["timely_utility_sum", "urgent"] <= values["timely_utility_max_sum", "urgent"] == 2.0
    assert values["timely_engine_generations", "parked"] == 0
    assert values["timely_engine_steps_total", ""] > 0
    assert values["timely_engine_busy_seconds_total", ""] > 0.0
    assert values["timely_engine_info", "timely,scripted,segmented"] == 1


def test_a_first_refusal_is_a_rise_that_prometheus_sees(served: Fleet) -> None:
    """A series that begins with its first event has no rise in it, so no alert would fire."""
    values = samples(served)
    for kind in ("normal", "urgent"):
        for outcome in get_args(Outcome):
            assert values["timely_tasks_total", f"{kind},{outcome}"] == 0
        assert values["timely_utility_sum", kind] == values["timely_utility_max_sum", kind] == 0
    classes = served.http.get("/v1/status").json()["classes"]
    assert [classes[kind]["outcomes"] for kind in classes] == [{}, {}]


def test_a_task_that_got_nothing_counts_with_the_utility_it_ended_with(served: Fleet) -> None:
    with served.http.stream(
        "POST", "/v1/tasks", json=body(tuf={"ert_s": 0.01, "alpha": -100.0, "beta": 1.0})
    ) as response:
        task_id = Reader(response).next()[2]["task_id"]
        served.clock.advance(0.02)
        served.http.delete(f"/v1/tasks/{task_id}")
    view = served.http.get(f"/v1/tasks/{task_id}").json()
    assert (view["outcome"], view["response_time_s"]) == ("cancelled", None)
    assert view["utility"] == pytest.approx(1.0 - 100.0 * 0.01, abs=1e-6)


def test_status_shows_what_each_robot_does(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("long", tuf="urgent")) as response:
        Reader(response).next()
        served.run_for(0.5)
        state = served.http.get("/v1/status").json()
        (robot,) = state["robots"]
        assert (robot["agent"], robot["robot"], robot["class"]) == ("drone-1", "tiny", "urgent")
        assert robot["generation"] == "parked"
        assert robot["executing"]["text"] == "tc(10);"
        assert 0 < robot["executing"]["elapsed_s"] < robot["executing"]["execution_s"] == 1.0
        assert 0 < robot["slack_s"] < 1.0
        assert state["engine"]["parked"] == 1
        assert 0 < state["engine"]["kv_usage"] < 1
        values = samples(served)
        assert values["timely_engine_runnable", ""] == values["timely_engine_pinned_kv_ratio", ""] == 0
        assert values["timely_engine_evictable_kv_ratio", ""] == values["timely_engine_kv_usage_ratio", ""]
        assert values["timely_engine_backlog_seconds", "urgent"] == 0
    run(served)
    state = served.http.get("/v1/status").json()
    assert state["robots"] == []
    assert state["classes"]["normal"]["share_served"] == 1.0
    assert [task["outcome"] for task in state["recent"]] == ["complete", "cancelled"]


def test_a_robot_that_is_faster_than_its_profile_shows(served: Fleet) -> None:
    def fly() -> tuple[dict[str, object], list[float]]:
        """A task whose first segment takes 1.4 s instead of 2: the robot's line; when it is ready, and due."""
        with served.http.stream("POST", "/v1/tasks", json=body()) as response:
            reader = Reader(response)
            task_id = reader.next()[2]["task_id"]
            served.run_for(0.2)
            first = reader.next()[2]
            assert first["execution_s"] == 2.0, "the profile's time, whatever the robot's pace"
            line = served.http.get("/v1/status").json()["robots"][0]
            done = {"segment": 0, "kind": "done", "elapsed_s": 1.4, "agent": "drone-1"}
            served.run_for(1.3)
            served.http.post(f"/v1/tasks/{task_id}/reports", json=done)
            served.run_for(30.0)
            reader.rest()
        return line, [first["ready_s"], first["due_s"]]

    line, (ready_s, due_s) = fly()
    assert line["pace"] is None
    assert due_s - ready_s == pytest.approx(2.01, abs=1e-5)
    assert samples(served)["timely_robot_pace_ratio", "drone-1"] == pytest.approx(0.85)
    line, (ready_s, due_s) = fly()
    assert line["pace"] == 0.85
    assert due_s - ready_s == pytest.approx(0.01 + 0.85 * 2.0, abs=1e-5)


def test_health_and_openapi(served: Fleet) -> None:
    assert served.http.get("/healthz").json()["status"] == "ok"
    document = served.http.get("/openapi.json").json()
    schema = document["paths"]["/v1/tasks"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["task", "skill_set"]
    bodies = {path: document["paths"][path]["post"]["requestBody"] for path in ("/v1/tasks", "/v1/stop")}
    assert [body["required"] for body in bodies.values()] == [True, False]
    names, fields = schema["properties"]["tuf"]["anyOf"]
    assert names["enum"] == ["normal", "urgent"]
    assert fields["properties"]["ert_s"]["minimum"] == 0
    # Null is as good as absent, in the schema and at the server.
    assert {name: kind["type"] for name, kind in fields["not"]["properties"].items()} == {
        "alpha": "number",
        "cutoff_s": "number",
    }
    run(served, tuf={"alpha": None, "cutoff_s": None})
    assert schema["additionalProperties"] is False
    assert schema["properties"]["urgency"]["anyOf"][0]["maximum"] == 4
    assert schema["properties"]["seed"]["anyOf"][0]["minimum"] == 0


def test_the_live_page_needs_nothing_from_elsewhere(served: Fleet) -> None:
    answer = served.http.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    outside = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!data:|#)([^"')\s>]+)""", answer.text)
    assert outside == []
    paths = set(re.findall(r"""["'](/v1/[a-z_/]+|/healthz)["']""", answer.text))
    assert paths == {
        "/v1/status", "/v1/disciplines", "/v1/tasks/", "/v1/stop", "/v1/stop/reset", "/v1/session",
    }  # fmt: skip
    assert "innerHTML" not in answer.text  # texts of tasks are shown, never interpreted


def test_openai_requests_go_to_the_engines_own_application(served: Fleet) -> None:
    seen: list[tuple[str, bytes]] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope["path"], (await receive())["body"]))
        await JSONResponse({"object": "chat.completion"})(scope, receive, send)

    served.engine.openai_app = inner  # type: ignore[attr-defined]
    payload = {"model": "m", "messages": [], "timely": {"tuf": {"ert_s": 0.2}}}
    answer = served.http.post("/v1/chat/completions", json=payload)
    assert answer.json() == {"object": "chat.completion"}
    assert served.http.get("/v1/models").status_code == 200
    assert [path for path, _ in seen] == ["/v1/chat/completions", "/v1/models"]
    passed = json.loads(seen[0][1])
    assert passed.pop("timely")["tuf"] == {"ert_s": 0.2, "alpha": -2.0, "beta": 1.0}
    assert passed == {"model": "m", "messages": []}


def test_the_event_log_tells_the_whole_story(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with fleet(event_log=path) as served:
        task_id = ""
        with served.http.stream("POST", "/v1/tasks", json=body(app="patrol", urgency=1)) as response:
            reader = Reader(response)
            task_id = reader.next()[2]["task_id"]
            served.run_for(0.2)
            report = {"segment": 0, "kind": "done", "elapsed_s": 0.1, "agent": "drone-1"}
            for _ in range(2):
                served.http.post(f"/v1/tasks/{task_id}/reports", json=report)
            served.run_for(200.0)
            reader.rest()
        served.http.put("/v1/disciplines", json={"name": "edf"})
        served.http.post("/v1/tasks", json=body(skill_set="nope"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] == [
        "opened", "urgency", "task", "segment", "report", "segment", "generated", "settled", "discipline",
        "refused", "closed",
    ]  # fmt: skip
    times = [line["t_s"] for line in lines]
    assert times == sorted(times)
    opened, level, task, first, report, second, generated, settled = lines[:8]
    assert (level["level"], level["source"], level["confidence"]) == (1, "given", 1.0)
    assert (opened["timely_events"], opened["engine"], opened["discipline"]) == (1, "scripted", "timely")
    assert (task["task"], task["skill_set"], task["robot"], task["app"], task["urgency"]) == (
        "short", "tiny-drone", "tiny", "patrol", 1,
    )  # fmt: skip
    assert task["tuf"] == {"ert_s": 1.0, "alpha": -2.0, "beta": 1.0}
    assert {line["task_id"] for line in lines[1:8]} == {task_id}
    assert [first["text"] + second["text"], first["tokens"], first["execution_s"]] == [
        "mu(50);tc(90);",
        5,
        2.0,
    ]
    assert (report["kind"], report["segment"], report["elapsed_s"]) == ("done", 0, 0.1)
    assert (generated["outcome"], generated["tokens"]) == ("complete", 9)
    assert (settled["outcome"], settled["measured"]) == ("complete", True)
    assert [segment["reported"] for segment in settled["segments"]] == [True, False]
    assert settled["segments"][0]["end_s"] <= settled["segments"][1]["start_s"]


def test_an_event_log_that_cannot_be_opened_is_said_at_start(tmp_path: Path) -> None:
    with (
        pytest.raises(EngineFailed, match="cannot be appended to"),
        fleet(event_log=tmp_path / "no" / "such" / "folder"),
    ):
        pass


def test_the_event_log_is_what_lrtrace_reads(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with fleet(event_log=path) as served:
        ids = [run(served, task, agent=f"drone-{task}") for task in ("short", "long", "forbidden")]
    recorded = import_event_log(path)
    assert [task.task_id for task in recorded] == ids
    assert [len(task.segments) for task in recorded] == [2, 12, 0]
    assert [task.outcome for task in recorded] == ["complete", "complete", "unsafe_segment"]
    assert recorded[0].segments[0].text == "mu(50);"


def test_the_document_names_every_route_and_every_code(served: Fleet) -> None:
    document = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    routes = served.http.get("/openapi.json").json()["paths"]
    for path in routes:
        assert re.sub(r"\{\w+\}", "{", path).split("{")[0].rstrip("/") in document, path
    for code in PROBLEMS:
        assert f"`{code}`" in document, code
    schema = routes["/v1/tasks"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    for field in schema["properties"]:
        assert f"`{field}`" in document, field


def test_an_event_log_goes_on_in_a_new_line_after_a_tear(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"t_s": 1.0, "event": "segm')
    TelemetryEventLog(path, ManualClock()).close()
    torn, closed = path.read_text().splitlines()
    assert torn.endswith("segm")
    assert json.loads(closed)["event"] == "closed"


def test_a_full_disk_leaves_whole_lines_and_the_number_of_lost_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "events.jsonl", ManualClock()
    log = TelemetryEventLog(path, clock)
    log.write("first")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    until(lambda: path.stat().st_size > 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
    try:
        for _ in range(3):
            log.write("refused")
            until(log._waiting.empty)
        until(lambda: "lines are lost" in caplog.text)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write("last")
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["event"] for line in lines] in (
        ["first", "lost", "last", "closed"],
        ["first", "lost", "refused", "last", "closed"],
    )
    assert lines[1]["lines"] + len(lines) == 7
    assert caplog.text.count("lines are lost") == 1


def test_an_event_log_on_a_device_that_takes_nothing_ends_in_order(caplog: pytest.LogCaptureFixture) -> None:
    log = TelemetryEventLog(Path("/dev/full"), ManualClock())
    log.write("refused")
    log.close()
    assert "lines are lost" in caplog.text


def until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
