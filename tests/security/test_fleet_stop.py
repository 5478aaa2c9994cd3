"""The stop of all robots over HTTP: acknowledged robot by robot, latched, and honest about the unknown."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from fleet import WAIT_S, Fleet, Reader, body, fleet
from guarded import TOKENS, Guarded

from timely.cli import serve
from timely.client import StopOrder, TimelyClient
from timely.core.errors import Conflict, NotAllowed, Overloaded
from timely.core.files import STATE_DIR_VARIABLE
from timely.engines.scripted import ScriptedEngine
from timely.server.tasks import fleet_stop, robot_roster, stop_file, stop_followers, stop_service
from timely.server.tasks.stop_file import SavedServerStop, ServerStopFile


def client(served: Fleet, **options: Any) -> TimelyClient:
    return TimelyClient(served.url, agent="drone-1", sleep=lambda seconds: None, **options)


def test_without_any_robot_the_stop_is_no_success(served: Fleet) -> None:
    with client(served) as timely:
        answer = timely.stop_fleet("a drill", deadline_s=0.0)
        assert (answer["success"], answer["robots"], answer["bridges"]) == (False, {}, 0)
        assert "timely_fleet_stopped 1.0" in served.http.get("/metrics").text
        timely.reset_stop()
    assert "timely_fleet_stopped 0.0" in served.http.get("/metrics").text


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/x-www-form-urlencoded"}])
def test_a_stop_needs_no_body(served: Fleet, headers: dict[str, str]) -> None:
    """``curl -X POST`` must do in an emergency."""
    answer = served.http.post("/v1/stop", headers=headers, timeout=WAIT_S)
    assert (answer.status_code, answer.json()["stopped"]) == (200, True)
    other = {**headers, "Origin": "http://elsewhere"}
    assert served.http.post("/v1/stop", headers=other).status_code == 403


def test_every_robot_acknowledges_or_is_unknown(served: Fleet) -> None:
    with client(served) as timely, client(served) as bridge:
        orders = bridge.stop_orders(["drone-1", "drone-2", "drone-3"])
        assert next(orders) == StopOrder("clear")
        answers: list[dict[str, Any]] = []
        stopping = threading.Thread(target=lambda: answers.append(timely.stop_fleet("smoke", deadline_s=2.0)))
        stopping.start()
        order = next(orders)
        assert (order.kind, order.reason) == ("stop", "smoke")
        bridge.acknowledge_stop(order.stop_id, "drone-1", "at_rest")
        bridge.acknowledge_stop(order.stop_id, "drone-2", "halted")
        served.run_for(2.1)
        stopping.join(10)
        (answer,) = answers
        states = {agent: robot["state"] for agent, robot in answer["robots"].items()}
        assert states == {"drone-1": "at_rest", "drone-2": "halted", "drone-3": "unknown"}
        assert not answer["success"]
        bridge.acknowledge_stop(order.stop_id, "drone-3", "halted")
        assert timely.stop_state()["success"]
        orders.close()


def test_the_stop_is_latched_until_an_operator_resets_it(served: Fleet) -> None:
    with client(served) as timely, served.http.stream("POST", "/v1/tasks", json=body("long")) as answer:
        reader = Reader(answer)
        task_id = reader.next()[2]["task_id"]
        served.run_for(0.3)
        outcome = timely.stop_fleet(deadline_s=0.0)
        assert reader.rest()[-1][2]["cause"] == "fleet_stop", "its reader may not know of the stop yet"
        assert outcome["robots"]["drone-1"]["state"] == "unknown", "a robot with a task and without a bridge"
        assert timely.task(task_id)["outcome"] == "cancelled"
        with pytest.raises(Conflict, match="stopped"):
            timely.submit("short", skill_set="tiny-drone")
        assert timely.reset_stop()["stop_id"] == outcome["stop_id"]
        with pytest.raises(Conflict):
            timely.reset_stop()
        timely.submit("short", skill_set="tiny-drone").close()


def test_a_reset_that_comes_late_releases_no_later_stop(served: Fleet) -> None:
    with client(served) as timely:
        earlier = timely.stop_fleet("a drill", deadline_s=0.0)["stop_id"]
        later = timely.stop_fleet("smoke", deadline_s=0.0)["stop_id"]
        assert later != earlier
        with pytest.raises(Conflict, match=f"{later}.*smoke") as refusal:
            timely.reset_stop(earlier)
        assert (refusal.value.where, timely.stop_state()["stop_id"]) == ("stop_id", later)
        assert timely.reset_stop(later)["stop_id"] == later
        with pytest.raises(Conflict, match="no stop is latched"):
            timely.reset_stop(later)


def test_a_reset_without_an_id_releases_no_stop_that_is_not_answered_yet(served: Fleet) -> None:
    """Its sender knows of an earlier stop at most."""
    with client(served) as timely, client(served) as bridge:
        orders = bridge.stop_orders(["drone-1"])
        next(orders)
        stopping = threading.Thread(target=timely.stop_fleet)
        stopping.start()
        stop_id = next(orders).stop_id
        served.until(lambda: served.service.fleet_stop.latch._unanswered == 1, "it waits for the bridge")
        with pytest.raises(Conflict, match=f"must name it: '{stop_id}'"):
            bridge.reset_stop()
        assert bridge.reset_stop(stop_id)["reset"]
        stopping.join(WAIT_S)
        assert not stopping.is_alive()
        orders.close()


def test_a_stop_is_answered_with_its_own_id_when_another_comes_meanwhile(served: Fleet) -> None:
    """Its sender may reset what it has decided itself, and must look at the other stop before."""
    answers: list[dict[str, Any]] = []
    with client(served) as timely, client(served) as bridge:
        orders = bridge.stop_orders(["drone-1"])
        next(orders)
        stopping = threading.Thread(target=lambda: answers.append(timely.stop_fleet("a drill")))
        stopping.start()
        earlier = next(orders).stop_id
        later = bridge.stop_fleet("smoke", deadline_s=0.0)["stop_id"]
        served.run_for(2.1)
        stopping.join(WAIT_S)
        assert (answers[0]["stop_id"], timely.stop_state()["stop_id"]) == (earlier, later)
        assert earlier != later
        orders.close()


@pytest.mark.parametrize("content", [{"stop_id": ""}, {"stop_id": 1}, {"reason": "x"}])
def test_a_reset_that_cannot_be_understood_releases_nothing(served: Fleet, content: object) -> None:
    with client(served) as timely:
        timely.stop_fleet(deadline_s=0.0)
        assert served.http.post("/v1/stop/reset", json=content).status_code == 422
        assert timely.stop_state()["stopped"]
        assert served.http.post("/v1/stop/reset", json={}).json()["reset"]


def test_a_bridge_that_missed_a_stop_hears_that_the_reset_releases_its_own_too(served: Fleet) -> None:
    with client(served) as timely, client(served) as bridge:
        first = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        follow(bridge, "drone-1")
        second = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        timely.reset_stop()
        third = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        timely.reset_stop()
        orders = bridge.stop_orders(["drone-1"])
        assert next(orders) == StopOrder("reset", third, stop_ids=(first, second, third))
        orders.close()


def test_the_stop_ends_a_plan_in_execution_too(served: Fleet) -> None:
    with served.http.stream("POST", "/v1/tasks", json=body("short")) as answer:
        reader = Reader(answer)
        task_id = reader.next()[2]["task_id"]
        served.run_for(2.6)
    with client(served) as timely:
        assert timely.task(task_id)["state"] == "executing"
        assert timely.stop_fleet(deadline_s=0.0)["robots"]["drone-1"]["state"] == "unknown"
        view = timely.task(task_id)
    assert (view["state"], view["outcome"]) == ("ended", "cancelled")


def test_an_engine_that_hangs_holds_up_no_answer_of_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_service, "ENDING_S", 0.01)
    answered, ends = threading.Event(), list[bool]()

    async def cancel(task_id: str) -> bool:
        ends.append(await asyncio.to_thread(answered.wait, WAIT_S))
        return await ScriptedEngine.cancel(served.engine, task_id)

    with (
        fleet(engine_timeout_s=2 * WAIT_S) as served,
        client(served) as timely,
        served.http.stream("POST", "/v1/tasks", json=body("long")) as stream,
    ):
        Reader(stream).next()
        monkeypatch.setattr(served.engine, "cancel", cancel)
        assert timely.stop_fleet(deadline_s=0.0)["stopped"]
        assert not ends
        answered.set()


def test_a_bridge_that_returns_gets_the_stop_first(served: Fleet) -> None:
    with client(served) as timely, client(served) as bridge:
        stop_id = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        orders = bridge.stop_orders(["drone-9"])
        assert next(orders) == StopOrder("stop", stop_id)
        assert timely.stop_state()["robots"]["drone-9"]["state"] == "unknown"
        bridge.acknowledge_stop(stop_id, "drone-9", "at_rest")
        timely.reset_stop()
        assert next(orders) == StopOrder("reset", stop_id, stop_ids=(stop_id,))
        with pytest.raises(Conflict):
            bridge.acknowledge_stop(stop_id, "drone-9", "at_rest")
        orders.close()


def test_a_lost_bridge_is_unknown_at_the_next_stop(served: Fleet) -> None:
    with client(served) as timely:
        with client(served) as bridge:
            orders = bridge.stop_orders(["drone-1"])
            next(orders)
            stop_id = timely.stop_fleet(deadline_s=0.0)["stop_id"]
            bridge.acknowledge_stop(stop_id, "drone-1", "halted")
            orders.close()
        answer = timely.stop_fleet(deadline_s=0.0)
        assert answer["robots"]["drone-1"]["state"] == "unknown"


def test_every_stop_awaits_every_robot_again(served: Fleet) -> None:
    with client(served) as timely, client(served) as bridge:
        orders = bridge.stop_orders(["drone-1"])
        next(orders)
        stop_id = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        assert next(orders) == StopOrder("stop", stop_id)
        bridge.acknowledge_stop(stop_id, "drone-1", "at_rest")
        assert timely.stop_state()["success"]
        again = timely.stop_fleet(deadline_s=0.0)
        assert (again["robots"]["drone-1"]["state"], again["success"]) == ("unknown", False)
        with pytest.raises(Conflict, match="stop"):
            bridge.acknowledge_stop(stop_id, "drone-1", "at_rest")  # of the stop before
        assert next(orders) == StopOrder("stop", again["stop_id"])
        bridge.acknowledge_stop(again["stop_id"], "drone-1", "at_rest")
        assert timely.stop_state()["success"]
        orders.close()


def test_only_the_reader_of_a_robots_stream_acknowledges_it(served: Fleet) -> None:
    with client(served) as timely, client(served) as bridge, client(served) as other:
        orders, others = bridge.stop_orders(["drone-1"]), other.stop_orders(["drone-2"])
        next(orders)
        next(others)
        stop_id = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        other.acknowledge_stop(stop_id, "drone-2", "at_rest")
        token = other._connection.stop_tokens["drone-2"]
        served.http.get("/")  # begins a session of the live page
        for stranger in ("", "x", token):
            acknowledgement = {"stop_id": stop_id, "agent": "drone-1", "state": "at_rest"}
            answer = served.http.post(
                "/v1/stop/acknowledgements",
                json={**acknowledgement, "stream_token": stranger},
                headers={"Origin": served.url},
            )
            assert (answer.status_code, answer.json()["where"]) == (403, "stream_token")
        assert timely.stop_state()["robots"]["drone-1"]["state"] == "unknown"
        orders.close()
        others.close()


def test_a_bridge_says_what_keeps_its_robots_from_their_tasks_while_its_stream_is_open(served: Fleet) -> None:
    def problems() -> dict[str, str]:
        return dict(served.http.get("/v1/status").json()["robot_problems"])

    with client(served) as bridge, client(served) as other:
        orders, others = bridge.stop_orders(["drone-1", "drone-2"], "hall"), other.stop_orders(["arm-1"])
        next(orders)
        next(others)
        assert problems() == {}
        bridge.report_robot_problems({"drone-1": "the link is lost", "drone-2": ""})
        other.report_robot_problems({"arm-1": "stopped"})
        assert problems() == {"arm-1": "stopped", "drone-1": "the link is lost"}
        bridge.report_robot_problems({"drone-2": "no driver"})
        assert problems() == {"arm-1": "stopped", "drone-2": "no driver"}
        other._connection.stop_tokens["drone-2"] = other._connection.stop_tokens["arm-1"]
        with pytest.raises(NotAllowed, match="stream_token"):
            other.report_robot_problems({"drone-2": "of another bridge"})
        bridge.report_robot_problems({})
        assert problems() == {"arm-1": "stopped"}
        bridge.report_robot_problems({"drone-1": "the link is lost"})
        orders.close()
        served.until(lambda: served.service.fleet_stop.latch.view()["bridges"] == 1)
        lost = dict.fromkeys(["drone-1", "drone-2"], fleet_stop.NO_BRIDGE)
        assert problems() == {"arm-1": "stopped", **lost}
        others.close()


def test_problems_of_robots_are_of_their_bridge_and_for_those_who_may_see_them(guarded: Guarded) -> None:
    with (
        TimelyClient(guarded.fleet.url, token=TOKENS["drones"]) as bridge,
        guarded.as_("ops") as ops,
        guarded.as_("drones") as drones,
    ):
        orders = bridge.stop_orders(["drone-1"])
        next(orders)
        bridge.report_robot_problems({"drone-1": "no driver"})
        assert ops.get("/v1/status").json()["robot_problems"] == {"drone-1": "no driver"}
        token = bridge._connection.stop_tokens["drone-1"]
        said = {"stream_token": token, "problems": {"arm-1": "of another principal"}}
        assert drones.post("/v1/stop/problems", json=said).status_code == 403
        orders.close()


def test_an_acknowledgement_that_another_overtakes_does_not_count(served: Fleet) -> None:
    """The network held ``at_rest`` back until the bridge had lost the robot."""
    with served.http.stream("GET", "/v1/stop/events", params={"agent": "drone-1"}) as stream:
        reader = Reader(stream)
        token = reader.next()[2]["stream_token"]
        stop_id = served.http.post("/v1/stop", json={"deadline_s": 0}).json()["stop_id"]

        def acknowledge(state: str, sequence: str | None) -> int:
            said = {"stop_id": stop_id, "agent": "drone-1", "state": state, "stream_token": token}
            headers = {} if sequence is None else {"Timely-Sequence": sequence}
            path = "/v1/stop/acknowledgements"
            return served.http.post(path, json=said, headers=headers).status_code

        assert acknowledge("halted", "7") == acknowledge("unknown", "9") == acknowledge("unknown", "9") == 200
        assert acknowledge("at_rest", "8") == 409
        assert served.http.get("/v1/stop").json()["robots"]["drone-1"]["state"] == "unknown"
        assert acknowledge("at_rest", "-1") == acknowledge("at_rest", "x") == 422
        assert acknowledge("at_rest", None) == 200, "of an earlier release"


def test_a_named_operator_acknowledges_without_a_stream(guarded: Guarded) -> None:
    with TimelyClient(guarded.fleet.url, token=TOKENS["ops"]) as ops:
        with TimelyClient(guarded.fleet.url, token=TOKENS["drones"]) as bridge:
            follow(bridge, "drone-1")
            stop_id = ops.stop_fleet(deadline_s=0.0)["stop_id"]
            bridge._connection.stop_tokens.clear()
            with pytest.raises(NotAllowed, match="stream_token"):
                bridge.acknowledge_stop(stop_id, "drone-1", "at_rest")
        ops.acknowledge_stop(stop_id, "drone-1", "at_rest")
        assert ops.stop_state()["success"]
        # The number is the operator's clock, and that of another machine, or after a restart, is behind.
        said = {"stop_id": stop_id, "agent": "drone-1", "state": "unknown"}
        with guarded.as_("ops") as other:
            answer = other.post("/v1/stop/acknowledgements", json=said, headers={"Timely-Sequence": "1"})
        assert answer.status_code == 200
        assert not ops.stop_state()["success"]


def test_a_bridge_gets_the_stop_however_many_streams_others_open(
    served: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_followers, "MAX_PRINCIPAL_STREAMS", 2)
    with client(served) as timely, client(served) as stranger, client(served) as bridge:
        streams = [stranger.stop_orders(["x"]) for _ in range(4)]
        for stream in streams:
            next(stream)
        orders = bridge.stop_orders(["drone-1"])
        next(orders)
        for stream in streams:
            stream.close()
        streams = [stranger.stop_orders(["x"]) for _ in range(2)]
        for stream in streams:
            next(stream)
        answer = timely.stop_fleet(deadline_s=0.0)
        assert (answer["bridges"], next(orders).stop_id) == (2, answer["stop_id"])
        for stream in (*streams, orders):
            stream.close()


def test_streams_of_one_principal_do_not_displace_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_followers, "MAX_PRINCIPAL_STREAMS", 3)
    monkeypatch.setattr(stop_followers, "MAX_STREAMS", 4)
    followers = stop_followers.ServerStopFollowers()
    first = followers.add("drones", ["drone-1"])
    flood = [followers.add("arms", [f"arm-{number}"]) for number in range(4)]
    assert ([follower.displaced for follower in flood], len(followers)) == ([True, False, False, False], 4)
    second = followers.add("drones", ["drone-2"])
    assert (flood[1].displaced, first.displaced, second.displaced) == (True, False, False)


def follow(bridge: TimelyClient, *agents: str, bridge_id: str = "") -> None:
    """Follow the stop for a moment."""
    orders = bridge.stop_orders(agents, bridge_id)
    next(orders)
    orders.close()


def test_robots_of_a_bridge_that_left_are_unknown_until_an_operator_removes_them(tmp_path: Path) -> None:
    with fleet(state_dir=tmp_path) as served, client(served) as bridge, client(served) as timely:
        follow(bridge, "drone-1", "drone-2")
    with fleet(state_dir=tmp_path) as served, client(served) as timely, client(served) as bridge:
        orders = bridge.stop_orders(["drone-3"])
        next(orders)
        answer = timely.stop_fleet(deadline_s=0.0)
        assert sorted(answer["robots"]) == ["drone-1", "drone-2", "drone-3"]
        assert (answer["robots"]["drone-1"]["state"], answer["success"]) == ("unknown", False)
        details = [answer["robots"][name]["detail"] for name in ("drone-1", "drone-3")]
        assert details == [fleet_stop.NO_BRIDGE, "no acknowledgement"]
        bridge.acknowledge_stop(answer["stop_id"], "drone-3", "at_rest")
        with pytest.raises(Conflict, match="drone-3"):
            timely.remove_stop_robots(["drone-1", "drone-3"])
        assert timely.remove_stop_robots(["drone-1", "drone-2", "x"]) == ["drone-1", "drone-2"]
        assert timely.stop_state()["success"]
        orders.close()
    with fleet(state_dir=tmp_path) as served, client(served) as timely:
        assert list(timely.stop_fleet(deadline_s=0.0)["robots"]) == ["drone-3"]


def test_two_bridges_of_one_robot_name_each_acknowledge_their_own(
    served: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    with client(served) as timely, client(served) as hall, client(served) as lab:
        streams = [hall.stop_orders(["arm"], "hall"), lab.stop_orders(["arm"], "lab")]
        for stream in streams:
            next(stream)
        assert timely.stop_state()["duplicates"] == {"arm": ["hall", "lab"]}
        assert served.http.get("/v1/status").json()["robot_problems"] == {}
        assert "timely_fleet_duplicate_robots 1.0" in served.http.get("/metrics").text
        assert "arm: several bridges have a robot of this name" in caplog.text
        stop_id = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        for stream in streams:
            next(stream)
        hall.acknowledge_stop(stop_id, "arm", "at_rest")
        state = timely.stop_state()
        assert (state["robots"]["arm"]["state"], state["success"]) == ("unknown", False)
        assert state["robots"]["arm"]["by_bridge"] == {"hall": "at_rest", "lab": "unknown"}
        lab.acknowledge_stop(stop_id, "arm", "halted")
        state = timely.stop_state()
        assert (state["robots"]["arm"]["state"], state["success"]) == ("halted", True)
        for stream in streams:
            stream.close()


def test_a_bridge_is_the_same_after_its_restart_and_that_of_the_server(tmp_path: Path) -> None:
    for _ in range(2):
        with fleet(state_dir=tmp_path) as served, client(served) as timely:
            for _ in range(2):
                with client(served) as bridge:
                    follow(bridge, "arm", bridge_id="hall")
            with client(served) as other:
                follow(other, "arm", bridge_id="lab")
            assert timely.stop_state()["duplicates"] == {"arm": ["hall", "lab"]}


def test_a_bridge_that_an_operator_replaced_is_removed_and_the_other_stays(tmp_path: Path) -> None:
    with fleet(state_dir=tmp_path) as served, client(served) as timely, client(served) as bridge:
        follow(bridge, "arm", bridge_id="old")
        orders = bridge.stop_orders(["arm"], "new")
        next(orders)
        stop_id = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        next(orders)
        bridge.acknowledge_stop(stop_id, "arm", "at_rest")
        assert not timely.stop_state()["success"]
        assert timely.stop_state()["robots"]["arm"]["detail"] == fleet_stop.GONE_BRIDGE
        assert served.http.get("/v1/status").json()["robot_problems"] == {"arm": fleet_stop.GONE_BRIDGE}
        assert timely.remove_stop_robots(["arm"]) == ["arm"]
        state = timely.stop_state()
        assert (state["success"], state["duplicates"]) == (True, {})
        with pytest.raises(Conflict, match="arm"):
            timely.remove_stop_robots(["arm"])
        orders.close()
    with fleet(state_dir=tmp_path) as served, client(served) as timely:
        assert timely.stop_state()["duplicates"] == {}


def test_two_streams_of_one_name_without_an_identity_are_visible(served: Fleet) -> None:
    with client(served) as timely, client(served) as first, client(served) as second:
        streams = [first.stop_orders(["arm"]), second.stop_orders(["arm"])]
        for stream in streams:
            next(stream)
        assert timely.stop_state()["duplicates"] == {"arm": ["", ""]}
        for stream in streams:
            stream.close()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_bridge_that_gets_an_identity_takes_its_robots_over(served: Fleet, is_open: bool) -> None:
    """Another bridge of an earlier release that follows now keeps its own."""
    with client(served) as timely, client(served) as earlier, client(served) as bridge:
        past = earlier.stop_orders(["arm"])
        next(past)
        stop_id = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        if not is_open:
            past.close()
            served.until(lambda: served.service.fleet_stop.latch.view()["bridges"] == 0)
        orders = bridge.stop_orders(["arm"], "hall")
        next(orders)
        bridge.acknowledge_stop(stop_id, "arm", "at_rest")
        state = timely.stop_state()
        assert (state["success"], "arm" in state["duplicates"]) == (not is_open, is_open)
        orders.close()
        past.close()


def test_robots_of_an_earlier_release_are_read_and_it_reads_those_of_this_one(tmp_path: Path) -> None:
    """The first file is as releases wrote it before bridges had an identity. It stays as it is."""
    (tmp_path / "robots.json").write_text('{"robots": ["arm", "drone"], "complete": true}')
    with fleet(state_dir=tmp_path) as served, client(served) as timely, client(served) as bridge:
        follow(bridge, "arm", bridge_id="hall")
        answer = timely.stop_fleet(deadline_s=0.0)
        assert (list(answer["robots"]), answer["duplicates"]) == (["arm", "drone"], {})
    saved_file = json.loads((tmp_path / "robots.json").read_text())
    assert (sorted(saved_file["robots"]), saved_file["complete"]) == (["arm", "drone"], True)
    assert saved_file["bridges"] == {"arm": ["hall"]}
    assert sorted(json.loads((tmp_path / "stop.json").read_text())["robots"]) == ["arm", "drone"]


def test_an_operator_says_whose_robot_is_at_rest(guarded: Guarded) -> None:
    url = guarded.fleet.url
    with TimelyClient(url, token=TOKENS["ops"]) as ops, TimelyClient(url, token=TOKENS["drones"]) as bridge:
        for name in ("hall", "lab"):
            follow(bridge, "drone-1", bridge_id=name)
        stop_id = ops.stop_fleet(deadline_s=0.0)["stop_id"]
        with pytest.raises(Conflict, match="hall, lab"):
            ops.acknowledge_stop(stop_id, "drone-1", "at_rest")
        for name in ("hall", "lab"):
            assert not ops.stop_state()["success"]
            ops.acknowledge_stop(stop_id, "drone-1", "at_rest", bridge=name)
        assert ops.stop_state()["success"]


def test_an_operator_that_follows_a_stop_too_says_whose_robot_is_at_rest(guarded: Guarded) -> None:
    url = guarded.fleet.url
    with TimelyClient(url, token=TOKENS["ops"]) as ops, TimelyClient(url, token=TOKENS["drones"]) as bridge:
        follow(bridge, "drone-1", bridge_id="lab")
        orders = ops.stop_orders(["drone-1"], "hall")
        next(orders)
        stop_id = ops.stop_fleet(deadline_s=0.0)["stop_id"]
        next(orders)
        ops.acknowledge_stop(stop_id, "drone-1", "at_rest", bridge="lab")
        states = ops.stop_state()["robots"]["drone-1"]["by_bridge"]
        assert states == {"hall": "unknown", "lab": "at_rest"}
        orders.close()


def test_a_late_acknowledgement_of_a_bridge_with_an_operators_token_is_of_its_stop(guarded: Guarded) -> None:
    with TimelyClient(guarded.fleet.url, token=TOKENS["ops"]) as bridge:
        orders = bridge.stop_orders(["drone-1"], "hall")
        next(orders)
        stop_id = bridge.stop_fleet(deadline_s=0.0)["stop_id"]
        next(orders)
        bridge.stop_fleet(deadline_s=0.0)
        with pytest.raises(Conflict, match="stop_id"):
            bridge.acknowledge_stop(stop_id, "drone-1", "at_rest")
        orders.close()


@pytest.mark.parametrize("full", [robot_roster, fleet_stop])
def test_more_robots_than_a_stop_holds_are_no_success(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, full: ModuleType
) -> None:
    monkeypatch.setattr(full, "MAX_ROBOTS", 1)
    with (
        TimelyClient(guarded.fleet.url, token=TOKENS["drones"]) as bridge,
        TimelyClient(guarded.fleet.url, token=TOKENS["ops"]) as timely,
    ):
        follow(bridge, "drone-1", "drone-2")
        answer = timely.stop_fleet(deadline_s=0.0)
        (agent,) = answer["robots"]
        timely.acknowledge_stop(answer["stop_id"], agent, "at_rest")
        state = timely.stop_state()
        assert (len(state["robots"]), state["incomplete"], state["success"]) == (1, True, False)
        if full is fleet_stop:
            with pytest.raises(Overloaded):
                timely.acknowledge_stop(answer["stop_id"], "drone-3", "at_rest")


def test_a_file_of_robots_that_cannot_be_read_makes_no_stop_a_success(tmp_path: Path) -> None:
    (tmp_path / "robots.json").write_text("[]")
    with fleet(state_dir=tmp_path) as served, client(served) as timely:
        assert timely.stop_fleet(deadline_s=0.0)["incomplete"]
        timely.remove_stop_robots(["x"])
        assert not timely.stop_state()["incomplete"]


def test_stop_and_reset_by_role(guarded: Guarded) -> None:
    def as_(name: str) -> TimelyClient:
        return TimelyClient(guarded.fleet.url, token=TOKENS[name])

    for name in ("planner", "watcher"):
        with as_(name) as timely:
            with pytest.raises(NotAllowed):
                timely.stop_fleet(deadline_s=0.0)
            with pytest.raises(NotAllowed, match="answer for robots"):
                next(timely.stop_orders(["drone-1"]))
    with as_("drones") as bridge, as_("ops") as ops:
        stop_id = bridge.stop_fleet(deadline_s=0.0)["stop_id"]
        with pytest.raises(NotAllowed):
            bridge.reset_stop()
        with pytest.raises(NotAllowed):
            bridge.remove_stop_robots(["drone-1"])
        with pytest.raises(NotAllowed):
            bridge.acknowledge_stop(stop_id, "arm-1", "at_rest")
        with as_("planner") as program, pytest.raises(NotAllowed, match="answer for robots"):
            program.acknowledge_stop(stop_id, "drone-1", "at_rest")
        with pytest.raises(NotAllowed):
            next(bridge.stop_orders(["arm-1"]))
        assert ops.reset_stop()["stop_id"] == stop_id


@pytest.mark.parametrize(("agents", "status"), [(["arm-1", "drone-1"], 403), (["arm-1", "arm-2"], 200)])
def test_an_operator_of_some_robots_resets_and_removes_no_others(
    guarded: Guarded, agents: list[str], status: int
) -> None:
    with guarded.as_("arm-ops") as operator, TimelyClient(guarded.fleet.url, token=TOKENS["ops"]) as bridge:
        follow(bridge, *agents)
        stop_id = operator.post("/v1/stop", json={"deadline_s": 0.0}).json()["stop_id"]
        assert operator.post("/v1/stop/reset", json={"stop_id": stop_id}).status_code == status
        removal = operator.delete("/v1/stop/robots", params={"agent": agents})
        assert (removal.status_code == 403) == (status == 403)


def test_an_operator_of_some_robots_resets_no_stop_in_which_robots_are_missing(guarded: Guarded) -> None:
    latch = guarded.fleet.service.fleet_stop.latch
    latch.roster.incomplete = True
    with guarded.as_("arm-ops") as operator, guarded.as_("ops") as all_robots:
        stop_id = operator.post("/v1/stop", json={"deadline_s": 0.0}).json()["stop_id"]
        assert operator.post("/v1/stop/reset", json={"stop_id": "stop-1"}).status_code == 409
        assert operator.post("/v1/stop/reset", json={"stop_id": stop_id}).status_code == 403
        assert operator.delete("/v1/stop/robots", params={"agent": "arm-1"}).status_code == 403
        assert latch.incomplete
        assert all_robots.post("/v1/stop/reset", json={"stop_id": stop_id}).status_code == 200


def test_the_reason_of_a_stop_is_shown_with_the_principal_that_gave_it(guarded: Guarded) -> None:
    def shown(timely: TimelyClient) -> tuple[str, str]:
        state = timely.stop_state()
        return state["reason"], state["principal"]

    with (
        TimelyClient(guarded.fleet.url, token=TOKENS["drones"]) as bridge,
        TimelyClient(guarded.fleet.url, token=TOKENS["ops"]) as ops,
    ):
        bridge.stop_fleet("low battery", deadline_s=0.0)
        ops.stop_fleet(deadline_s=0.0)
        assert shown(ops) == ("low battery", "drones")
        ops.stop_fleet("smoke", deadline_s=0.0)
        assert shown(ops) == ("smoke", "ops")


def test_a_stop_survives_a_restart_until_a_reset(tmp_path: Path) -> None:
    with fleet(state_dir=tmp_path) as first, client(first) as timely, client(first) as bridge:
        orders = bridge.stop_orders(["drone-1"])
        next(orders)
        answer = timely.stop_fleet("smoke", deadline_s=0.0)
        bridge.acknowledge_stop(answer["stop_id"], "drone-1", "at_rest")
        assert timely.stop_state()["success"]
        orders.close()
    assert answer["saved"]
    with fleet(state_dir=tmp_path) as second, client(second) as timely, client(second) as bridge:
        state = timely.stop_state()
        assert (state["stop_id"], state["reason"], state["success"]) == (answer["stop_id"], "smoke", False)
        assert state["robots"]["drone-1"]["state"] == "unknown", "what it did meanwhile is not known"
        with pytest.raises(Conflict, match="stopped"):
            timely.submit("short", skill_set="tiny-drone")
        orders = bridge.stop_orders(["drone-1"])
        assert next(orders) == StopOrder("stop", answer["stop_id"], "smoke")
        bridge.acknowledge_stop(answer["stop_id"], "drone-1", "at_rest")
        assert timely.stop_state()["success"]
        orders.close()
        assert timely.reset_stop()["saved"]
    with fleet(state_dir=tmp_path) as third, client(third) as timely:
        assert not timely.stop_state()["stopped"]
        timely.submit("short", skill_set="tiny-drone").close()


@pytest.mark.parametrize("restarts", ["while it is latched", "after the reset"])
def test_a_bridge_that_missed_stop_and_reset_hears_of_them_after_a_restart(
    tmp_path: Path, restarts: str
) -> None:
    """It would stay stopped without a reason: no server would name its stop any more."""
    with fleet(state_dir=tmp_path) as served, client(served) as timely:
        stop_ids = tuple(timely.stop_fleet("smoke", deadline_s=0.0)["stop_id"] for _ in range(2))
        if restarts == "after the reset":
            assert timely.reset_stop()["saved"]
    with fleet(state_dir=tmp_path) as served, client(served) as timely, client(served) as bridge:
        if restarts == "while it is latched":
            timely.reset_stop()
        orders = bridge.stop_orders(["drone-1"])
        assert next(orders) == StopOrder("reset", stop_ids[-1], stop_ids=stop_ids)
        orders.close()
        last = timely.stop_fleet("smoke", deadline_s=0.0)["stop_id"]
    with fleet(state_dir=tmp_path) as served, client(served) as timely, client(served) as bridge:
        orders = bridge.stop_orders(["drone-1"])
        assert next(orders) == StopOrder("stop", last, "smoke")
        timely.reset_stop()
        assert next(orders) == StopOrder("reset", last, stop_ids=(*stop_ids, last))
        orders.close()


@pytest.mark.parametrize("content", ["", "[]", '{"stop_ids": 1}', '{"stop_ids": [["stop-1"]]}', "\xff"])
def test_released_stops_that_cannot_be_read_release_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "released-stops.json").write_bytes(content.encode("latin-1"))
    with fleet(state_dir=tmp_path) as served, client(served) as bridge:
        orders = bridge.stop_orders(["drone-1"])
        assert next(orders) == StopOrder("clear")
        orders.close()


def test_a_stop_that_the_disk_refuses_holds_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with fleet(state_dir=tmp_path / "file") as served, client(served) as timely:
        assert not timely.stop_fleet(deadline_s=0.0)["saved"]
        with pytest.raises(Conflict, match="stopped"):
            timely.submit("short", skill_set="tiny-drone")


def test_a_server_that_ends_with_a_stop_on_no_disk_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with fleet(state_dir=tmp_path / "file") as served, client(served) as timely:
        timely.stop_fleet(deadline_s=0.0)
        assert "the next start will not have it" not in caplog.text
    assert "the state of the stop: on no disk, so the next start will not have it" in caplog.text


def test_what_the_disk_refused_of_a_stop_is_saved_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop_file, "RETRY_S", 0.01)
    (tmp_path / "state").touch()
    with fleet(state_dir=tmp_path / "state") as served, client(served) as timely, client(served) as bridge:
        follow(bridge, "drone-1")
        assert not timely.stop_fleet(deadline_s=0.0)["saved"]
        (tmp_path / "state").unlink()
        served.until((tmp_path / "state" / "robots.json").exists)
        served.until(lambda: served.service.fleet_stop.latch.view()["saved"])
    with fleet(state_dir=tmp_path / "state") as served, client(served) as timely:
        assert list(timely.stop_state()["robots"]) == ["drone-1"]


def test_a_stop_is_not_called_saved_before_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fleet(state_dir=tmp_path) as served, client(served) as timely:
        timely.stop_fleet(deadline_s=0.0)
        assert timely.reset_stop()["saved"]
        goes_on = threading.Event()
        write = ServerStopFile.write

        def slow(file: ServerStopFile, stop: SavedServerStop | None) -> bool:
            assert goes_on.wait(WAIT_S)
            return write(file, stop)

        monkeypatch.setattr(ServerStopFile, "write", slow)
        monkeypatch.setattr(stop_service, "ENDING_S", 0.01)
        assert not timely.stop_fleet(deadline_s=0.0)["saved"]
        goes_on.set()
        served.until(lambda: served.service.fleet_stop.latch.view()["saved"])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"stop_id": "stop-1"}'])
def test_a_saved_stop_that_cannot_be_read_is_a_stop(tmp_path: Path, content: str) -> None:
    (tmp_path / "stop.json").write_text(content)
    with fleet(state_dir=tmp_path) as served, client(served) as timely:
        assert "cannot be read" in timely.stop_state()["reason"]
        with pytest.raises(Conflict, match="stopped"):
            timely.submit("short", skill_set="tiny-drone")
        timely.reset_stop()
        timely.submit("short", skill_set="tiny-drone").close()


def test_a_task_that_is_being_prepared_does_not_pass_a_stop(served: Fleet) -> None:
    preparing, stopped = threading.Event(), threading.Event()

    async def tokenize(text: str) -> list[int]:
        preparing.set()
        await asyncio.to_thread(stopped.wait, WAIT_S)
        return []

    engine = served.engine
    engine.tokenize = tokenize  # type: ignore[method-assign]
    answers: list[httpx.Response] = []
    asking = threading.Thread(
        target=lambda: answers.append(served.http.post("/v1/tasks", json=body("x" * 4_000)))
    )
    with patch.object(ScriptedEngine, "max_prompt_tokens", 10), client(served) as timely:
        asking.start()
        assert preparing.wait(WAIT_S)
        timely.stop_fleet(deadline_s=0.0)
        stopped.set()
        asking.join(WAIT_S)
    assert (answers[0].status_code, answers[0].json()["code"]) == (409, "conflict")


def test_each_port_has_a_state_folder_and_a_free_port_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path))
    assert serve._cli_state_folder(None, 8000) == tmp_path / "server-8000"
    assert serve._cli_state_folder(None, 0) is None
    assert serve._cli_state_folder(tmp_path / "own", 0) == tmp_path / "own"
