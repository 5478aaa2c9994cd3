"""One task from goal to result, against a server and a driver that behave, in virtual time."""

from __future__ import annotations

import math

import pytest
from bridge_doubles import FakeSegment, FakeServer
from plan_world import GENEROUS, PLAN, TEXT, world
from timely_bridge.goals import bridge_scene_with_object
from timely_bridge.interfaces import SegmentExecution
from timely_bridge.robot_lock import BridgeRobotClaim
from timely_interfaces.msg import ErrorCode

from timely.core.errors import EngineFailed, TimelyError, UnsafeSegment
from timely.core.reports import MAX_REASON_CHARS
from timely.core.utility import URGENT, TimeUtility


@pytest.mark.parametrize("ahead", [None, 0])
async def test_a_plan_is_executed_once_in_order_and_reported(ahead: int | None) -> None:
    async with world(FakeServer({"go": PLAN}, ahead=ahead)) as here:
        run, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code, end.plan) == ("complete", 0, TEXT)
        assert [(order.index, order.text) for order in here.feedback] == [
            (0, "mf(100);"),
            (1, "tc(90);"),
            (2, "mu(40);"),
        ]
        assert [entry[1:] for entry in here.driver.log] == [
            (index, what) for index in range(3) for what in ("started", "done")
        ]
        assert here.server.kinds("t1") == [
            (what, index) for index in range(3) for what in ("started", "done")
        ]
        assert run.executing == 0
        assert here.server.submitted[0]["id"] == "t1"
        assert here.server.submitted[0]["deadline_s"] == GENEROUS.task_s
        assert here.server.submitted[0]["wait_s"] == 0.8 * GENEROUS.submit_s


async def test_times_and_utility_follow_the_definitions() -> None:
    async with world() as here:
        _, task = here.run(utility=TimeUtility(0.0, -1.0, 1.0))
        end = await here.end_of(task)
        # Nothing takes time but the robot, which starts at once and is never idle.
        assert end.response == pytest.approx(0.0, abs=0.06)
        assert end.waiting == pytest.approx(0.0, abs=0.06)
        assert end.utility == pytest.approx(1.0 - end.response)


async def test_segments_sent_ahead_leave_no_gap() -> None:
    async with world() as here:
        begin = here.time.now()
        _, task = here.run()
        await here.end_of(task)
        assert here.time.now() - begin == pytest.approx(6.0, abs=0.11)


async def test_the_value_of_a_blocking_segment_reaches_the_server() -> None:
    plan = (FakeSegment("rp();", 1.0, blocking=True), FakeSegment("mf(50);", 1.0))
    async with world(FakeServer({"go": plan}), values={"rp();": "a cat"}) as here:
        _, task = here.run()
        end = await here.end_of(task)
        assert end.outcome == "complete"
        assert here.server.kinds("t1") == [("started", 0), ("value", 0), ("started", 1), ("done", 1)]
        assert (
            next(report for report in here.server.reports if report.kind == "value").fields["value"]
            == "a cat"
        )


async def test_the_first_segment_that_fails_says_why_the_plan_ended() -> None:
    """A driver refuses the segments behind it as well, perhaps in the same moment and for another reason."""
    async with world() as here:
        run, task = here.run()
        await here.until(lambda: len(run.sent_segments) == 3)
        codes = (ErrorCode.SEGMENT_CANCELLED, ErrorCode.OUT_OF_ORDER, ErrorCode.OUT_OF_ORDER)
        for sent_segment, code in zip(run.sent_segments, codes, strict=True):
            sent_segment.ended.set_result(SegmentExecution("refused", code, "refused"))
        end = await here.end_of(task)
        assert end.code == ErrorCode.SEGMENT_CANCELLED
        assert here.server.kinds("t1")[-1] == ("failed", 0)


async def test_a_failed_segment_ends_the_task_with_the_drivers_code() -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0), fails=["tc(90);"]) as here:
        _, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("failed", ErrorCode.MOTION_FAILED)
        assert "segment 1" in end.message
        assert "stuck" in end.message
        assert here.server.kinds("t1")[-1] == ("failed", 1)
        assert ("t1", 2, "started") not in here.driver.log
        assert here.server.reports[-1].fields["elapsed_s"] == here.notes[-1].elapsed_s > 0.0
        assert (here.notes[-1].reason, here.notes[-1].error_code) == ("stuck", ErrorCode.MOTION_FAILED)


async def test_a_segment_that_its_driver_refuses_ends_the_task_for_the_drivers_reason() -> None:
    """It was never begun, so there is no response."""
    async with world(FakeServer({"go": PLAN[:1]})) as here:
        here.driver.mute = True
        run, task = here.run()
        await here.until(lambda: bool(run.sent_segments))
        refusal = SegmentExecution("refused", ErrorCode.NOT_OWNER, "the lease is of another bridge")
        run.sent_segments[0].ended.set_result(refusal)
        end = await here.end_of(task)
        assert end.code == ErrorCode.NOT_OWNER
        assert "the lease is of another bridge" in end.message
        assert math.isnan(end.response)


async def test_a_long_complaint_of_a_driver_is_cut_to_what_the_server_takes() -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0), fails=["tc(90);"], failure="x" * 5000) as here:
        _, task = here.run()
        assert len((await here.end_of(task)).message) > 5000
        assert here.server.reports[-1].fields["reason"] == "x" * MAX_REASON_CHARS


