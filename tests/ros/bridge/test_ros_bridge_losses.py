"""The bridge when a part is lost or held up: server, driver, a segment, an answer, a heartbeat."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from bridge_doubles import FakeSegment, FakeServer
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from fleet_world import SCRIPTS, World, a_fleet, fleet_world, lease_of
from rclpy.task import Future
from ros_harness import AT_ONCE_S, LIMIT_S, eventually
from timely_bridge import driver_port
from timely_interfaces.action import ExecuteSegment
from timely_interfaces.msg import ErrorCode, RobotState
from timely_interfaces.msg import Task as TaskNews
from timely_robots.ros.actions import send_ros_goal

from timely.core.errors import EngineFailed

pytestmark = [pytest.mark.ros]


def test_a_server_that_is_gone_is_noticed_and_found_again(domain_id: int, server: FakeServer) -> None:
    with fleet_world(domain_id, a_fleet(heartbeat_period_s=0.1, heartbeat_misses=2), server) as made:
        heard = made.program.listen(DiagnosticArray, "/diagnostics")
        server.down = True

        def level() -> bytes | None:
            return heard[-1].status[0].level if heard else None

        eventually(lambda: level() == DiagnosticStatus.ERROR, "nobody noticed")
        begin = time.monotonic()
        result = made.task("drone1", "fly").result()
        assert (result.outcome, result.error_code) == ("refused", ErrorCode.SERVER_UNREACHABLE)
        assert time.monotonic() - begin < 5.0
        server.down = False
        eventually(lambda: level() == DiagnosticStatus.OK, "nobody noticed that it is back")
        # With a heartbeat of a tenth of a second a machine that stands still for two loses the server once more.
        eventually(lambda: made.task("drone1", "fly").result().outcome == "complete")


def test_a_driver_that_vanishes_ends_the_task(world: World) -> None:
    goal = world.task("drone1", "wait")
    eventually(lambda: goal.feedback, "it never began")
    driver = world.fleet.drivers["drone1"]

    def vanish() -> None:
        # As a killed process: no word to anyone.
        while driver._timers_while_configured:
            driver.destroy_timer(driver._timers_while_configured.pop())
        driver._state_publisher.publish = lambda message: None
        driver._finish = lambda *args: None

    world.fleet.spinner.call_and_wait(vanish, LIMIT_S)
    begin = time.monotonic()
    result = goal.result()
    assert (result.outcome, result.error_code) == ("failed", ErrorCode.DRIVER_LOST)
    assert time.monotonic() - begin < 5.0
    assert world.task("drone2", "fly").result().outcome == "complete"


def test_a_robot_whose_next_segment_does_not_come_holds_and_says_so(world: World) -> None:
    states = world.program.listen(RobotState, "/drone1/state", latched=True)
    health = world.program.listen(DiagnosticArray, "/diagnostics")
    world.server.ahead = 0
    goal = world.task("drone1", "fly")
    stream = eventually(lambda: next(iter(world.server.streams.values()), None))

    async def lost(*reports: object) -> None:
        raise EngineFailed("lost")

    stream.report = lost
    eventually(lambda: any(state.mode == RobotState.HOLDING for state in states), "it does not hold")
    ended = next(i for i, state in enumerate(states) if state.mode == RobotState.HOLDING)
    assert states[ended - 1].mode == RobotState.EXECUTING
    late_s = [
        (state.stamp.sec - before.stamp.sec) + 1e-9 * (state.stamp.nanosec - before.stamp.nanosec)
        for before, state in [(states[ended - 1], states[ended])]
    ]
    assert max(late_s) < AT_ONCE_S
    assert "segment 1 has not come" in states[ended].detail

    def warned() -> bool:
        return any(
            part.hardware_id == "drone1" and part.level == DiagnosticStatus.WARN and "holds" in part.message
            for array in list(health)
            for part in array.status
        )

    eventually(warned, "its diagnostics do not say so")
    goal.cancel()
    assert goal.result().outcome == "cancelled"
    eventually(lambda: states[-1].mode == RobotState.READY, "it still holds for a task that has ended")


def test_a_task_nobody_speaks_of_any_more_goes_no_further(domain_id: int) -> None:
    fleet = a_fleet(1, 0, speed=1.0)
    with fleet_world(domain_id, fleet, FakeServer(SCRIPTS)) as world:
        driver = world.fleet.drivers["drone1"]
        driver._watchdog.silence_s = 600.0
        driver._watchdog.observe("mine", TaskNews.PLANNING, 0, time.monotonic())
        texts = ["d(3);", "d(0.1);", "d(0.1);"]
        goals = [
            world.program.send(
                ExecuteSegment,
                "/drone1/execute_segment",
                task_id="mine",
                index=index,
                text=text,
                execution_s=1.0,
                **lease_of(world),
            )
            for index, text in enumerate(texts)
        ]
        eventually(lambda: driver.segments.executing and driver.segments.queued_segments == 2)
        driver._watchdog.silence_s = 0.0
        results = [goal.result() for goal in goals]
        assert [result.outcome for result in results] == ["done", "cancelled", "cancelled"], results
        assert 2.9 < results[0].elapsed_s < 3.0 + AT_ONCE_S
        assert "no message of the task" in results[1].error_msg


def test_a_driver_that_restarts_does_not_go_on_with_the_old_plan(world: World) -> None:
    goal = world.task("drone1", "wait")
    eventually(lambda: goal.feedback, "it never began")
    driver = world.fleet.drivers["drone1"]
    for step in ("deactivate", "activate"):
        world.fleet.spinner.call_and_wait(getattr(driver, f"trigger_{step}"), LIMIT_S)
    result = goal.result()
    assert result.outcome == "failed"
    assert result.error_code in (ErrorCode.DRIVER_STOPPED, ErrorCode.DRIVER_LOST)
    eventually(lambda: world.task("drone1", "fly").result().outcome == "complete")


def test_a_segment_that_comes_twice_from_elsewhere_moves_nothing(world: World) -> None:
    goal = world.task("drone1", "wait")
    task_id = eventually(lambda: goal.feedback)[0].segment.task_id
    for fields, code in (({}, ErrorCode.NOT_OWNER), (lease_of(world), ErrorCode.DUPLICATE)):
        again = world.program.send(
            ExecuteSegment, "/drone1/execute_segment", task_id=task_id, index=0, text="mf(100);", **fields
        )
        assert again.result().error_code == code
    goal.cancel()
    goal.result()


@pytest.mark.parametrize("arrives", [True, False], ids=["acceptance lost", "goal lost"])
def test_a_goal_without_an_answer_is_asked_for_and_never_executed_twice(
    world: World, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def lossy(client: Any, goal: Any, feedback: Any, goal_id: Any) -> Any:
        sent.append(goal.index)
        if len(sent) > 1:
            return send_ros_goal(client, goal, feedback, goal_id)
        if arrives:
            # The driver takes it, and nobody here hears of that.
            send_ros_goal(client, goal, feedback, goal_id)
        return Future()

    monkeypatch.setattr(driver_port, "send_ros_goal", lossy)
    goal = world.task("drone1", "fly")
    result = goal.result()
    assert (result.outcome, result.error_code) == ("complete", 0)
    assert sent == ([0, 1, 2] if arrives else [0, 0, 1, 2])
    assert world.server.kinds(goal.feedback[0].segment.task_id) == [
        (what, index) for index in range(3) for what in ("started", "done")
    ]


def test_no_segment_is_lost_before_a_driver_that_is_held_up(domain_id: int) -> None:
    held, script = threading.Event(), [FakeSegment("mf(20);", 1.0)] * 16

    class Server(FakeServer):
        async def submit(self, task: str, **fields: Any) -> Any:
            here.fleet.spinner.call(held.wait, LIMIT_S)  # of the bridge and the driver
            return await super().submit(task, **fields)

    here = World(domain_id, a_fleet(1, 0, speed=100.0, driver_silence_s=LIMIT_S), Server({"many": script}))
    try:
        port = here.fleet.bridge._robots["drone1"].port
        eventually(lambda: port.alive, "the bridge has no lease")
        goal = here.task("drone1", "many")
        eventually(lambda: len(port._goals) == len(script), "not all segments were sent")
        held.set()
        assert goal.result().error_msg == ""
    finally:
        held.set()
        here.close()
