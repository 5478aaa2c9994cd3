"""Tasks over real HTTP: the happy path, reports, cancellation, resumption, readers that leave or do not read."""

from __future__ import annotations

import ctypes
import gc
import socket
import struct
import weakref

import httpx
import pytest
from fleet import DRONE, WAIT_S, Fleet, Reader, body, events_of, fleet

from timely.engines.base import GenerationRequest
from timely.engines.scripts import Script, ScriptedSegment

SO_ATTACH_FILTER = 26
"""Of Linux; Python has no name for it."""


def test_a_plan_comes_in_segments_each_when_the_robot_needs_it(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body(tuf="urgent")) as response:
        reader = Reader(response)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store, no-transform"
        event_id, name, accepted = reader.next()
        assert (event_id, name) == (1, "accepted")
        assert accepted["robot"] == "tiny"
        assert accepted["tuf"] == {"ert_s": 0.2, "alpha": -6.67, "beta": 2.0}
        assert len(accepted["report_token"]) >= 16
        task_id = accepted["task_id"]

        served.run_for(0.5)
        event_id, name, first = reader.next()
        assert (event_id, name, first["index"], first["text"]) == (2, "segment", 0, "mu(50);")
        assert first["skill_set_fingerprint"] == DRONE.fingerprint
        assert first["calls"] == [{"skill": "move_up", "args": [50]}]
        assert first["execution_s"] == 2.0
        assert first["due_s"] == pytest.approx(first["ready_s"] + 0.01 + 2.0, abs=1e-5)

        view = served.http.get(f"/v1/tasks/{task_id}").json()
        assert view["state"] == "generating"
        assert view["outcome"] is None
        assert served.stats().parked == 1

        served.run_for(3.0)
        _, name, second = reader.next()
        assert (name, second["index"], second["text"]) == ("segment", 1, "tc(90);")
        _, name, result = reader.next()
        assert (name, result["outcome"], result["plan"]) == ("result", "complete", "mu(50);tc(90);")
        assert result["recomputed_tokens"] == 0
        assert reader.rest() == []

    assert result["response_time_s"] == pytest.approx(first["ready_s"] + 0.01, abs=1e-5)
    assert result["utility"] == pytest.approx(
        min(2.0, -6.67 * (result["response_time_s"] - 0.2) + 2.0), abs=1e-4
    )
    assert not result["measured"]


def test_reports_replace_estimates_and_decide_when_generation_goes_on(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body()) as response:
        reader = Reader(response)
        task_id = reader.next()[2]["task_id"]
        served.run_for(0.2)
        reader.next()
        url = f"/v1/tasks/{task_id}/reports"
        # Half a second late, then much faster than estimated.
        served.run_for(0.3)
        answer = served.http.post(url, json={"segment": 0, "kind": "started", "agent": "drone-1"})
        assert answer.json()["news"] == 1
        started_s = served.clock.now() - 100.0
        served.run_for(0.4)
        served.http.post(url, json=[{"segment": 0, "kind": "done", "elapsed_s": 0.4, "agent": "drone-1"}])
        served.run_for(0.3)
        assert reader.next()[2]["index"] == 1
        name, result = reader.next()[1:]
        assert name == "result"
        assert result["measured"]
        assert result["response_time_s"] == pytest.approx(started_s, abs=1e-3)
    served.http.post(url, json={"segment": 1, "kind": "done", "elapsed_s": 0.1, "agent": "drone-1"})
    served.until(lambda: served.service.tasks.get(task_id).state == "ended", "settled")
    view = served.http.get(f"/v1/tasks/{task_id}").json()
    assert [segment["done"] for segment in view["segments"]] == [True, True]
    spent = sum(segment["end_s"] - segment["start_s"] for segment in view["segments"])
    assert view["waiting_time_s"] == pytest.approx(view["completion_time_s"] - spent, abs=1e-5)


