"""A MuJoCo simulation that keeps up with a clock, real or accelerated, on a thread of its own."""

import threading
from collections.abc import Callable
from typing import Any, Protocol, Self

from timely_robots.clock import RobotClock, SteppedRobotClock
from timely_robots.robot import vendor_library_error

LAP_S = 0.004
"""The simulation is brought up to date this often."""
MAX_BEHIND_S = 1.0
"""Simulated seconds that are made up for in one go; what a slow machine misses beyond that is lost, and counted."""


class MujocoController(Protocol):
    """Looks at the state and sets the controls; called before every step, with the simulation locked."""

    def control(self, now_s: float) -> None:
        """``now_s`` is simulated time, seconds."""


def load_mjcf(xml: str) -> tuple[Any, Any]:
    """(model, data) of an MJCF text.

    Raises:
        MotionError: CONNECTION_LOST: MuJoCo is not installed.
    """
    try:
        import mujoco
    except ImportError as error:
        raise vendor_library_error(error) from error
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


class MujocoPhysics:
    """Steps a model as time goes by; with a ``SteppedRobotClock``, time goes by as it steps.

    Args:
        speed: simulated seconds per second of ``clock``.
    """

    def __init__(
        self, model: Any, data: Any, controller: MujocoController, clock: RobotClock, speed: float
    ) -> None:
        import mujoco

        self._step: Callable[[Any, Any], None] = mujoco.mj_step
        self.model, self.data = model, data
        self.lock = threading.RLock()
        """Held while the state changes: take it to look at more than one number, and to set a goal."""
        self.speed = speed
        self._controller, self._clock = controller, clock
        self._closing = threading.Event()
        self._last_s = clock.now()
        self._behind_s = 0.0
        self.failure = ""
        """Why the simulation ended by itself."""
        self.lost_s = 0.0
        """Simulated time by which it has fallen behind its clock for good."""
        self._thread = threading.Thread(target=self._run, name="physics", daemon=True)

    @property
    def time_s(self) -> float:
        """Simulated time, seconds. On a machine that is too slow it falls behind the clock."""
        return float(self.data.time)

    def start(self) -> Self:
        self._last_s = self._clock.now()
        self._thread.start()
        return self

    def close(self, timeout_s: float = 5.0) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def advance(self, seconds: float) -> None:
        """Let so much simulated time pass, whole steps of it; the rest is owed to the next call."""
        step_s = self.model.opt.timestep
        self._behind_s += seconds
        while self._behind_s >= step_s:
            self._behind_s -= step_s
            self._controller.control(self.data.time)
            self._step(self.model, self.data)

    def _run(self) -> None:
        clock = self._clock
        try:
            if isinstance(clock, SteppedRobotClock):
                while not self._closing.wait(LAP_S / clock.speed):
                    with self.lock:
                        self.advance(LAP_S)
                    clock.advance(LAP_S)
                return
            while not clock.wait(self._closing, LAP_S):
                now_s = clock.now()
                passed_s, self._last_s = (now_s - self._last_s) * self.speed, now_s
                self.lost_s += max(0.0, passed_s - MAX_BEHIND_S)
                with self.lock:
                    self.advance(min(passed_s, MAX_BEHIND_S))
        except Exception as error:  # the caller that waits for a motion must hear of it
            self.failure = f"the simulation failed: {type(error).__name__}: {error}"
