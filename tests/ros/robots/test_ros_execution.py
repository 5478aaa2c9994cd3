"""The segment executor: order, at most once, cancel, stop, honest reports; in virtual time, without ROS."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from manual_robot_clock import ManualRobotClock
from timely_robots import driver_store, halter, language
from timely_robots.driver_store import DriverStore
from timely_robots.error_codes import ErrorCode
from timely_robots.execution import SegmentExecutor
from timely_robots.halter import MAX_OPEN
from timely_robots.robot import Robot
from timely_robots.segments import Motion, MotionError, SegmentOrder, SegmentResult, SkillCall, SkillValue

from lrtrace.profiles import load_robot_profile
from timely.core.errors import InvalidInput

LIMIT_S = 5.0


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.ended = threading.Event()
        self.done: list[SegmentResult] = []
        self.progress: list[tuple[float, float, float]] = []

    def on_start(self) -> None:
        self.began.set()

    def on_progress(self, fraction: float, elapsed_s: float, remaining_s: float) -> None:
        self.progress.append((fraction, elapsed_s, remaining_s))

    def on_end(self, done: SegmentResult) -> None:
        self.done.append(done)
        self.ended.set()

    def result(self) -> SegmentResult:
        assert self.ended.wait(LIMIT_S), "the segment never ended"
        assert len(self.done) == 1, "more than one last word"
        return self.done[0]


def plan(letters: str) -> str:
    """A call for each letter; ``#`` is in no language."""
    return "".join(f"l('{letter}');" if letter != "#" else letter for letter in letters)


def calls(letters: str) -> str:
    return ";".join(f"l('{letter}')" for letter in letters)


class Body(Robot):
    """A robot that takes 1 s for each call; ``!`` fails, ``%`` is a defect, ``?`` has an answer."""

    def __init__(self, clock: ManualRobotClock) -> None:
        super().__init__(clock=clock)
        self.profile = load_robot_profile("sim-drone")
        self.moved: list[str] = []
        self.halts = 0

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        (letter,) = call.args
        if letter == "!":
            raise MotionError("stuck")
        if letter == "%":
            raise RuntimeError("a defect")
        motion.sleep(1.0)
        self.moved.append(str(letter))
        return "yes" if letter == "?" else None

    def halt(self) -> None:
        self.halts += 1