def test_duplicate_and_out_of_order_reports_change_nothing(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body()) as response:
        reader = Reader(response)
        task_id = reader.next()[2]["task_id"]
        url = f"/v1/tasks/{task_id}/reports"

        def tell(*reports: dict[str, object]) -> dict[str, object]:
            answer = served.http.post(url, json=[{**report, "agent": "drone-1"} for report in reports])
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        served.run_for(0.2)
        done = {"segment": 0, "kind": "done", "elapsed_s": 0.1}
        assert tell(done)["news"] == 1
        before = served.http.get(f"/v1/tasks/{task_id}").json()["segments"][0]
        late = [{"segment": 0, "kind": "started"}, {"segment": 0, "kind": "progress", "remaining_s": 9.0}]
        assert tell(*late, done, done)["news"] == 0
        assert served.http.get(f"/v1/tasks/{task_id}").json()["segments"][0] == before
        served.run_for(4.0)
        names = [(name, data.get("index")) for _, name, data in reader.rest()]
        assert names == [("segment", 0), ("segment", 1), ("result", None)]


def test_the_engine_gets_the_fingerprint_of_the_skill_set() -> None:
    requests: list[GenerationRequest] = []

    def plan(request: GenerationRequest) -> Script:
        requests.append(request)
        return ["mu(50);"]

    with (
        fleet(engine={"planner": plan}) as served,
        served.http.stream("POST", "/v1/tasks", json=body("not listed")) as response,
    ):
        reader = Reader(response)
        reader.next()
        served.run_for(5.0)
        assert reader.next()[2]["text"] == "mu(50);"
    assert [request.skill_set_fingerprint for request in requests] == [DRONE.fingerprint]


def test_a_report_for_a_segment_that_was_not_sent_is_a_conflict(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body()) as response:
        task_id = Reader(response).next()[2]["task_id"]
        answer = served.http.post(
            f"/v1/tasks/{task_id}/reports", json={"segment": 5, "kind": "done", "agent": "drone-1"}
        )
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        served.run_for(0.2)
        answer = served.http.post(
            f"/v1/tasks/{task_id}/reports",
            json={"segment": 0, "kind": "value", "value": "x", "agent": "drone-1"},
        )
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_reports_need_the_token_of_their_task(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body(report_token=None)) as response:
        accepted = Reader(response).next()[2]
        served.run_for(0.2)
        url = f"/v1/tasks/{accepted['task_id']}/reports"
        report = {"segment": 0, "kind": "started"}
        wrong = served.http.post(url, json=report)
        assert (wrong.status_code, wrong.json()["where"]) == (403, "Timely-Task-Token")
        proof = {"Timely-Task-Token": accepted["report_token"]}
        other = served.http.post(url, json={**report, "agent": "drone-2"}, headers=proof)
        assert (other.status_code, other.json()["where"]) == (403, "agent")
        nowhere = served.http.post("/v1/tasks/none/reports", json=report)
        assert (nowhere.status_code, nowhere.json()["code"]) == (404, "unknown_name")
        assert served.http.post(url, json=report, headers=proof).json()["news"] == 1
        # A later reader of the events does not get the token.
        with served.http.stream("GET", f"/v1/tasks/{accepted['task_id']}/events") as again:
            assert "report_token" not in Reader(again).next()[2]


def test_the_token_may_stand_in_authorization_where_there_are_no_principals(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body()) as response:
        accepted = Reader(response).next()[2]
        served.run_for(0.2)
        answer = httpx.post(
            f"{served.url}/v1/tasks/{accepted['task_id']}/reports",
            json={"segment": 0, "kind": "started"},
            headers={"Authorization": f"Bearer {accepted['report_token']}"},
        )
        assert answer.json()["news"] == 1


def test_a_blocking_segment_waits_for_its_value_and_goes_on_with_it(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("ask")) as response:
        reader = Reader(response)
        task_id = reader.next()[2]["task_id"]
        served.run_for(0.2)
        assert reader.next()[2]["blocking"]
        served.run_for(60.0)
        assert served.stats().blocked == 1
        value = {"segment": 0, "kind": "value", "value": "True", "agent": "drone-1"}
        url = f"/v1/tasks/{task_id}/reports"
        assert served.http.post(url, json=value).json()["news"] == 1
        assert served.http.post(url, json=value).json()["news"] == 0
        other = served.http.post(url, json={**value, "value": "False"})
        assert (other.status_code, other.json()["code"]) == (409, "conflict")
        served.run_for(0.5)
        assert [event[1] for event in reader.rest()] == ["segment", "result"]


