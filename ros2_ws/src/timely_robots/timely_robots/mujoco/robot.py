"""The MuJoCo driver: an arm with a gripper or a quadrotor, moved by physics, with the skills of the others."""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from timely_robots.clock import RobotClock
from timely_robots.detector import DronePose
from timely_robots.drone_skills import DETECTOR_SETTINGS, STRAIGHT, DroneRobot
from timely_robots.error_codes import ErrorCode
from timely_robots.mujoco import models
from timely_robots.mujoco.arm import MujocoArm
from timely_robots.mujoco.desk import MujocoDesk
from timely_robots.mujoco.models import Spot
from timely_robots.mujoco.physics import MujocoPhysics, load_mjcf
from timely_robots.mujoco.quadrotor import MujocoPilot
from timely_robots.robot import RobotStatus, Setting
from timely_robots.segments import Motion, MotionCancelled, MotionError, SkillCall, SkillValue
from timely_robots.things import read_robot_place

BODIES = ("arm", "quadrotor")
POLL_S = 0.01
SLACK, MARGIN_S = 2.0, 4.0
"""A motion may take this times its expected time plus ``MARGIN_S``, simulated seconds."""
HEIGHT_M = 0.8
"""Above the ground, after taking off."""
FLIGHT_S = 780.0
"""A battery lasts for 13 minutes in the air."""
LAND_S = 6.0
STILL_S = 10.0
"""A simulation whose time stands still for so long is lost; counted in looks, so a pause of the process is none."""
BEHIND_S = 0.5
"""A simulation that has lost more time than this says so."""


