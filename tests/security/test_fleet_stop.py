"""The stop of all robots over HTTP: acknowledged robot by robot, latched, and honest about the unknown."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from fleet import Fleet, Reader, body
from guarded import TOKENS, Guarded

from timely.client import StopOrder, TimelyClient
from timely.core.errors import Conflict, NotAllowed


def client(served: Fleet, **options: Any) -> TimelyClient:
    return TimelyClient(served.url, agent="drone-1", sleep=lambda seconds: None, **options)


def test_without_any_robot_the_stop_is_no_success(served: Fleet) -> None:
    with client(served) as timely:
        answer = timely.stop_fleet("a drill", deadline_s=0.0)
    assert (answer["success"], answer["robots"], answer["bridges"]) == (False, {}, 0)


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
        assert outcome["robots"]["drone-1"]["state"] == "unknown", "a robot with a task and without a bridge"
        assert timely.task(task_id)["outcome"] == "cancelled"
        with pytest.raises(Conflict, match="stopped"):
            timely.submit("short", skill_set="tiny-drone")
        again = timely.stop_fleet(deadline_s=0.0)
        assert again["stop_id"] == outcome["stop_id"]
        assert timely.reset_stop()["stop_id"] == outcome["stop_id"]
        with pytest.raises(Conflict):
            timely.reset_stop()
        timely.submit("short", skill_set="tiny-drone").close()


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


def test_a_bridge_that_returns_gets_the_stop_first(served: Fleet) -> None:
    with client(served) as timely, client(served) as bridge:
        stop_id = timely.stop_fleet(deadline_s=0.0)["stop_id"]
        orders = bridge.stop_orders(["drone-9"])
        assert next(orders) == StopOrder("stop", stop_id)
        assert timely.stop_state()["robots"]["drone-9"]["state"] == "unknown"
        bridge.acknowledge_stop(stop_id, "drone-9", "at_rest")
        timely.reset_stop()
        assert next(orders) == StopOrder("reset", stop_id)
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


def test_stop_and_reset_by_role(guarded: Guarded) -> None:
    def as_(name: str) -> TimelyClient:
        return TimelyClient(guarded.fleet.url, token=TOKENS[name])

    for name in ("planner", "watcher"):
        with as_(name) as timely, pytest.raises(NotAllowed):
            timely.stop_fleet(deadline_s=0.0)
    with as_("drones") as bridge, as_("ops") as ops:
        stop_id = bridge.stop_fleet(deadline_s=0.0)["stop_id"]
        with pytest.raises(NotAllowed):
            bridge.reset_stop()
        with pytest.raises(NotAllowed):
            bridge.acknowledge_stop(stop_id, "arm-1", "at_rest")
        with pytest.raises(NotAllowed):
            next(bridge.stop_orders(["arm-1"]))
        assert ops.reset_stop()["stop_id"] == stop_id
