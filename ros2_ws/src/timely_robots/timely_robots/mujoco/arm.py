"""The arm's controller: joint angles for a place, motions of limited speed, and a hand that holds what it closes on.

Fingers close by force until they rest on something. The simulation welds that object to the gripper until it opens,
because simulated friction grasps slip where real ones do not. The physics decides whether an object lies there.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from timely_robots.error_codes import ErrorCode
from timely_robots.mujoco.models import ARM_JOINTS, CUBE_M, FINGER_REACH_M, HOME, STEP_S, Spot
from timely_robots.mujoco.path import MujocoPathProgress
from timely_robots.segments import MotionError

SHOULDER_M, UPPER_M, FORE_M, TOOL_M = 0.30, 0.40, 0.35, 0.155
"""Height of the shoulder, lengths of the arm's parts, and from the wrist to the middle of the fingers."""
BENDS = ((-3.05, 3.05), (-2.2, 2.2), (-2.6, 2.6), (-3.05, 3.05), (-3.05, 3.05), (-3.05, 3.05))
ACCELERATION = 4.0
"""rad/s^2 of the fastest joint."""
LINE_M_PER_S, LINE_M_PER_S2 = 0.3, 1.0
NEAR_RAD, SLOW_RAD_PER_S = 0.006, 0.02
STEADY_S = 0.04
GRIP_M = (0.02, 0.025)
"""A thing is between the fingers if its middle is so near to theirs: level and in height."""
HELD_GAP_M = 0.25 * CUBE_M
"""Fingers that rest on something are at least so far open."""


def mujoco_arm_joints_for(spot: Sequence[float], turn: float = 0.0) -> list[float]:
    """Joint angles that bring the fingers to ``spot`` (metres), the hand pointing down and turned by ``turn``.

    Raises:
        MotionError: OUT_OF_LIMITS: it is out of reach.
    """
    x, y, z = spot
    level, height = math.hypot(x, y), z + TOOL_M - SHOULDER_M
    far = (level * level + height * height - UPPER_M**2 - FORE_M**2) / (2.0 * UPPER_M * FORE_M)
    if not -1.0 <= far <= 1.0 or level < 0.12:
        raise MotionError(f"({x:.2f}, {y:.2f}, {z:.2f}) m is out of the arm's reach", ErrorCode.OUT_OF_LIMITS)
    elbow = math.acos(far)
    shoulder = math.atan2(level, height) - math.atan2(
        FORE_M * math.sin(elbow), UPPER_M + FORE_M * math.cos(elbow)
    )
    angles = [math.atan2(y, x), shoulder, elbow, 0.0, math.pi - shoulder - elbow, turn]
    for number, (angle, (low, high)) in enumerate(zip(angles, BENDS, strict=True)):
        if not low <= angle <= high:
            raise MotionError(
                f"({x:.2f}, {y:.2f}, {z:.2f}) m needs joint {number} at {angle:.2f} rad, beyond {low} to {high}",
                ErrorCode.OUT_OF_LIMITS,
            )
    return angles