class Bench:
    """An executor on virtual time."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualRobotClock(10.0)
        self.body = Body(self.clock)
        self.work = SegmentExecutor(self.body, **options)

    def send(self, index: int, text: str, task: str = "t") -> Listener:
        listener = Listener()
        self.work.submit(SegmentOrder(task, index, plan(text), "drone", float(len(text))), listener)
        return listener

    def run_until(self, what: Callable[[], bool], step_s: float = 0.25) -> None:
        for _ in range(10_000):
            if what():
                return
            if not self.clock.until_waiting(timeout_s=0.02) and what():
                return
            self.clock.advance(step_s)
        raise AssertionError("it never came to that")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A halt may take long on a busy machine."""
    monkeypatch.setattr(halter, "HALT_S", LIMIT_S)
    monkeypatch.setattr(halter, "HALT_FIRST_S", LIMIT_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    assert made.work.close(LIMIT_S), "the motion thread did not end"


def test_segments_are_executed_in_order_without_a_gap(bench: Bench) -> None:
    listeners = [bench.send(index, text) for index, text in enumerate(["ab", "c", "def"])]
    bench.run_until(listeners[-1].ended.is_set)
    done = [listener.result() for listener in listeners]
    assert "".join(bench.body.moved) == "abcdef"
    assert [one.outcome for one in done] == ["done"] * 3
    assert [one.executed for one in done] == [calls("ab"), calls("c"), calls("def")]
    # Virtual time moves in steps of 0.25 s, which is all the slack there is.
    assert [one.elapsed_s for one in done] == pytest.approx([2.0, 1.0, 3.0], abs=0.5)
    assert done[1].start_s - done[0].end_s <= 0.25
    assert done[2].start_s - done[1].end_s <= 0.25


def test_a_repeated_segment_moves_nothing(bench: Bench) -> None:
    first = bench.send(0, "a")
    bench.run_until(first.ended.is_set)
    again = bench.send(0, "a").result()
    assert (again.outcome, again.code) == ("refused", ErrorCode.DUPLICATE)
    assert bench.body.moved == ["a"]


@pytest.mark.parametrize("done", [0, 1])
def test_a_repeat_says_whether_the_first_was_executed_to_its_end(bench: Bench, done: int) -> None:
    texts = [*["a"] * done, "b!", "c"]
    listeners = [bench.send(index, text) for index, text in enumerate(texts)]
    bench.run_until(listeners[-1].ended.is_set)
    codes = [bench.send(index, text).result().code for index, text in enumerate(texts)]
    assert codes == done * [ErrorCode.DUPLICATE] + 2 * [ErrorCode.SEGMENT_CANCELLED]
    assert bench.send(4, "d").result().code == ErrorCode.OUT_OF_ORDER


def test_a_repeat_while_the_first_still_waits_is_refused_too(bench: Bench) -> None:
    bench.send(0, "aaaa")
    waiting = bench.send(1, "b")
    assert bench.send(1, "b").result().code == ErrorCode.DUPLICATE
    bench.run_until(waiting.ended.is_set)
    assert "".join(bench.body.moved) == "aaaab"


@pytest.mark.parametrize("index", [1, 7])
def test_a_task_begins_at_zero(bench: Bench, index: int) -> None:
    # As after a restart of the driver in the middle of a plan.
    assert bench.send(index, "a").result().code == ErrorCode.OUT_OF_ORDER
    assert bench.body.moved == []


def test_a_gap_is_refused_and_the_task_may_go_on(bench: Bench) -> None:
    bench.send(0, "a")
    assert bench.send(2, "c").result().code == ErrorCode.OUT_OF_ORDER
    last = bench.send(1, "b")
    bench.run_until(last.ended.is_set)
    assert bench.body.moved == ["a", "b"]


def test_a_failure_ends_the_rest_of_the_task_only(bench: Bench) -> None:
    failing, after = bench.send(0, "a!b"), bench.send(1, "c")
    other = bench.send(0, "x", task="other")
    bench.run_until(other.ended.is_set)
    done = failing.result()
    assert (done.outcome, done.code, done.executed) == ("failed", ErrorCode.MOTION_FAILED, calls("a!"))
    assert after.result().code == ErrorCode.SEGMENT_CANCELLED
    assert bench.send(2, "d").result().code == ErrorCode.SEGMENT_CANCELLED
    assert other.result().outcome == "done"
    assert bench.body.moved == ["a", "x"]


def test_a_refused_segment_ends_the_rest_of_its_task(bench: Bench) -> None:
    assert bench.send(0, "#").result().code == ErrorCode.SEGMENT_INVALID
    assert bench.send(1, "a").result().code == ErrorCode.SEGMENT_INVALID
    assert bench.body.moved == []


def test_a_defect_of_the_driver_is_a_typed_failure_with_the_robot_halted(bench: Bench) -> None:
    done = bench.send(0, "%").result()
    assert (done.outcome, done.code) == ("failed", ErrorCode.DRIVER_INTERNAL)
    assert "a defect" in done.message
    assert bench.body.halts == 1
    after = bench.send(0, "a", task="next")
    bench.run_until(after.ended.is_set)
    assert after.result().outcome == "done"


@pytest.mark.parametrize("place", ["task", "motion"])
def test_a_disk_that_refuses_is_said_and_the_next_task_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = DriverStore(tmp_path / "robot.json")
    bench = Bench(store=store)
    try:
        with monkeypatch.context() as disk:
            if place == "task":
                disk.setattr(driver_store, "append_file_line", full)
            else:
                disk.setattr(bench.body, "perform", full)
            done = bench.send(0, "a").result()
        assert (done.outcome, done.code) == ("failed", ErrorCode.STORAGE_FAILED)
        assert "No space left" in done.message
        assert bench.body.moved == []
        assert bench.send(0, "a").result().outcome == "refused", "the task has ended"
        after = bench.send(0, "b", task="next")
        bench.run_until(after.ended.is_set)
        assert after.result().outcome == "done"
    finally:
        assert bench.work.close(LIMIT_S)
        store.close()


def test_cancel_cuts_the_motion_at_once(bench: Bench) -> None:
    moving, waiting = bench.send(0, "abc"), bench.send(1, "d")
    assert moving.began.wait(LIMIT_S)
    bench.clock.until_waiting()
    bench.work.cancel("t", 0)
    done = moving.result()  # virtual time stands still: nothing but the cancellation can end it
    assert (done.outcome, done.code, done.executed) == ("cancelled", ErrorCode.SEGMENT_CANCELLED, calls("a"))
    assert done.elapsed_s == 0.0
    assert bench.body.halts == 2, "at once, and when the motion thread had ended the motion"
    assert waiting.result().outcome == "cancelled"
    assert bench.body.moved == []


def test_cancel_of_a_waiting_segment_lets_the_one_before_go_on(bench: Bench) -> None:
    moving, second, third = bench.send(0, "ab"), bench.send(1, "c"), bench.send(2, "d")
    assert moving.began.wait(LIMIT_S)
    bench.work.cancel("t", 1)
    assert second.result().outcome == third.result().outcome == "cancelled"
    bench.run_until(moving.ended.is_set)
    assert moving.result().outcome == "done"
    assert bench.send(3, "e").result().outcome == "refused"
    assert bench.body.moved == ["a", "b"]


def test_cancel_of_something_unknown_does_nothing(bench: Bench) -> None:
    bench.work.cancel("nobody", 3)
    last = bench.send(0, "a")
    bench.run_until(last.ended.is_set)
    bench.work.cancel("t", 0)
    assert last.result().outcome == "done"


def test_stop_needs_a_reset_and_ends_the_tasks_for_good(bench: Bench) -> None:
    moving, waiting = bench.send(0, "abc"), bench.send(0, "d", task="u")
    assert moving.began.wait(LIMIT_S)
    bench.work.stop("pressed")
    for listener in (moving, waiting):
        done = listener.result()
        assert (done.outcome, done.code, done.message) == ("cancelled", ErrorCode.DRIVER_STOPPED, "pressed")
    assert bench.work.state().stopped
    assert bench.send(0, "e", task="v").result().code == ErrorCode.DRIVER_STOPPED
    bench.work.reset()
    assert bench.send(1, "f").result().outcome == "refused", "its task was stopped"
    fresh = bench.send(0, "g", task="w")
    bench.run_until(fresh.ended.is_set)
    assert bench.body.moved == ["g"]


def test_stop_halts_a_robot_that_seems_to_be_at_rest(bench: Bench) -> None:
    bench.work.stop()
    assert bench.body.halts == 1


def test_a_reset_does_not_erase_a_stop_that_is_not_yet_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    halting, go_on, answers = threading.Event(), threading.Event(), list[str]()

    def halt() -> None:
        halting.set()
        go_on.wait(LIMIT_S)

    def stop() -> None:
        bench.work.stop("pressed")
        answers.append("halted")

    monkeypatch.setattr(bench.body, "halt", halt)
    stopping = threading.Thread(target=stop)
    stopping.start()
    assert halting.wait(LIMIT_S)
    with pytest.raises(InvalidInput, match="being stopped"):
        bench.work.reset()
    go_on.set()
    stopping.join(LIMIT_S)
    assert answers == ["halted"]
    assert bench.send(0, "a").result().code == ErrorCode.DRIVER_STOPPED
    bench.work.reset()
    assert not bench.work.state().stopped


def test_a_command_that_overtakes_the_halt_is_halted_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_call, answered, events = threading.Event(), threading.Event(), list[str]()

    def perform(call: SkillCall, motion: Motion) -> None:
        in_call.set()
        answered.wait(LIMIT_S)  # a vendor's call, which nothing interrupts
        events.append("motion")
        motion.sleep(1.0)

    monkeypatch.setattr(bench.body, "perform", perform)
    monkeypatch.setattr(bench.body, "halt", lambda: events.append("halt"))
    moving = bench.send(0, "abc")
    assert in_call.wait(LIMIT_S)
    bench.work.stop()
    answered.set()
    assert moving.result().code == ErrorCode.DRIVER_STOPPED
    assert events == ["halt", "motion", "halt"]


def test_a_halt_that_fails_ends_the_segment_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halt() -> None:
        raise MotionError("the network is unreachable")

    monkeypatch.setattr(bench.body, "halt", halt)
    moving = bench.send(0, "abc")
    assert moving.began.wait(LIMIT_S)
    bench.work.cancel("t", 0)
    assert moving.result().outcome == "cancelled"
    with pytest.raises(MotionError, match="unreachable"):
        bench.work.stop()


@pytest.mark.parametrize("returns", [True, False])
def test_no_motion_begins_while_a_halt_is_on_its_way(
    returns: bool, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late halt would end that motion, which may then count as done."""
    monkeypatch.setattr(halter, "HALT_S", 0.0)
    monkeypatch.setattr(halter, "HALT_FIRST_S", 0.0)
    release, events = threading.Event(), list[str]()
    halted = threading.Semaphore(0)

    def halt() -> None:
        release.wait(LIMIT_S)
        events.append("halted")
        halted.release()

    monkeypatch.setattr(bench.body, "halt", halt)
    first = bench.send(0, "abc")
    assert first.began.wait(LIMIT_S)
    bench.work.cancel("t", 0)
    assert first.result().outcome == "cancelled"
    second = bench.send(0, "d", task="u")
    assert second.began.wait(LIMIT_S)
    try:
        if not returns:
            bench.run_until(second.ended.is_set)
            assert second.result().code == ErrorCode.MOTION_TIMEOUT
            assert not bench.body.moved
            return
        for _ in range(20):
            bench.clock.until_waiting(timeout_s=0.02)
            bench.clock.advance(0.02)
        assert not second.ended.is_set()
        assert not events
        monkeypatch.setattr(bench.body, "perform", lambda *_: events.append("executed"))
    finally:
        release.set()
    # Halts return in real time, and the motion waits in virtual time, which may pass in a moment.
    assert all(halted.acquire(timeout=LIMIT_S) for _ in range(2))
    bench.run_until(second.ended.is_set, step_s=0.02)
    assert events == ["halted", "halted", "executed"]
    assert second.result().outcome == "done"


def test_a_failsafe_action_begins_after_the_halt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    events, acted, pause = list[str](), threading.Event(), threading.Event()

    def halt() -> None:
        pause.wait(0.05)
        events.append("halted")

    def act(motion: Motion) -> None:
        events.append("acted")
        acted.set()

    monkeypatch.setattr(bench.body, "halt", halt)
    assert bench.work.act("the link is lost", act)
    assert acted.wait(LIMIT_S)
    assert events == ["halted", "acted"]


def test_a_segment_that_is_refused_during_a_failsafe_action_says_why_the_robot_acts(bench: Bench) -> None:
    begun, over = threading.Event(), threading.Event()

    def act(motion: Motion) -> None:
        begun.set()
        over.wait(LIMIT_S)

    assert bench.work.act("the link is lost", act)
    assert begun.wait(LIMIT_S)
    refused = bench.send(0, "a").result()
    over.set()
    assert (refused.outcome, refused.code) == ("refused", ErrorCode.FAILSAFE)
    assert refused.message == "a failsafe action is in progress: the link is lost"


def test_a_failsafe_action_that_a_stop_forestalls_was_no_success(bench: Bench) -> None:
    waiting, begun = threading.Event(), list[Motion]()
    body = bench.body
    body.perform = lambda call, motion: waiting.wait(LIMIT_S)  # type: ignore[method-assign]
    assert bench.send(0, "a").began.wait(LIMIT_S)
    assert bench.work.act("the link is lost", begun.append)
    bench.work.stop()
    waiting.set()
    assert bench.work.take_action_problem() == "stopped"
    assert not begun


def test_halts_that_hang_take_a_few_threads_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halter, "HALT_S", 0.0)
    monkeypatch.setattr(halter, "HALT_FIRST_S", 0.0)
    hung, halts = threading.Event(), list[int]()

    def halt() -> None:
        halts.append(1)
        hung.wait(LIMIT_S)

    monkeypatch.setattr(bench.body, "halt", halt)
    try:
        for _ in range(3 * MAX_OPEN):
            with pytest.raises(MotionError, match=r"did not return|hang"):
                bench.work.stop()
        assert len(halts) <= MAX_OPEN
    finally:
        hung.set()


def test_a_process_that_gets_no_more_threads_halts_its_robot_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    first, second = bench.send(0, "a"), bench.send(1, "b")
    assert first.began.wait(LIMIT_S)
    monkeypatch.setattr(halter.RobotHaltCall, "start", refuse)
    bench.work.stop()
    assert bench.body.halts >= 1
    bench.run_until(first.ended.is_set)
    assert [one.result().code for one in (first, second)] == [ErrorCode.DRIVER_STOPPED] * 2


def test_the_robot_brakes_before_the_end_of_its_segments_is_published(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving, events = bench.send(0, "abc"), list[str]()
    assert moving.began.wait(LIMIT_S)

    class Waiting(Listener):
        def on_end(self, done: SegmentResult) -> None:
            events.append("finished")

    bench.work.submit(SegmentOrder("t", 1, plan("d"), "drone", 1.0), Waiting())
    pause = threading.Event()

    def halt() -> None:
        pause.wait(0.01)
        events.append("braked")

    monkeypatch.setattr(bench.body, "halt", halt)
    bench.work.stop()
    assert events[0] == "braked"
    assert "finished" in events


def test_the_queue_has_a_limit() -> None:
    bench = Bench()
    try:
        bench.work.set_limits(2, 0.5)
        listeners = [bench.send(0, "aa")]
        assert listeners[0].began.wait(LIMIT_S)
        listeners += [bench.send(index, "b") for index in (1, 2)]
        assert bench.send(3, "c").result().code == ErrorCode.QUEUE_FULL
        bench.run_until(listeners[-1].ended.is_set)
        again = bench.send(3, "c")
        bench.run_until(again.ended.is_set)
        assert again.result().outcome == "done", "a full queue is not the end of the task"
    finally:
        assert bench.work.close(LIMIT_S)


def test_old_tasks_are_forgotten_and_live_ones_are_not() -> None:
    bench = Bench(remembered_tasks=2)
    try:
        moving = bench.send(0, "aa", task="long")
        assert moving.began.wait(LIMIT_S)
        others = [bench.send(0, "b", task=f"t{index}") for index in range(5)]
        assert bench.send(0, "aa", task="long").result().code == ErrorCode.DUPLICATE
        bench.run_until(others[-1].ended.is_set)
        assert len(bench.work._ledger._tasks) <= 7
        last = bench.send(0, "b", task="last")
        bench.run_until(last.ended.is_set)
        assert len(bench.work._ledger._tasks) <= 3
    finally:
        assert bench.work.close(LIMIT_S)


@pytest.mark.parametrize(("text", "value"), [("?", "yes"), ("?a", "yes"), ("a", None)])
def test_the_value_of_a_segment_is_its_last_query(bench: Bench, text: str, value: str | None) -> None:
    listener = bench.send(0, text)
    bench.run_until(listener.ended.is_set)
    assert listener.result().value == value


def test_a_task_that_goes_on_after_many_others_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its variables and open blocks are no longer kept."""
    monkeypatch.setattr(language, "REMEMBERED_TASKS", 1)
    for listener in (bench.send(0, "a"), bench.send(0, "b", task="other")):
        bench.run_until(listener.ended.is_set)
    late = bench.send(1, "c")
    bench.run_until(late.ended.is_set)
    assert (late.result().outcome, late.result().code) == ("failed", ErrorCode.OUT_OF_ORDER)


def test_progress_is_told_now_and_then_and_adds_up(bench: Bench) -> None:
    listener = bench.send(0, "abcd")
    bench.run_until(listener.ended.is_set)
    assert 3 <= len(listener.progress) <= 9
    fractions = [part[0] for part in listener.progress]
    assert fractions == sorted(fractions)
    assert all(0.0 < fraction < 1.0 for fraction in fractions)
    for fraction, elapsed_s, remaining_s in listener.progress:
        assert elapsed_s / (elapsed_s + remaining_s) == pytest.approx(fraction)
        assert elapsed_s + remaining_s == pytest.approx(4.0, abs=1.1)


def test_snapshot_tells_what_goes_on(bench: Bench) -> None:
    assert not bench.work.state().executing
    moving = bench.send(0, "abcd")
    waiting = bench.send(1, "e")
    assert moving.began.wait(LIMIT_S)
    bench.run_until(lambda: len(bench.body.moved) == 2)
    now = bench.work.state()
    assert (now.executing, now.task_id, now.segment, now.queued_segments) == (True, "t", 0, 1)
    assert now.progress == pytest.approx(0.5, abs=0.1)
    bench.run_until(waiting.ended.is_set)
    after = bench.work.state()
    assert (after.executing, after.task_id, after.segment, after.queued_segments) == (False, "t", 1, 0)


def test_close_ends_a_motion_and_refuses_the_rest(bench: Bench) -> None:
    moving = bench.send(0, "abc")
    assert moving.began.wait(LIMIT_S)
    assert bench.work.close(LIMIT_S)
    assert moving.result().outcome == "cancelled"
    assert bench.send(0, "x", task="late").result().code == ErrorCode.DRIVER_INACTIVE
