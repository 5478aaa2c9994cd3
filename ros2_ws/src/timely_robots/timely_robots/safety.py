"""Asks before every call of a plan whether it may run: stop, lease, task, battery, proximity, confirmation."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from timely_robots import language
from timely_robots.driver_store import DriverStore
from timely_robots.error_codes import ErrorCode
from timely_robots.failsafe import FailsafeMonitor
from timely_robots.lease import DriverLease
from timely_robots.segments import Motion, MotionError, SegmentOrder, SkillCall
from timely_robots.task_watchdog import RobotTaskWatchdog

MAX_PROXIMITY_AGE_S = 1.0
PAUSE_S, PAUSE_POLL_S = 1.0, 0.02
"""A shorter time without a check is no pause."""
SETTLE_S = 0.25
"""After a pause of its process or a cut network, a driver has received the messages of that time when so long has
passed."""


class PauseGate:
    """Holds motions back after a pause of the driver's process, until its executor has received what came meanwhile.

    Without it a driver that hung would begin the next motion of a task that has ended, or of a bridge that is gone.
    Times are seconds on the caller's monotonic clock.

    Args:
        period_s: between two checks by a running executor.

    Attributes:
        settled_s: by then what was sent during the last pause or cut has been received.
    """

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._longest_s = max(2.0 * period_s, PAUSE_S)
        self.restart()

    def restart(self) -> None:
        """Forget the last check: none was due meanwhile."""
        self._checked_s = math.inf
        self.settled_s = -math.inf

    def check(self, now_s: float) -> float:
        """The executor runs now; for how long messages could not be received, seconds, or 0 without a pause."""
        gap_s = now_s - self._checked_s
        self._checked_s = now_s
        if gap_s > self._longest_s:
            self.settled_s = now_s + SETTLE_S
            return gap_s - self._period_s + SETTLE_S
        late_s = gap_s - self._period_s
        return late_s if late_s > self._period_s else 0.0

    @property
    def heard_s(self) -> float:
        """Until then the executor has received messages, or will have at its next check."""
        return self._checked_s + self._period_s

    def open(self, now_s: float) -> bool:
        """A motion may begin."""
        return now_s - self._checked_s <= self._longest_s and now_s >= self.settled_s


class ProximityGate:
    """Slows the robot near an obstacle and stops it close to one. Distances are metres.

    The gate fails closed: without a distance of the last second the robot does not move. It may be infinite.

    Args:
        stop_m: no motion nearer than this; 0 switches the gate off.
        slow_m: from here on speed falls linearly to a tenth at ``stop_m``.
    """

    def __init__(self, stop_m: float, slow_m: float) -> None:
        self.stop_m, self.slow_m = stop_m, max(stop_m, slow_m)
        self._distance_m, self._seen_s = math.nan, -math.inf

    def observe(self, distance_m: float, now_s: float) -> None:
        self._distance_m, self._seen_s = distance_m, now_s

    def problem(self, now_s: float) -> str:
        """Why the robot must not move; empty if it may."""
        if self.stop_m <= 0.0:
            return ""
        if now_s - self._seen_s > MAX_PROXIMITY_AGE_S or not self._distance_m >= 0.0:
            return "the distance to obstacles is unknown"
        if self._distance_m < self.stop_m:
            return f"an obstacle at {self._distance_m:.2f} m, the limit is {self.stop_m:g} m"
        return ""

    @property
    def speed_share(self) -> float:
        """The share of the full speed that is allowed, 0.1 to 1."""
        if self.stop_m <= 0.0 or not self._distance_m < self.slow_m:
            return 1.0
        if self.slow_m <= self.stop_m:
            return 0.1
        return max(0.1, (self._distance_m - self.stop_m) / (self.slow_m - self.stop_m))


@dataclass(slots=True)
class _Question:
    task_id: str
    segment: int
    call: str
    answered: threading.Event
    allow: bool = False


class Confirmation:
    """An operator's answer to one call at a time.

    From the second question for equal calls of one segment on, as in a loop, the call has its number: ``open() #2``.
    So an answer that is given twice answers one question only.

    Args:
        timeout_s: without an answer for so long, on the robot's clock, the call is refused.
    """

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._question: _Question | None = None
        self._segment = ("", 0)
        self._questions: Counter[str] = Counter()
        """Call -> how often it was asked for in this segment."""

    @property
    def awaiting(self) -> str:
        """The call that waits for an answer, with its number; empty if none does."""
        question = self._question
        return question.call if question is not None else ""

    def answer(self, task_id: str, segment: int, call: str, allow: bool) -> bool:
        """Give the answer; False if that call does not wait for one. The first one counts."""
        question = self._question
        if question is None or (task_id, segment, call) != (
            question.task_id,
            question.segment,
            question.call,
        ):
            return False
        if question.answered.is_set():
            return question.allow == allow
        question.allow = allow
        question.answered.set()
        return True

    def ask(self, call: SkillCall, motion: Motion) -> None:
        """Wait for the answer; raises MotionError (NOT_CONFIRMED) without consent."""
        task_id, segment = motion.order.task_id, motion.order.index
        if (task_id, segment) != self._segment:
            self._segment = task_id, segment
            self._questions.clear()
        self._questions[call.text] += 1
        number = self._questions[call.text]
        name = call.text if number == 1 else f"{call.text} #{number}"
        self._question = question = _Question(task_id, segment, name, threading.Event())
        try:
            if not motion.wait_for(question.answered.is_set, self.timeout_s):
                raise MotionError(f"{call.text}: not confirmed in time", ErrorCode.NOT_CONFIRMED)
        finally:
            self._question = None
        if not question.allow:
            raise MotionError(f"{call.text}: an operator refused it", ErrorCode.NOT_CONFIRMED)


@dataclass(slots=True)
class SafetyGuard:
    """Decides whether the robot may move now; also asked when a segment is admitted.

    Attributes:
        battery: the robot's battery now, 0..1 or NaN.
        skill_set: the robot's own. Its confirmations hold also for goals that name another.
        segments: that have come so far.
        resets: of a latched stop, so far.
        settled_resets: of those, how many have passed the segments that were waiting for the driver's executor.
    """

    store: DriverStore
    lease: DriverLease
    watchdog: RobotTaskWatchdog
    failsafe: FailsafeMonitor
    proximity: ProximityGate
    confirmation: Confirmation
    pauses: PauseGate
    battery: Callable[[], float]
    skill_set: str = ""
    segments: int = 0
    resets: int = 0
    settled_resets: int = 0

    def admit(self, order: SegmentOrder) -> None:
        """Raise MotionError if the sender may not send segments, or the task has ended."""
        if not self.lease.permits(order.owner, order.epoch, time.monotonic()):
            owner = self.lease.state(time.monotonic()).owner
            raise MotionError(
                f"the lease is of {owner!r}" if owner else "the lease was released or never granted",
                ErrorCode.NOT_OWNER,
            )
        if self.watchdog.has_ended(order.task_id):
            raise MotionError("its task has ended", ErrorCode.SEGMENT_CANCELLED)

    def receive(self, order: SegmentOrder) -> None:
        """A segment has come. It renews its owner's lease; raises as ``admit``, and if a reset overtook the segment."""
        self.segments += 1
        self.renew(order.owner, order.epoch)
        if self.settled_resets != self.resets:
            raise MotionError("it was sent before the last reset", ErrorCode.DRIVER_STOPPED)
        self.admit(order)

    def acquire(self, owner: str, *, take_over: bool = False, ends_epoch: int = 0) -> int | None:
        """Grant the lease; see ``DriverLease.acquire``. A pause of the executor is no silence of the owner."""
        now_s = time.monotonic()
        return self.lease.acquire(
            owner, now_s, heard_s=self.pauses.heard_s, take_over=take_over, ends_epoch=ends_epoch
        )

    def renew(self, owner: str, epoch: int, *, release: bool = False) -> None:
        """Renew or release the lease; without effect if it is not this owner's.

        What a cut network has held back comes at once when it is whole again. A segment may precede the message that
        its task has ended. So after a lapse a motion waits for both, as after a pause.
        """
        now_s = time.monotonic()
        has_lapsed = self.lease.state(now_s).lapsed
        if self.lease.renew(owner, epoch, now_s, release=release) and has_lapsed:
            self.pauses.settled_s = now_s + SETTLE_S
            self.watchdog.doubt(self.pauses.settled_s)

    def check(self, now_s: float) -> None:
        """The executor runs now; it does so every ``PauseGate.period_s`` unless the process stands still."""
        late_s = self.pauses.check(now_s)
        if not late_s:
            return
        # This process did not run, so it could not receive messages either.
        self.lease.forgive(late_s, now_s)
        if self.pauses.open(now_s):
            self.watchdog.forgive(late_s)
        else:
            self.watchdog.doubt(self.pauses.settled_s)

    def __call__(self, call: SkillCall, motion: Motion) -> None:
        """Called before each call of a plan. May wait, for an operator too; raises MotionError if it must not run."""
        self.permit(motion)
        skill_sets = {motion.order.skill_set, self.skill_set} - {""}
        if any(_does_robot_skill_need_confirmation(call.skill, skill_set) for skill_set in skill_sets):
            self.confirmation.ask(call, motion)
            self.permit(motion)  # the wait may have been long

    def permit(self, motion: Motion) -> None:
        """Called before a movement that begins later than its call. Raises MotionError if it must not begin."""
        order, now_s = motion.order, time.monotonic()
        while not self.pauses.open(now_s) or self.watchdog.doubtful(order.task_id, now_s):
            motion.sleep(PAUSE_POLL_S)
            now_s = time.monotonic()
        if (reason := self.store.stop_reason) is not None:
            raise MotionError(reason, ErrorCode.DRIVER_STOPPED)
        self.admit(order)
        if self.watchdog.is_orphaned(order.task_id, now_s):
            silence_s = self.watchdog.silence_s_of(order.task_id, now_s)
            raise MotionError(f"no message of the task for {silence_s:.1f} s", ErrorCode.SEGMENT_CANCELLED)
        if problem := self.failsafe.battery_problem(self.battery()):
            raise MotionError(problem, ErrorCode.FAILSAFE)
        if problem := self.proximity.problem(now_s):
            raise MotionError(problem, ErrorCode.OBSTACLE)


def _does_robot_skill_need_confirmation(skill_name: str, skill_set: str) -> bool:
    skill = language.robot_executor_skill_set(skill_set).find(skill_name)
    return skill is not None and skill.confirm