class MujocoArm:
    """Moves the model of ``models.mujoco_arm_model``; a ``physics.MujocoController``.

    Orders are given with the simulation locked; ``brake`` may come from any thread.
    """

    def __init__(self, model: Any, data: Any, things: Sequence[str]) -> None:
        import mujoco

        self._data, self._model = data, model
        # MuJoCo's own arrays, by name once and by number afterwards.
        self._joints = [int(model.joint(name).qposadr[0]) for name in ARM_JOINTS]
        self._speeds = [int(model.joint(name).dofadr[0]) for name in ARM_JOINTS]
        self._fingers = [int(model.joint(name).qposadr[0]) for name in ("left", "right")]
        self._finger_speeds = [int(model.joint(name).dofadr[0]) for name in ("left", "right")]
        self._bodies = {name: int(model.body(f"thing{n}").id) for n, name in enumerate(things)}
        self._welds = {name: int(model.equality(f"grip{n}").id) for n, name in enumerate(things)}
        self._hand, self._tool = int(model.body("hand").id), int(model.site("tool").id)
        for address, angle in zip(self._joints, HOME, strict=True):
            data.qpos[address] = angle
        for address in self._fingers:
            data.qpos[address] = FINGER_REACH_M
        mujoco.mj_forward(model, data)
        self._target = list(HOME)
        self._grip = FINGER_REACH_M
        self._pose: Callable[[float], list[float]] = lambda share: list(HOME)
        self.progress = MujocoPathProgress(0.0, 1.0, 1.0)
        self.steady_s = 0.0
        self.holding = ""
        self.tool: Spot = (0.0, 0.0, 0.0)
        """The middle of the fingers, as of the last step."""

    # --- Orders; with the simulation locked ---

    def move_joints(self, goal: Sequence[float], speed: float) -> float:
        """Move all joints together, the one with the longest way at ``speed`` (rad/s); how long that should take."""
        origin, target = list(self._target), list(goal)
        self._pose = lambda share: [a + share * (b - a) for a, b in zip(origin, target, strict=True)]
        length = max(abs(b - a) for a, b in zip(origin, target, strict=True))
        return self._begin(MujocoPathProgress(length, speed, ACCELERATION))

    def move_line(self, goal: Sequence[float], share_of_speed: float) -> float:
        """Move the fingers straight to ``goal``, without turning the hand; how long that should take.

        Raises:
            MotionError: OUT_OF_LIMITS: the line leaves the arm's reach.
        """
        origin, turn = self.tool, self._target[5]
        way = [b - a for a, b in zip(origin, goal, strict=True)]
        heading = self._target[0]

        def pose(share: float) -> list[float]:
            at = [a + share * b for a, b in zip(origin, way, strict=True)]
            # The hand keeps its direction in the room although the base turns below it.
            return mujoco_arm_joints_for(at, turn + math.atan2(at[1], at[0]) - heading)

        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            pose(share)
        self._pose = pose
        return self._begin(
            MujocoPathProgress(
                math.hypot(*way), LINE_M_PER_S * share_of_speed, LINE_M_PER_S2 * share_of_speed
            )
        )

    def open(self) -> float:
        """Open the fingers and let go; takes no expected time."""
        name, self.holding = self.holding, ""
        if name:
            self._data.eq_active[self._welds[name]] = 0
        self._grip, self.steady_s = FINGER_REACH_M, 0.0
        return 0.0

    def close(self) -> float:
        """Begin to close the fingers; takes no expected time."""
        self._grip, self.steady_s = 0.0, 0.0
        return 0.0

    def catch(self) -> str:
        """Hold what the closed fingers rest on; its name, or nothing."""
        for name in self._bodies:
            (x, y, z), (u, v, w) = self.spot(name), self.tool
            if (
                math.hypot(x - u, y - v) <= GRIP_M[0]
                and abs(z - w) <= GRIP_M[1]
                and self.opening_m > HELD_GAP_M
            ):
                self._weld(name)
                self.holding = name
                return name
        return ""

    def _weld(self, name: str) -> None:
        import mujoco
        import numpy as np

        body, weld = self._bodies[name], self._welds[name]
        back = np.zeros(4)
        mujoco.mju_negQuat(back, self._data.xquat[self._hand])
        place, turn = np.zeros(3), np.zeros(4)
        mujoco.mju_rotVecQuat(place, self._data.xpos[body] - self._data.xpos[self._hand], back)
        mujoco.mju_mulQuat(turn, back, self._data.xquat[body])
        # Of a weld: the anchor in the second body, the pose of that body in the first.
        self._model.eq_data[weld, 0:3] = 0.0
        self._model.eq_data[weld, 3:6], self._model.eq_data[weld, 6:10] = place, turn
        self._data.eq_active[weld] = 1

    def _begin(self, progress: MujocoPathProgress) -> float:
        self.progress, self.steady_s = progress, 0.0
        return progress.duration_s

    # --- Looking; with the simulation locked ---

    @property
    def opening_m(self) -> float:
        """How far the fingers are from the middle, both together."""
        return float(sum(self._data.qpos[address] for address in self._fingers))

    def spot(self, name: str) -> Spot:
        x, y, z = self._data.xpos[self._bodies[name]].tolist()
        return (x, y, z)

    def heading(self, name: str) -> float:
        """How a thing is turned about the vertical, radians, to the nearest of its four sides."""
        w, x, y, z = self._data.xquat[self._bodies[name]].tolist()
        turn = math.atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))
        return math.remainder(turn, math.pi / 2.0)

    # --- Any time ---

    def brake(self) -> None:
        """Come to rest; from any thread."""
        self.progress.braking = True

    @property
    def arrived(self) -> bool:
        """The motion has ended, and arm and fingers are at rest."""
        return self.progress.ended and self.steady_s >= STEADY_S

    # --- Physics ---

    def control(self, now_s: float) -> None:
        data = self._data
        if not self.progress.ended:
            self.progress.step(STEP_S)
            self._target = self._pose(self.progress.share)
        data.ctrl[:6] = self._target
        data.ctrl[6:8] = self._grip
        x, y, z = data.site_xpos[self._tool].tolist()
        self.tool = (x, y, z)
        if not self.progress.ended:
            self.steady_s = 0.0
            return
        angles, rates = data.qpos[self._joints].tolist(), data.qvel[self._speeds].tolist()
        away = max(abs(a - b) for a, b in zip(angles, self._target, strict=True))
        fingers = max(abs(rate) for rate in data.qvel[self._finger_speeds].tolist())
        still = away < NEAR_RAD and max(map(abs, rates)) < SLOW_RAD_PER_S and fingers < 0.01
        self.steady_s = self.steady_s + STEP_S if still else 0.0
