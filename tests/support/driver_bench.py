"""A driver over ROS 2 with a robot that a test controls, and a program that drives it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.qos import QoSProfile
from ros_harness import LIMIT_S, Goal, Program, eventually
from timely_interfaces.action import ExecuteSegment
from timely_interfaces.msg import RobotState
from timely_robots.robot import Robot
from timely_robots.ros.driver_node import DriverNode
from timely_robots.ros.rclpy_utils import TASKS
from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
from timely_robots.segments import Motion, MotionError, SkillCall, SkillValue
from timely_robots.sim.robot import SimRobot


class RobotUnderTest(SimRobot):
    """A simulated drone whose halt, battery and queries a test controls."""

    hang = threading.Event()
    """While it is set, ``halt`` does not return."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.battery = 1.0
        self.halts: list[float] = []
        self.performed: list[str] = []
        self.link_lost = False
        self.failures = 0
        """How many failsafe actions fail from now on."""
        self.endless = 0
        """How many failsafe actions last until they are interrupted, from now on."""

    def failsafe(self, action: str, motion: Motion) -> None:
        if self.failures:
            self.failures -= 1
            raise MotionError("the link is lost")
        if self.endless:
            self.endless -= 1
            motion.sleep(math.inf)
        super().failsafe(action, motion)

    def halt(self) -> None:
        self.halts.append(time.monotonic())
        end = time.monotonic() + LIMIT_S
        while self.hang.is_set() and time.monotonic() < end:
            time.sleep(0.01)

    def perform(self, call: SkillCall, motion: Motion) -> SkillValue:
        self.performed.append(call.text)
        return super().perform(call, motion)

    def status(self) -> Any:
        return replace(super().status(), battery=self.battery, link_lost=self.link_lost)


class DriverBench:
    """A driver over ROS 2, a program, and the driver's folder on the disk."""

    def __init__(self, domain_id: int, folder: Path, **parameters: Any) -> None:
        self.robot = RobotUnderTest()
        overrides = {"profile": "sim-drone", "skill_set": "drone", "speed": 20.0, "times": "expected"}
        overrides |= {"state_dir": str(folder), "state_period_s": 0.05, **parameters}
        context = isolated_ros_context(domain_id)
        self.driver = DriverNode(self.robot, namespace="robot1", context=context, overrides=overrides)
        self.spinner = RosSpinner(context, [self.driver], name="driver").start()
        self.program = Program(domain_id)
        self.states: list[RobotState] = self.program.listen(RobotState, "/robot1/state", latched=True)
        assert self.transition("configure", "activate") == [TransitionCallbackReturn.SUCCESS] * 2
        self.spinner.executor.wake()

    def transition(self, *steps: str) -> list[TransitionCallbackReturn]:
        """Steps of the lifecycle, one after the other, and how each ended."""
        return [
            self.spinner.call_and_wait(getattr(self.driver, f"trigger_{step}"), LIMIT_S) for step in steps
        ]

    def send(self, text: str, task: str = "t", index: int = 0, **fields: Any) -> Goal:
        return self.program.send(
            ExecuteSegment, "/robot1/execute_segment", task_id=task, index=index, text=text, **fields
        )

    def call(self, kind: Any, name: str, **fields: Any) -> Any:
        return self.program.call(kind, f"/robot1/driver/{name}", kind.Request(**fields))

    def until(self, what: Any, message: str = "the state never said so") -> RobotState:
        state: RobotState = eventually(lambda: next((s for s in self.states[-3:] if what(s)), None), message)
        return state

    def publish(self, kind: Any, topic: str, message: Any, qos: QoSProfile = TASKS) -> None:
        """Publish once the driver listens."""
        publisher = self.spinner.call_and_wait(
            lambda: self.driver.create_publisher(kind, topic, qos), LIMIT_S
        )
        eventually(lambda: publisher.get_subscription_count() > 0, "no subscription")
        publisher.publish(message)

    def age_lease(self, seconds: float) -> float:
        """Let the driver's lease be so much older; when it was renewed then."""
        lease = self.driver._safety.lease
        lease._renewed_s -= seconds
        return lease._renewed_s

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Hold the driver's executor up."""
        begun, end = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            end.wait(LIMIT_S)

        self.spinner.call(work)
        assert begun.wait(LIMIT_S)
        try:
            yield
        finally:
            end.set()

    def close(self) -> None:
        self.robot.hang.clear()
        self.program.close()
        assert self.spinner.close(), "the driver's executor did not end"


@contextmanager
def driver_bench(domain_id: int, folder: Path, **parameters: Any) -> Iterator[DriverBench]:
    bench = DriverBench(domain_id, folder, **parameters)
    try:
        yield bench
    finally:
        bench.close()


@contextmanager
def driver_of(robot: Robot, domain_id: int, **parameters: Any) -> Iterator[DriverNode]:
    """A driver that nothing spins."""
    context = isolated_ros_context(domain_id)
    driver = DriverNode(robot, context=context, overrides={"profile": "sim-drone", **parameters})
    try:
        yield driver
    finally:
        driver.destroy_node()
        context.try_shutdown()