async def test_what_was_sent_ahead_is_not_executed_after_a_failure() -> None:
    async with world(fails=["mf(100);"]) as here:
        _, task = here.run()
        assert (await here.end_of(task)).code == ErrorCode.MOTION_FAILED
        assert [entry[1] for entry in here.driver.log] == [0, 0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnsafeSegment("mf(9999)"), ErrorCode.UNSAFE_SEGMENT),
        (EngineFailed("died", where="engine"), ErrorCode.ENGINE_FAILED),
        (EngineFailed("connection lost", where="http://server"), ErrorCode.SERVER_UNREACHABLE),
    ],
)
async def test_when_the_plan_breaks_off_the_robot_finishes_what_it_has(error: TimelyError, code: int) -> None:
    async with world(FakeServer({"go": (*PLAN[:2], error)})) as here:
        _, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code, end.plan) == ("failed", code, "mf(100);tc(90);")
        assert here.driver.log[-1] == ("t1", 1, "done")


async def test_a_goal_the_server_refuses_is_refused() -> None:
    server = FakeServer({"go": PLAN}, skill_sets=["arm"])
    async with world(server) as here:
        _, task = here.run()
        end = await here.end_of(task)
        assert (end.outcome, end.code) == ("refused", ErrorCode.UNKNOWN_NAME)
        assert "arm" in end.message


async def test_nothing_is_submitted_or_sent_before_the_disk_knows_of_it() -> None:
    async with world(FakeServer({"go": PLAN}, ahead=0)) as here:
        other = BridgeRobotClaim(False, lambda code, message: None)
        await here.lock.acquire(other)
        here.disk.clear()
        _, task = here.run()
        await here.time.run_for(3.0)
        assert here.server.submitted == []
        here.disk.set()
        await here.until(lambda: here.lock.queue_length == 1)
        here.disk.clear()
        here.lock.release(other)
        await here.time.run_for(3.0)
        assert here.feedback == []
        here.disk.set()
        assert (await here.end_of(task)).outcome == "complete"


async def test_two_tasks_of_one_robot_are_not_mixed() -> None:
    async with world(FakeServer({"go": PLAN, "come": PLAN}, ahead=0)) as here:
        _, first = here.run("go", name="t1")
        await here.until(lambda: bool(here.driver.log))
        _, second = here.run("come", name="t2")
        await here.end_of(first)
        end = await here.end_of(second)
        assert end.outcome == "complete"
        assert [entry[0] for entry in here.driver.log] == ["t1"] * 6 + ["t2"] * 6
        assert end.response > 4.0, "it was generated meanwhile and waited for the robot"


async def test_an_urgent_task_takes_the_robot_under_preempt() -> None:
    async with world(FakeServer({"go": PLAN, "dodge": PLAN[:1]}, ahead=0), policy="preempt") as here:
        _, normal = here.run("go", name="t1")
        await here.until(lambda: ("t1", 1, "started") in here.driver.log)
        _, urgent = here.run("dodge", name="t2", utility=URGENT)
        end = await here.end_of(urgent)
        cut = normal.result()
        assert (cut.outcome, cut.code) == ("cancelled", ErrorCode.PREEMPTED)
        assert end.outcome == "complete"
        assert end.response == pytest.approx(0.0, abs=0.1)


async def test_a_second_task_is_refused_under_reject() -> None:
    async with world(FakeServer({"go": PLAN, "come": PLAN}), policy="reject") as here:
        _, first = here.run("go", name="t1")
        await here.until(lambda: bool(here.driver.log))
        _, second = here.run("come", name="t2")
        end = await here.end_of(second)
        assert (end.outcome, end.code) == ("refused", ErrorCode.ROBOT_BUSY)
        assert len(here.server.submitted) == 1
        assert (await here.end_of(first)).outcome == "complete"


async def test_the_scene_of_a_plan_names_what_the_robot_holds() -> None:
    async with world() as here:
        here.driver.holding = "cup"
        _, task = here.run(scene="plate, bin")
        await here.end_of(task)
        assert here.server.submitted[0]["scene"] == "plate, bin, cup in your gripper"
        here.driver.holding = ""
        _, task = here.run(scene="plate, bin", name="t2")
        await here.end_of(task)
        assert here.server.submitted[1]["scene"] == "plate, bin"


async def test_what_another_task_holds_says_nothing_about_the_next() -> None:
    """It will be put down by then; unless the next one takes the robot away from it."""
    for policy, expected in (("queue", "bin"), ("preempt", "bin, cup in your gripper")):
        async with world(policy=policy) as here:
            _, first = here.run()
            await here.until(lambda: bool(here.driver.log))
            here.driver.holding = "cup"
            _, second = here.run(scene="bin", utility=URGENT, name="t2")
            await here.until(lambda: len(here.server.submitted) == 2)
            assert here.server.submitted[1]["scene"] == expected
            await here.end_of(first)
            await here.end_of(second)


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        ("", "cup in your gripper"),
        ("  ", "cup in your gripper"),
        ("plate, bin", "plate, bin, cup in your gripper"),
        ("A plate and a bin.", "A plate and a bin, cup in your gripper"),
        ("Cup, plate , cup holder", "plate, cup holder, cup in your gripper"),
    ],
)
def test_the_scene_names_the_object_once(scene: str, expected: str) -> None:
    assert bridge_scene_with_object(scene, "cup") == expected
    assert bridge_scene_with_object(scene, "") == scene
