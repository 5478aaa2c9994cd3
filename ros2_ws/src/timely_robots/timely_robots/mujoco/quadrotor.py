"""A quadrotor's flight controller: follows a point that moves with limited speed, by thrust and attitude (PD).

The cascade is the usual one (Lee, Leok, McClamroch 2010), without the feed-forward of rotation. Position and velocity
errors give an acceleration; with the yaw it is an attitude. The attitude's error gives torques, and a mixer gives the
rotors' thrusts.
"""

import math
import random
from dataclasses import dataclass, field
from typing import Any

from timely_robots.detector import DronePose
from timely_robots.mujoco.models import DRAG_M, DRONE_KG, GRAVITY, ROTOR_ARM_M, ROTOR_MAX_N, STEP_S
from timely_robots.mujoco.path import MujocoPathProgress

Vector = tuple[float, float, float]

POSITION_GAIN, VELOCITY_GAIN = 6.0, 4.5
TILT_GAIN, TILT_RATE_GAIN = 0.030, 0.0032
YAW_GAIN, YAW_RATE_GAIN, YAW_INERTIA = 0.008, 0.0022, 0.0002
LARGEST_TILT = math.tan(math.radians(25.0))
NEAR_M, SLOW_M_PER_S, NEAR_RAD = 0.1, 0.1, math.radians(2.0)
STEADY_S = 0.3
"""Near and slow for so long counts as arrived."""
ACCELERATION, TURN_ACCELERATION = 3.0, math.radians(240.0)
GUST_S = 0.6
"""How long a gust lasts."""
ROTORS = ((1, 1, 1), (-1, 1, -1), (-1, -1, 1), (1, -1, -1))
"""Signs of x, y and of the spin, in the order of the model's motors."""


@dataclass(slots=True)
class MujocoFlightLeg:
    """One motion: a straight way and a turn, from where it began."""

    origin: Vector
    yaw: float
    way: Vector = (0.0, 0.0, 0.0)
    turn: float = 0.0
    progress: MujocoPathProgress = field(default_factory=lambda: MujocoPathProgress(0.0, 1.0, 1.0))

    def pull(self) -> tuple[Vector, float]:
        """The acceleration of the point to follow, and of the yaw."""
        progress = self.progress
        share = progress.pull / progress.length if progress.length > 0.0 and not progress.ended else 0.0
        u, v, w = (share * part for part in self.way)
        return (u, v, w), share * self.turn

    def at(self) -> tuple[Vector, Vector, float, float]:
        """(position, velocity, yaw, yaw rate) of the point to follow."""
        progress = self.progress
        share = progress.share
        rate = progress.rate / progress.length if progress.length > 0.0 else 0.0
        x, y, z = (a + share * b for a, b in zip(self.origin, self.way, strict=True))
        u, v, w = (rate * part for part in self.way)
        return (x, y, z), (u, v, w), self.yaw + share * self.turn, rate * self.turn