class MujocoRobot(DroneRobot):
    """A robot that is all physics, without a window: gravity, contacts, motors that need time.

    The parameter ``body`` selects it. ``speed`` accelerates the physics; reported times are those of the physics. The
    quadrotor takes off before its first motion and lands when the node is cleaned up. Seeded gusts of wind scatter its
    times as real ones do. The arm takes cubes off a table. The simulation says whether the fingers closed on a cube
    and where it came to rest; a failure is typed.
    """

    kind = "mujoco"
    drives_clock = True
    simulated = True
    FAILSAFES = frozenset({"land", "return", "retract", "release"})

    # Of an arm ``things`` are cubes, name:x,y; of a quadrotor a room, as for the other drones.
    SETTINGS: ClassVar[tuple[Setting, ...]] = (
        Setting("body", BODIES[0], f"one of {', '.join(BODIES)}", fixed=True),
        Setting("speed", 1.0, "simulated seconds a second", 0.01, 100.0, fixed=True),
        Setting("seed", 0, "of the wind", 0, 2**31 - 1, fixed=True),
        Setting("gust_n", 0.01, "wind on a quadrotor [N]", 0.0, 0.1, fixed=True),
        Setting("cruise_m_per_s", 1.0, "of a quadrotor's straight moves [m/s]", 0.1, 3.0),
        Setting("turn_deg_per_s", 60.0, "of a quadrotor's turns [deg/s]", 5.0, 180.0),
        Setting("joint_rad_per_s", 1.5, "of the arm's fastest joint [rad/s]", 0.1, 3.0, fixed=True),
        Setting("places", [""], "mats on the arm's table, name:x,y in metres", fixed=True),
        *DETECTOR_SETTINGS,
    )

    def __init__(self, settings: Mapping[str, Any] | None = None, clock: RobotClock | None = None) -> None:
        super().__init__(settings, clock)
        self._physics: MujocoPhysics | None = None
        self._pilot: MujocoPilot | None = None
        self._arm: MujocoArm | None = None

    def connect(self, timeout_s: float) -> None:
        """See ``Robot``: load the model and let its time begin."""
        body = self.settings["body"]
        if body not in BODIES:
            raise MotionError(f"body: {body!r} is not one of {', '.join(BODIES)}", ErrorCode.INVALID_INPUT)
        self._speed = float(self.settings["speed"])
        self._pilot = self._arm = None
        self._up = False
        if body == "arm":
            self._set_the_table()
        else:
            self.open_detector()
            model, data = load_mjcf(models.mujoco_quadrotor_model())
            self._pilot = MujocoPilot(data, self.settings["seed"], float(self.settings["gust_n"]))
            self._physics = MujocoPhysics(model, data, self._pilot, self.clock, self._speed)
        if self._physics is not None:
            self._physics.start()

    def _set_the_table(self) -> None:
        half = 0.5 * models.CUBE_M
        things = {name: (x, y, half) for name, (x, y) in self._spots("things").items()}
        places = {name: (x, y, 0.001) for name, (x, y) in self._spots("places").items()}
        for spot in (*things.values(), *places.values()):
            self._check_fence(spot)
        model, data = load_mjcf(models.mujoco_arm_model(things, places))
        self._arm = arm = MujocoArm(model, data, list(things))
        limit = self.profile.speed.joint_rad_per_s or math.inf
        self._physics = MujocoPhysics(model, data, arm, self.clock, self._speed)
        self._desk = MujocoDesk(
            arm,
            things,
            places,
            move=self._carry_out,
            wait=lambda seconds, motion: motion.sleep(seconds / self._speed),
            check_spot=self._check_fence,
            joint_speed=min(limit, float(self.settings["joint_rad_per_s"])),
            say=self.log.info,
        )

    def _spots(self, setting: str) -> dict[str, tuple[float, ...]]:
        return dict(read_robot_place(setting, text, "x,y") for text in self.texts(setting))

    def disconnect(self) -> None:
        """See ``Robot``: land, and stop the clock."""
        physics, self._physics = self._physics, None
        if physics is None:
            return
        pilot = self._pilot
        if pilot is not None and pilot.flying and not physics.failure:
            end_s, lost_s = physics.time_s + LAND_S, self.clock.now() + LAND_S / self._speed + STILL_S
            with physics.lock:
                pilot.land()
            while not pilot.progress.ended and physics.time_s < end_s and self.clock.now() < lost_s:
                self.clock.wait(threading.Event(), POLL_S / self._speed)
            pilot.cut_motors()
        physics.close()

    def halt(self) -> None:
        """See ``Robot``: brake, in the air or over the table."""
        for body in (self._pilot, self._arm):
            if body is not None:
                body.brake()

    def status(self) -> RobotStatus:
        if self._pilot is not None:
            where = self._pilot.where
            battery = max(0.0, 1.0 - self._pilot.flown_s / FLIGHT_S)
            detail = self._failure() or ("flying" if self._pilot.flying else "on the ground")
            flying, fault = self._pilot.flying, "the drone has crashed" if self._pilot.crashed else ""
            rest = self._pilot.arrived or not flying
            place = (where.x, where.y, where.z)
            return RobotStatus(
                place, where.orientation, battery, detail, at_rest=rest, away=flying, fault=fault
            )
        if self._arm is not None:
            down = (0.0, 1.0, 0.0, 0.0)
            thing, rest = self._arm.holding, self._arm.arrived
            detail = self._failure()
            return RobotStatus(
                self._arm.tool, down, detail=detail, holding=thing, at_rest=rest, away=bool(thing)
            )
        return RobotStatus()

    def _failure(self) -> str:
        physics = self._physics
        if physics is None:
            return ""
        behind = f"too slow a machine: {physics.lost_s:.1f} s behind" if physics.lost_s > BEHIND_S else ""
        return physics.failure or behind

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        return self._desk.perform(call, motion) if self._arm is not None else super().perform(call, motion)

    # --- The quadrotor; see DroneRobot ---

    def here(self) -> DronePose:
        """See ``DroneRobot``; the height is that above where it hovers after taking off."""
        where = self._flyer().where
        return replace(where, z=where.z - HEIGHT_M)

    def fly(self, skill: str, centimetres: float, motion: Motion) -> None:
        pilot = self._airborne(motion)
        limit = self.profile.speed.linear_m_per_s or math.inf
        speed = min(limit, float(self.settings["cruise_m_per_s"])) * self.speed_share
        ahead, left, up = (0.01 * centimetres * part for part in STRAIGHT[skill][1])

        def order() -> float:
            (x, y, z), _, yaw, _ = pilot.leg.at()
            cos, sin = math.cos(yaw), math.sin(yaw)
            way = (cos * ahead - sin * left, sin * ahead + cos * left, up)
            self._check_fence((x + way[0], y + way[1], z + way[2]))
            if z + way[2] < 0.1:
                raise MotionError(f"{skill} {centimetres:g} ends in the ground", ErrorCode.OUT_OF_LIMITS)
            return pilot.fly(way, speed)

        self._carry_out(order, motion)

    def turn(self, degrees: float, motion: Motion) -> None:
        pilot = self._airborne(motion)
        limit = self.profile.speed.angular_deg_per_s or math.inf
        rate = math.radians(min(limit, float(self.settings["turn_deg_per_s"])))
        self._carry_out(lambda: pilot.turn(-math.radians(degrees), rate), motion)

    def failsafe(self, action: str, motion: Motion) -> None:
        """See ``Robot``: the quadrotor lands, here or at its start; the arm retracts or opens its fingers."""
        if self._arm is not None:
            if action not in ("retract", "release"):
                raise MotionError(f"an arm cannot {action}", ErrorCode.SKILL_FORBIDDEN)
            self._desk.perform(SkillCall("home" if action == "retract" else "open"), motion)
            return
        pilot = self._flyer()
        if action not in ("land", "return"):
            raise MotionError(f"a drone cannot {action}", ErrorCode.SKILL_FORBIDDEN)
        if action == "return":
            self._carry_out(lambda: self._fly_home(pilot), motion, fenced=False)
        self._carry_out(pilot.land, motion, fenced=False)
        pilot.cut_motors()
        self._up = False

    def _fly_home(self, pilot: MujocoPilot) -> float:
        (x, y, _), *_ = pilot.leg.at()
        return pilot.fly((-x, -y, 0.0), float(self.settings["cruise_m_per_s"]))

    def _airborne(self, motion: Motion) -> MujocoPilot:
        pilot = self._flyer()
        if pilot.flown_s >= FLIGHT_S:
            raise MotionError("the battery is empty", ErrorCode.MOTION_FAILED)
        if not self._up:  # nor if it was stopped on its way up
            self._carry_out(lambda: pilot.take_off(HEIGHT_M), motion)
            self._up = True
        return pilot

    def _flyer(self) -> MujocoPilot:
        if self._pilot is None:
            raise MotionError("the simulation is not running", ErrorCode.CONNECTION_LOST)
        return self._pilot

    # --- Both ---

    def _check_fence(self, spot: Spot) -> None:
        if not self.in_geofence(*spot):
            raise MotionError(
                f"({', '.join(f'{part:.2f}' for part in spot)}) m is outside the geofence",
                ErrorCode.OUT_OF_LIMITS,
            )

    def _carry_out(self, order: Callable[[], float], motion: Motion, *, fenced: bool = True) -> None:
        """Give an order and return when the robot is at rest, where it was to go.

        A failsafe action is not ``fenced``, because a drone outside its fence must land all the same.
        """
        physics, body = self._physics, self._pilot or self._arm
        if physics is None or body is None:
            raise MotionError("the simulation is not running", ErrorCode.CONNECTION_LOST)
        try:
            if not body.progress.ended:
                self._follow(physics, body, MARGIN_S, motion, fenced=fenced)  # an earlier stop, still braking
            motion.permit()
            with physics.lock:
                motion.check()
                expected_s = order()
            self._follow(physics, body, SLACK * expected_s + MARGIN_S, motion, expected_s, fenced=fenced)
        except MotionCancelled:
            # The stop may have come a moment before the order.
            body.brake()
            raise
        if not body.progress.reached:
            raise MotionError("the motion was stopped on its way", ErrorCode.MOTION_FAILED)

    def _follow(
        self,
        physics: MujocoPhysics,
        body: MujocoPilot | MujocoArm,
        limit_s: float,
        motion: Motion,
        expected_s: float = 0.0,
        *,
        fenced: bool,
    ) -> None:
        begin_s = now_s = physics.time_s
        still_looks = 0
        while not body.arrived:
            before_s, now_s = now_s, physics.time_s
            still_looks = still_looks + 1 if now_s == before_s else 0
            elapsed_s = now_s - begin_s
            if physics.failure:
                raise MotionError(physics.failure, ErrorCode.CONNECTION_LOST)
            if still_looks * POLL_S > STILL_S * max(1.0, self._speed):
                raise MotionError("the simulation stands still", ErrorCode.CONNECTION_LOST)
            if isinstance(body, MujocoPilot) and body.crashed:
                raise MotionError("the drone has crashed", ErrorCode.MOTION_FAILED)
            if isinstance(body, MujocoPilot) and fenced:
                spot = body.where
                if not self.in_geofence(spot.x, spot.y, max(0.0, spot.z)):
                    body.brake()
                    raise MotionError("the drone left the geofence on its way", ErrorCode.OUT_OF_LIMITS)
            if elapsed_s > limit_s:
                body.brake()
                raise MotionError(f"not at rest after {elapsed_s:.1f} s", ErrorCode.MOTION_TIMEOUT)
            motion.progress(max(POLL_S, expected_s - elapsed_s) / self._speed)
            motion.sleep(POLL_S / max(1.0, self._speed))
