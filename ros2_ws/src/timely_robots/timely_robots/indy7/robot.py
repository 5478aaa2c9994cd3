"""The Indy7's driver: the skills of the set ``arm`` as straight and joint moves, each checked afterwards."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from timely_robots.clock import RobotClock
from timely_robots.error_codes import ErrorCode
from timely_robots.indy7.link import STOP_ANSWER_S, Indy7Link
from timely_robots.indy7.table import Indy7Table
from timely_robots.robot import Robot, RobotStatus, Setting
from timely_robots.segments import Motion, MotionError, SkillCall, SkillValue
from timely_robots.things import check_can_put, check_can_take

POLL_S = 0.02
MARGIN_S = 3.0
SLACK = 2.0
BEGIN_S = 1.0
"""The controller may take so long to begin a motion that it has accepted."""
GRIPPER_S = 0.5
THERE_MM, THERE_DEG = 3.0, 0.5
ABOVE_MM = 100.0
STACK_MM = 40.0
DOWN_DEG = (180.0, 0.0, 180.0)
"""The tool points at the table."""
TASK_MM_PER_S, JOINT_DEG_PER_S = 1000.0, math.degrees(3.0)


class Indy7Robot(Robot):
    """An Indy7, or its emulator (``timely-emulate indy7``), with a two-finger gripper on a digital output.

    The parameter ``things`` gives the places of things; a thing in the gripper moves along.
    """

    kind = "indy7"

    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        Setting("host", "192.168.0.100", "address of its controller", fixed=True),
        Setting("speed_percent", 30.0, "of the arm's own top speed [%]", 1.0, 100.0),
        Setting("gripper_output", 0, "digital output that closes the gripper", 0, 31),
        Setting("call_timeout_s", 1.0, "longest wait for an answer [s]", 0.05, 30.0, fixed=True),
        Setting("things", [""], "name:x,y,z in metres, base frame", fixed=True),
    )

    def __init__(self, settings: Mapping[str, Any] | None = None, clock: RobotClock | None = None) -> None:
        super().__init__(settings, clock)
        self._link: Indy7Link | None = None

    def connect(self, timeout_s: float) -> None:
        self._table = Indy7Table(self.texts("things"))
        for name, (x, y, z) in self._table.places.items():
            if not self.in_geofence(x, y, z):
                raise MotionError(f"things: {name!r} is outside the geofence", ErrorCode.OUT_OF_LIMITS)
        link = Indy7Link(self.settings["host"], float(self.settings["call_timeout_s"]), self.clock)
        link.open(timeout_s)
        self._link = link

    def disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def halt(self) -> None:
        link = self._link
        if link is not None and (problem := link.halt(STOP_ANSWER_S)):
            raise MotionError(problem, ErrorCode.CONNECTION_LOST)

    def status(self) -> RobotStatus:
        """See ``Robot``: the flange in the base frame."""
        link = self._link
        if link is None:
            return RobotStatus()
        pose = link.pose
        status = RobotStatus(
            detail=link.complaint,
            holding=self._table.holding,
            at_rest=link.at_rest,
            away=bool(self._table.holding) or not link.at_rest,
            link_lost=bool(link.complaint),
            fault=link.fault or link.trouble,
        )
        if pose is None:
            return status
        position = (0.001 * pose[0], 0.001 * pose[1], 0.001 * pose[2])
        return replace(status, position=position, orientation=_indy7_quaternion(pose[3:]))

    FAILSAFES = frozenset({"retract", "release"})

    def failsafe(self, action: str, motion: Motion) -> None:
        """See ``Robot``: retracts to the home position, or opens the gripper where it is."""
        link = self._link
        if link is None:
            raise MotionError("the arm is not connected", ErrorCode.CONNECTION_LOST)
        if action == "retract":
            self._move_joints(link, link.home(), motion)
        else:
            self._release(link, motion)

    def _release(self, link: Indy7Link, motion: Motion) -> None:
        self._wait_for_gripper(link, motion)
        pose, table = link.pose, self._table

        def put_here() -> None:
            if table.holding and pose is not None:
                x, y, z = (0.001 * part for part in pose[:3])
                table.put((x, y, z))

        self._grip(link, False, motion, put_here)

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        link, table = self._link, self._table
        if link is None:
            raise MotionError("the arm is not connected", ErrorCode.CONNECTION_LOST)
        self._wait_for_gripper(link, motion)
        target = str(call.args[0]) if call.args else ""
        match call.skill:
            case "home":
                self._move_joints(link, link.home(), motion)
            case "move_to":
                self._over(link, table.place(target), motion)
            case "pick" | "take":
                check_can_take(target, table.holding)
                self._reach(link, table.place(target), motion, lambda: table.take(target), close=True)
            case "place":
                check_can_put(target, table.holding)
                x, y, z = table.place(target)
                spot = (x, y, z + 0.001 * STACK_MM)
                self._reach(link, spot, motion, lambda: table.put(spot), close=False)
            case "drop":
                check_can_put(target, table.holding)
                x, y, z = table.place(target)
                self._over(link, (x, y, z), motion)
                self._grip(link, False, motion, lambda: table.put((x, y, z + 0.001 * STACK_MM)))
            case "open":
                self._release(link, motion)
            case "close":
                self._grip(link, True, motion)
            case "look":
                return table.describe()
            case "say":
                self.log.info(target)
            case _:
                raise MotionError(f"this arm cannot {call.skill}", ErrorCode.SKILL_FORBIDDEN)
        return None

    # --- Moving; metres in, millimetres out ---

    def _over(self, link: Indy7Link, place: Sequence[float], motion: Motion) -> None:
        x, y, z = (1000.0 * part for part in place)
        self._move_line(link, (x, y, z + ABOVE_MM), motion)

    def _reach(
        self,
        link: Indy7Link,
        place: Sequence[float],
        motion: Motion,
        on_grip: Callable[[], None],
        *,
        close: bool,
    ) -> None:
        """Go over a place, down, grip or let go, and up again."""
        x, y, z = (1000.0 * part for part in place)
        self._over(link, place, motion)
        self._move_line(link, (x, y, z), motion)
        self._grip(link, close, motion, on_grip)
        self._over(link, place, motion)

    def _grip(
        self, link: Indy7Link, close: bool, motion: Motion, on_grip: Callable[[], None] = lambda: None
    ) -> None:
        """Close or open the gripper; ``on_grip`` notes at once what it holds then: a stop may end the skill."""
        self._check_controller(link)
        motion.permit()
        link.output(self.settings["gripper_output"], close, on_grip)
        motion.sleep(GRIPPER_S)

    def _wait_for_gripper(self, link: Indy7Link, motion: Motion) -> None:
        """Return when it is known what the gripper holds. It may have closed or opened although it answered late."""
        if not motion.wait_for(lambda: not link.output_open, MARGIN_S):
            raise MotionError("the gripper has not answered", ErrorCode.CONNECTION_LOST)

    def _percent(self) -> float:
        percent = float(self.settings["speed_percent"])
        limit = self.profile.speed.linear_m_per_s
        if limit is not None:
            percent = min(percent, 100.0 * 1000.0 * limit / TASK_MM_PER_S)
        return max(1.0, percent * self.speed_share)

    def _move_line(self, link: Indy7Link, goal: Sequence[float], motion: Motion) -> None:
        if not self.in_geofence(*(0.001 * part for part in goal)):
            raise MotionError(
                f"({', '.join(f'{part:.0f}' for part in goal)}) mm is outside the geofence",
                ErrorCode.OUT_OF_LIMITS,
            )
        self._settle(link, motion)
        pose, percent = link.read_pose(), self._percent()
        target = [*goal, *DOWN_DEG]
        turn = max(abs(math.remainder(a - b, 360.0)) for a, b in zip(pose[3:], DOWN_DEG, strict=True))
        expected_s = (math.dist(pose[:3], goal) / TASK_MM_PER_S + turn / 120.0) * 100.0 / percent + 0.5
        self._carry_out(
            link,
            lambda: link.move_line(target, percent),
            lambda: math.dist(link.read_pose()[:3], goal),
            (THERE_MM, "mm"),
            expected_s,
            motion,
        )

    def _move_joints(self, link: Indy7Link, goal: Sequence[float], motion: Motion) -> None:
        for number, (angle, bounds) in enumerate(zip(goal, self.profile.joints_deg, strict=False)):
            if not bounds[0] <= angle <= bounds[1]:
                raise MotionError(
                    f"joint {number} at {angle:g} deg is beyond {bounds}", ErrorCode.OUT_OF_LIMITS
                )
        self._settle(link, motion)
        percent = self._percent()

        def away() -> float:
            return max(abs(a - b) for a, b in zip(link.read_joints(), goal, strict=True))

        self._carry_out(
            link,
            lambda: link.move_joints(goal, percent),
            away,
            (THERE_DEG, "deg"),
            away() / JOINT_DEG_PER_S * 100.0 / percent + 1.0,
            motion,
        )

    def _check_controller(self, link: Indy7Link) -> None:
        if link.trouble:
            raise MotionError(link.trouble, ErrorCode.FAILSAFE)

    def _carry_out(
        self,
        link: Indy7Link,
        begin: Callable[[], None],
        away: Callable[[], float],
        tolerance: tuple[float, str],
        expected_s: float,
        motion: Motion,
    ) -> None:
        """Send a motion and return when the arm is there.

        Args:
            away: how far the arm is from where it is to go, in the unit of ``tolerance``.
        """
        self._check_controller(link)
        motion.permit()
        limit, unit = tolerance
        try:
            begin()
            self._follow(link, lambda: away() <= limit, expected_s, motion)
            rest = away()
            self._check_controller(link)
            if rest > limit:
                raise MotionError(
                    f"the arm stopped {rest:.1f} {unit} from where it was to go", ErrorCode.MOTION_FAILED
                )
        except MotionError:
            link.halt()  # the controller may begin it later, or go on with it
            raise

    def _follow(
        self, link: Indy7Link, is_there: Callable[[], bool], expected_s: float, motion: Motion
    ) -> None:
        begin_s, began = self.clock.now(), False
        while True:
            is_moving, elapsed_s = link.moving(), self.clock.now() - begin_s
            began = began or is_moving
            if not is_moving and (began or elapsed_s >= BEGIN_S or is_there()):
                return
            self._check_controller(link)
            if elapsed_s > SLACK * expected_s + MARGIN_S:
                link.halt()
                raise MotionError(f"the motion took over {elapsed_s:.1f} s", ErrorCode.MOTION_TIMEOUT)
            if not self.in_geofence(*(0.001 * part for part in link.read_pose()[:3])):
                link.halt()
                raise MotionError("the arm left the geofence on its way", ErrorCode.OUT_OF_LIMITS)
            motion.progress(max(POLL_S, expected_s - elapsed_s))
            motion.sleep(POLL_S)

    def _settle(self, link: Indy7Link, motion: Motion) -> None:
        """Let earlier stops end: the controller takes nothing new while it brakes."""
        if not motion.wait_for(lambda: not (link.halting or link.stops_pending or link.moving()), MARGIN_S):
            if link.complaint:
                raise MotionError(link.complaint, ErrorCode.CONNECTION_LOST)
            raise MotionError("the arm does not come to rest", ErrorCode.MOTION_TIMEOUT)


def _indy7_quaternion(angles_deg: Sequence[float]) -> tuple[float, float, float, float]:
    """Rotations about fixed x, then y, then z, degrees, as (x, y, z, w)."""
    (cx, sx), (cy, sy), (cz, sz) = (
        (math.cos(math.radians(angle) / 2.0), math.sin(math.radians(angle) / 2.0)) for angle in angles_deg
    )
    return (
        sx * cy * cz - cx * sy * sz,
        cx * sy * cz + sx * cy * sz,
        cx * cy * sz - sx * sy * cz,
        cx * cy * cz + sx * sy * sz,
    )