class MujocoPilot:
    """Flies the model of ``models.mujoco_quadrotor_model``; a ``physics.MujocoController``.

    Args:
        gust_n: standard deviation of a random horizontal force, newtons; seeded.
    """

    def __init__(self, data: Any, seed: int = 0, gust_n: float = 0.0) -> None:
        self._data = data
        self._rng = random.Random(seed)
        self._gust_n = gust_n
        self._gust = (0.0, 0.0)
        self.flying = False
        self.crashed = False
        self.leg = MujocoFlightLeg((0.0, 0.0, 0.0), 0.0)
        self.steady_s = 0.0
        self.flown_s = 0.0
        self.where = DronePose()
        """The pose as of the last step."""

    # --- Orders; with the simulation locked ---

    def take_off(self, height_m: float) -> float:
        """Rise to ``height_m``; how long that should take, seconds."""
        self.flying = True
        at, _, yaw = self._state()
        return self._begin(
            MujocoFlightLeg((at[0], at[1], at[2]), yaw, (0.0, 0.0, height_m - at[2])), 0.5, ACCELERATION
        )

    def fly(self, way: Vector, speed: float) -> float:
        """Fly ``way`` (metres, start frame) from where it should be now; how long that should take."""
        origin, _, yaw, _ = self.leg.at()
        return self._begin(MujocoFlightLeg(origin, yaw, way), speed, ACCELERATION)

    def turn(self, angle: float, rate: float) -> float:
        """Turn by ``angle`` (radians, counter-clockwise) at ``rate``; how long that should take."""
        origin, _, yaw, _ = self.leg.at()
        return self._begin(MujocoFlightLeg(origin, yaw, turn=angle), rate, TURN_ACCELERATION)

    def land(self) -> float:
        """Go down and switch the motors off; how long that should take."""
        origin, _, yaw, _ = self.leg.at()
        return self._begin(MujocoFlightLeg(origin, yaw, (0.0, 0.0, 0.02 - origin[2])), 0.4, ACCELERATION)

    def cut_motors(self) -> None:
        self.flying = False

    def _begin(self, leg: MujocoFlightLeg, speed: float, acceleration: float) -> float:
        length = abs(leg.turn) if leg.turn else math.hypot(*leg.way)
        leg.progress = MujocoPathProgress(length, speed, acceleration)
        self.leg, self.steady_s = leg, 0.0
        return leg.progress.duration_s

    # --- Any time ---

    def brake(self) -> None:
        """Come to rest and hover; from any thread."""
        self.leg.progress.braking = True

    @property
    def progress(self) -> MujocoPathProgress:
        """Of the motion under way, or of the last one."""
        return self.leg.progress

    @property
    def arrived(self) -> bool:
        """The motion has ended and the drone hovers steadily."""
        return self.leg.progress.ended and self.steady_s >= STEADY_S

    # --- Physics ---

    def _state(self) -> tuple[list[float], list[float], float]:
        x, y, z, qw, qx, qy, qz = self._data.qpos[:7].tolist()
        yaw = math.atan2(2.0 * (qw * qz + qx * qy), 1.0 - 2.0 * (qy * qy + qz * qz))
        return [x, y, z], [qw, qx, qy, qz], yaw

    def control(self, now_s: float) -> None:
        at, (qw, qx, qy, qz), yaw = self._state()
        self.where = DronePose(at[0], at[1], at[2], yaw)
        if not self.flying:
            self._data.ctrl[:] = 0.0
            return
        self.flown_s += STEP_S
        leg = self.leg
        leg.progress.step(STEP_S)
        goal, goal_v, goal_yaw, goal_rate = leg.at()
        pull, turn_pull = leg.pull()
        vx, vy, vz, wx, wy, wz = self._data.qvel[:6].tolist()
        ax = pull[0] + POSITION_GAIN * (goal[0] - at[0]) + VELOCITY_GAIN * (goal_v[0] - vx)
        ay = pull[1] + POSITION_GAIN * (goal[1] - at[1]) + VELOCITY_GAIN * (goal_v[1] - vy)
        az = pull[2] + 1.5 * POSITION_GAIN * (goal[2] - at[2]) + VELOCITY_GAIN * (goal_v[2] - vz)
        az = max(0.3 * GRAVITY, az + GRAVITY)
        level = math.hypot(ax, ay)
        if level > LARGEST_TILT * az:
            ax, ay = ax * LARGEST_TILT * az / level, ay * LARGEST_TILT * az / level
        # Columns of the drone's attitude.
        r00, r10, r20 = 1 - 2 * (qy * qy + qz * qz), 2 * (qx * qy + qw * qz), 2 * (qx * qz - qw * qy)
        r01, r11, r21 = 2 * (qx * qy - qw * qz), 1 - 2 * (qx * qx + qz * qz), 2 * (qy * qz + qw * qx)
        r02, r12, r22 = 2 * (qx * qz + qw * qy), 2 * (qy * qz - qw * qx), 1 - 2 * (qx * qx + qy * qy)
        if r22 < 0.2:
            self.crashed = True
        thrust = DRONE_KG * (ax * r02 + ay * r12 + az * r22)
        size = math.sqrt(ax * ax + ay * ay + az * az)
        zx, zy, zz = ax / size, ay / size, az / size
        # The wanted z axis in the drone's own frame says how to tilt; the yaw is its own, slower loop.
        bx = zx * r00 + zy * r10 + zz * r20
        by = zx * r01 + zy * r11 + zz * r21
        turn = math.remainder(goal_yaw - yaw, 2.0 * math.pi)
        torque_x = -TILT_GAIN * by - TILT_RATE_GAIN * wx
        torque_y = TILT_GAIN * bx - TILT_RATE_GAIN * wy
        torque_z = (
            YAW_INERTIA * turn_pull + YAW_GAIN * max(-0.5, min(0.5, turn)) + YAW_RATE_GAIN * (goal_rate - wz)
        )
        # So much torque that the slowest rotor still turns.
        torque_z = max(-0.003, min(0.003, torque_z))
        for number, (x, y, spin) in enumerate(ROTORS):
            force = 0.25 * thrust + 0.25 * (y * torque_x - x * torque_y) / ROTOR_ARM_M
            force -= 0.25 * spin * torque_z / DRAG_M
            self._data.ctrl[number] = max(0.0, min(ROTOR_MAX_N, force))
        if self._gust_n > 0.0:
            self._blow()
        away = math.dist(at, goal)
        near = away < NEAR_M and math.hypot(vx, vy, vz) < SLOW_M_PER_S and abs(turn) < NEAR_RAD
        self.steady_s = self.steady_s + STEP_S if near and leg.progress.ended else 0.0

    def _blow(self) -> None:
        """An Ornstein-Uhlenbeck wind."""
        keep = math.exp(-STEP_S / GUST_S)
        push = self._gust_n * math.sqrt(1.0 - keep * keep)
        self._gust = (
            keep * self._gust[0] + push * self._rng.gauss(0.0, 1.0),
            keep * self._gust[1] + push * self._rng.gauss(0.0, 1.0),
        )
        self._data.xfrc_applied[1, 0:2] = self._gust