def test_a_failed_segment_ends_the_plan(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
        reader = Reader(response)
        task_id = reader.next()[2]["task_id"]
        served.run_for(0.2)
        reader.next()
        report = {"segment": 0, "kind": "failed", "reason": "a wall", "agent": "drone-1"}
        answer = served.http.post(f"/v1/tasks/{task_id}/reports", json=report).json()
        assert answer["outcome"] == "failed"
        _, name, error = reader.next()
        assert (name, error["code"], error["outcome"]) == ("error", "execution_failed", "failed")
        assert "a wall" in error["detail"]
    assert served.stats().jobs == ()


def test_delete_ends_the_generation_at_once_and_twice_is_harmless(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
        reader = Reader(response)
        task_id = reader.next()[2]["task_id"]
        served.run_for(0.2)
        reader.next()
        for _ in range(2):
            answer = served.http.delete(f"/v1/tasks/{task_id}")
            assert (answer.status_code, answer.json()["outcome"]) == (200, "cancelled")
        assert served.stats().jobs == ()
        assert served.stats().kv_usage == 0.0
        assert [(name, data["outcome"]) for _, name, data in reader.rest()] == [("result", "cancelled")]
    assert served.http.delete("/v1/tasks/none").status_code == 404


def test_resumption_is_exactly_once_and_in_order_from_every_event(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
        whole = [(task := Reader(response)).next()]
        served.run_for(30.0)
        whole += task.rest()
    task_id = whole[0][2]["task_id"]
    assert [event[0] for event in whole] == list(range(1, 15))
    del whole[0][2]["report_token"]
    url = f"/v1/tasks/{task_id}/events"
    for after in range(len(whole) + 1):
        answer = served.http.get(url, headers={"Last-Event-ID": str(after)})
        assert events_of(answer.text) == whole[after:]
    for wrong in ("15", "-1", "one", "٣", "1e3"):
        answer = served.http.get(url, headers={b"Last-Event-ID": wrong.encode()})
        assert (answer.status_code, answer.json()["where"]) == (422, "Last-Event-ID")


def test_a_dropped_connection_in_the_middle_loses_and_repeats_nothing(served: Fleet) -> None:
    seen = []
    with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
        reader = Reader(response)
        seen.append(reader.next())
        task_id = seen[0][2]["task_id"]
        served.run_for(2.5)
        seen.append(reader.next())
    served.until(lambda: served.service.tasks.get(task_id).readers == 0, "the reader has left")
    served.run_for(3.0)  # segments go on within the grace time, unread
    headers = {"Last-Event-ID": str(seen[-1][0])}
    with served.http.stream("GET", f"/v1/tasks/{task_id}/events", headers=headers) as response:
        reader = Reader(response)
        seen.append(reader.next())
        served.run_for(30.0)
        seen += reader.rest()
    assert [event[0] for event in seen] == list(range(1, 15))
    assert [event[2]["index"] for event in seen[1:-1]] == list(range(12))
    assert seen[-1][2]["outcome"] == "complete"


def test_a_reader_that_leaves_for_good_frees_the_generation(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("long")) as response:
        reader = Reader(response)
        task_id = reader.next()[2]["task_id"]
        served.run_for(0.3)
        reader.next()
        assert served.stats().kv_usage > 0.0
    served.until(lambda: served.service.tasks.get(task_id).readers == 0, "the reader has left")
    served.run_for(served.service.settings.grace_s - 0.1)
    assert len(served.stats().jobs) == 1
    served.run_for(0.2)
    assert served.stats().jobs == ()
    assert served.stats().kv_usage == 0.0
    assert served.http.get(f"/v1/tasks/{task_id}").json()["outcome"] == "cancelled"
    with served.http.stream("GET", f"/v1/tasks/{task_id}/events") as response:
        _, name, data = Reader(response).rest()[-1]
    assert (name, data["outcome"], data["cause"]) == ("result", "cancelled", "no_reader")


def test_a_reader_that_never_reads_delays_nobody(served: Fleet) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    deaf = socket.create_connection((host, int(port)), timeout=WAIT_S)
    try:
        content = httpx.Request("POST", served.url, json=body("long", agent="deaf")).content
        head = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        deaf.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        served.until(lambda: len(served.service.tasks.generating()) == 1, "the deaf robot's task is there")
        with served.http.stream("POST", "/v1/tasks", json=body("long", agent="other")) as response:
            reader = Reader(response)
            served.run_for(30.0)
            assert [event[1] for event in reader.rest()] == ["accepted"] + 12 * ["segment"] + ["result"]
        # Its plan was written and released too, and holds nothing any more.
        assert served.stats().jobs == ()
        assert served.service.tasks.generating() == []
    finally:
        deaf.close()


@pytest.mark.process
def test_a_reader_whose_connection_is_full_is_let_go_and_the_plan_goes_on() -> None:
    # Ten megabytes of text: more than the buffers of both ends hold.
    story = [ScriptedSegment("word " * 799 + "end. ", 0.001, 1) for _ in range(2_500)]
    with fleet({"story": story}, engine={"mode": "stream"}, grace_s=600.0) as served:
        host, port = served.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as deaf:
            content = httpx.Request(
                "POST", served.url, json=body("story", skill_set="tiny-chat", max_tokens=4_000)
            ).content
            head = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            deaf.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            served.until(lambda: len(served.service.tasks.generating()) == 1)
            (task,) = served.service.tasks.generating()
            served.until(lambda: task.readers == 1)
            for _ in range(60):  # each second has a deadline of its own
                served.run_for(1.0)
            assert task.outcome == "complete"
            served.until(lambda: task.readers == 0, "the reader is let go")
            answer = served.http.get(f"/v1/tasks/{task.task_id}/events")
            assert len(events_of(answer.text)) == 2_502


def test_the_same_id_twice_is_a_conflict(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body(id="mine")) as response:
        assert Reader(response).next()[2]["task_id"] == "mine"
        assert response.headers["timely-task-id"] == "mine"
        answer = served.http.post("/v1/tasks", json=body(id="mine"))
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_over_the_limit_of_live_tasks_a_robot_is_told_when_to_come_back() -> None:
    with (
        fleet(max_live_tasks=1) as served,
        served.http.stream("POST", "/v1/tasks", json=body()) as response,
    ):
        Reader(response).next()
        answer = served.http.post("/v1/tasks", json=body())
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        served.run_for(10.0)
        with served.http.stream("POST", "/v1/tasks", json=body()) as again:
            assert Reader(again).next()[1] == "accepted"


@pytest.mark.parametrize("task", ["too high", "forbidden", "gibberish"])
def test_an_unsafe_segment_is_never_sent(served: Fleet, task: str) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body(task)) as response:
        reader = Reader(response)
        task_id = reader.next()[2]["task_id"]
        served.run_for(10.0)
        events = reader.rest()
    *segments, (_, name, error) = events
    assert (name, error["code"], error["outcome"]) == ("error", "unsafe_segment", "unsafe_segment")
    assert [data["text"] for _, _, data in segments] == (["tc(90);"] if task == "too high" else [])
    assert served.stats().jobs == ()
    view = served.http.get(f"/v1/tasks/{task_id}").json()
    assert len(view["segments"]) == len(segments)


def test_the_events_of_a_plan_are_bounded_and_its_end_tells_what_was_sent(served: Fleet) -> None:
    """An engine that closes more segments than the plan may have tokens."""
    request = body("long", max_tokens=1)
    with served.http.stream("POST", "/v1/tasks", json=request) as stream:
        served.run_for(30.0)
        _, *segments, (number, name, data) = Reader(stream).rest()
    assert (number, name, data["code"]) == (10, "error", "engine_failed")
    assert data["plan"] == "".join(segment["text"] for _, _, segment in segments)
    assert data["segments"] == len(segments) == 8


def test_a_task_ends_at_its_own_deadline(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("ask", deadline_s=4.0)) as response:
        reader = Reader(response)
        reader.next()
        served.run_for(3.9)
        reader.next()
        assert len(served.stats().jobs) == 1
        served.run_for(0.2)
        assert [(name, data["code"]) for _, name, data in reader.rest()] == [("error", "expired")]
    assert served.stats().jobs == ()


def test_silence_is_filled_with_comments() -> None:
    with (
        fleet(keepalive_s=0.02) as served,
        served.http.stream("POST", "/v1/tasks", json=body()) as response,
    ):
        lines = response.iter_lines()
        assert next(line for line in lines if line.startswith(":")) == ": keep-alive"


def test_ended_tasks_are_kept_for_a_while_and_then_forgotten() -> None:
    with fleet(retention_s=50.0) as served:
        with served.http.stream("POST", "/v1/tasks", json=body()) as response:
            reader = Reader(response)
            task_id = reader.next()[2]["task_id"]
            served.run_for(20.0)
        assert served.http.get(f"/v1/tasks/{task_id}").json()["state"] == "ended"
        served.run_for(51.0)
        assert served.http.get(f"/v1/tasks/{task_id}").status_code == 404


def test_a_robot_that_reports_is_waited_for_and_one_that_does_not_is_not(served: Fleet) -> None:
    ids = {}
    for agent in ("talks", "silent"):
        with served.http.stream("POST", "/v1/tasks", json=body(agent=agent)) as response:
            reader = Reader(response)
            ids[agent] = reader.next()[2]["task_id"]
            served.run_for(0.2)
            if agent == "talks":
                report = {"segment": 0, "kind": "started", "agent": agent}
                served.http.post(f"/v1/tasks/{ids[agent]}/reports", json=report)
            served.run_for(3.0)
    served.run_for(20.0)
    states = {agent: served.http.get(f"/v1/tasks/{task}").json()["state"] for agent, task in ids.items()}
    assert states == {"talks": "executing", "silent": "ended"}
    late = [{"segment": 1, "kind": "done", "elapsed_s": 20.0, "agent": "talks"}]
    served.http.post(f"/v1/tasks/{ids['talks']}/reports", json=late)
    served.run_for(0.0)
    view = served.http.get(f"/v1/tasks/{ids['talks']}").json()
    assert view["state"] == "ended"
    assert view["completion_time_s"] > 20.0


def test_only_so_many_ended_tasks_are_kept() -> None:
    with fleet(max_retained_tasks=2) as served:
        ids = []
        for _ in range(4):
            with served.http.stream("POST", "/v1/tasks", json=body()) as response:
                reader = Reader(response)
                ids.append(reader.next()[2]["task_id"])
                served.run_for(20.0)
        assert [served.http.get(f"/v1/tasks/{task}").status_code for task in ids] == [404, 404, 200, 200]


def test_plans_without_any_report_are_followed_up_to_a_number() -> None:
    """Those of a program that never reports would be kept until the expected end of each, however many they are."""
    plans: dict[str, Script] = {"hour": [ScriptedSegment("mu(50);", 3600.0, 5)]}
    with fleet(plans, max_retained_tasks=2) as served:
        ids = []
        for agent in ("drone-1", "drone-2", "drone-3", "drone-4"):
            with served.http.stream("POST", "/v1/tasks", json=body("hour", agent=agent)) as response:
                reader = Reader(response)
                ids.append(reader.next()[2]["task_id"])
                served.run_for(1.0)
                assert reader.rest()[-1][1] == "result"
            if agent == "drone-1":
                report = {"segment": 0, "kind": "started"}
                assert served.http.post(f"/v1/tasks/{ids[0]}/reports", json=report).is_success
        states = [served.http.get(f"/v1/tasks/{task_id}").json()["state"] for task_id in ids]
        assert states == ["executing", "ended", "executing", "executing"]
        assert served.service.tasks.get(ids[1]).outcome == "complete"


def test_what_is_forgotten_needs_no_garbage_collection() -> None:
    """A busy server makes few collections: forgotten tasks would fill its memory until the next."""
    with fleet(max_retained_tasks=1) as served:
        gc.disable()
        try:
            runners = []
            for _ in range(3):
                with served.http.stream("POST", "/v1/tasks", json=body()) as response:
                    task = served.service.tasks.get(Reader(response).next()[2]["task_id"])
                    assert task.runner is not None
                    runners.append(weakref.ref(task.runner))
                    del task
                    served.run_for(20.0)
            served.until(
                lambda: [runner() is None for runner in runners] == [True, True, False], "they are gone"
            )
        finally:
            gc.enable()


def test_a_reader_whose_network_is_gone_is_let_go() -> None:
    """Its machine answers nothing: no acknowledgement and no reset."""
    with fleet(ack_timeout_s=0.3, keepalive_s=0.05) as served:
        gone = socket.create_connection((httpx.URL(served.url).host, httpx.URL(served.url).port), WAIT_S)
        try:
            content = httpx.Request("POST", served.url, json=body("long", id="one")).content
            head = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            gone.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
            served.until(lambda: _readers(served) == 1, "it reads")
            drop_all_packets(gone)
            served.until(lambda: _readers(served) == 0, "it is let go")
        finally:
            gone.close()


def _readers(served: Fleet) -> int:
    task = served.service.tasks.find("one")
    return task.readers if task is not None else 0


def drop_all_packets(connection: socket.socket) -> None:
    """Attach a filter of one instruction, "return 0": the kernel takes all that arrives for lost."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    connection.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program))
    )
