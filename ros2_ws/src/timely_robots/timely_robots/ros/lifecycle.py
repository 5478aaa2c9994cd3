"""The lifecycle that drivers and bridge share: parameters, autostart, timers of the configured time, one release."""

import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.context import Context
from rclpy.exceptions import ParameterException
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter

from timely.core import cpu_latency
from timely.core.errors import InvalidInput
from timely_robots.driver_parameters import check_ros_parameter_names
from timely_robots.ros.rclpy_utils import describe_ros_parameter, steady_ros_clock

AUTOSTART_AGAIN_S = 5.0
"""Between two attempts to start a node that failed to, as where its robot is not there yet."""


class ManagedRosNode(LifecycleNode):
    """A lifecycle node that releases everything on cleanup, on shutdown, on errors and when it is destroyed.

    A subclass overrides ``configure`` and ``release``, which must be safe to call twice. Its constructor declares the
    parameters, calls ``start_automatically``, and starts threads last. When a constructor fails, rclpy destroys the
    node under a lock of the context. A thread that spins needs this lock to end.

    Args:
        overrides: parameter values. A name with a dot may be declared when the node is configured.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str = "",
        context: Context | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self._overrides = frozenset(overrides or ())
        self._fault = ""
        """Why the node could not be configured; empty if it could."""
        super().__init__(
            name,
            namespace=namespace,
            context=context,
            parameter_overrides=[Parameter(key, value=value) for key, value in (overrides or {}).items()],
        )
        self.cpu_latency = cpu_latency.WakeLatencyRequest()
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._timers_while_configured: list[Any] = []
        self._autostart: Any = None
        self.declare_parameter(
            "autostart",
            False,
            describe_ros_parameter("configure and activate without a request", read_only=True),
        )
        self.declare_parameter(
            cpu_latency.PARAMETER,
            cpu_latency.NO_LIMIT_US,
            describe_ros_parameter(
                cpu_latency.PARAMETER_DESCRIPTION, low=cpu_latency.NO_LIMIT_US, high=cpu_latency.LONGEST_US
            ),
        )

    def publish_diagnostics(self, parts: Iterable[DiagnosticStatus]) -> None:
        array = DiagnosticArray(status=list(parts))
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)

    def declare_parameter(self, name: str, default: Any = None, *arguments: Any, **options: Any) -> Any:
        """See ``rclpy.node.Node``; raises InvalidInput for an override of a wrong type or out of bounds.

        A whole number is taken for a parameter with a fraction: YAML reads ``speed: 2`` as an integer.
        """
        override = self._parameter_overrides.get(name)
        if isinstance(default, float) and override is not None and type(override.value) is int:
            self._parameter_overrides[name] = Parameter(name, value=float(override.value))
        try:
            return super().declare_parameter(name, default, *arguments, **options)
        except ParameterException as error:
            where = f"parameters of {self.get_fully_qualified_name()}"
            raise InvalidInput(str(error), where=where) from error

    def value(self, name: str) -> Any:
        return self.get_parameter(name).value

    def release(self) -> None:
        """End all work and let go of everything that configuring made."""
        while self._timers_while_configured:
            self.destroy_timer(self._timers_while_configured.pop())
        self.cpu_latency.want(False)

    def start_automatically(self, after_s: float = 0.0) -> None:
        """Configure and activate as soon as the node spins, if the parameter ``autostart`` asks for it.

        It is tried again until it succeeds, or until a request has configured the node.

        Raises:
            InvalidInput: an override is no parameter of this node.
        """
        declared = self.get_parameters_by_prefix("")
        check_ros_parameter_names(self._overrides, declared, self.get_fully_qualified_name())
        if self.value("autostart"):
            self._autostart = self.create_timer(
                after_s, self._configure_and_activate, clock=steady_ros_clock()
            )

    def begin_work(self, timers: Mapping[Callable[[], None], float]) -> None:
        """Start timers (callback -> period in seconds) that ``release`` ends, and read the limit of ``cpu_latency``."""
        self.cpu_latency = cpu_latency.WakeLatencyRequest(int(self.value(cpu_latency.PARAMETER)))
        if self.cpu_latency.problem:
            self.get_logger().warning(f"{cpu_latency.PARAMETER}: {self.cpu_latency.problem}")
        self._timers_while_configured = [
            self.create_timer(period_s, callback, clock=steady_ros_clock())
            for callback, period_s in timers.items()
        ]

    def configure(self) -> None:
        """Make what the node works with. Whatever it raises is a failed configuration, and everything is released."""

    @property
    def fault(self) -> str:
        """Why the last configuration failed; empty otherwise."""
        return self._fault

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """See ``configure``. rclpy would hide an exception, and undo nothing."""
        self._end_autostart()
        self._fault = ""
        try:
            self.configure()
        except Exception as error:
            self._fault = str(error) or type(error).__name__
            self.get_logger().error(f"cannot configure: {self._fault}")
            self.get_logger().debug(traceback.format_exc())
            self.release()
            return TransitionCallbackReturn.FAILURE
        return super().on_configure(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.release()
        return super().on_cleanup(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """A transition raised an exception, which rclpy hides: release everything."""
        self.get_logger().error("a transition failed; the node is unconfigured")
        self.release()
        return super().on_error(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.release()
        return super().on_shutdown(state)

    def destroy_node(self) -> None:
        """Release everything, also of a node that was never shut down."""
        self.release()
        super().destroy_node()
        # rclpy leaves it to Python's collector, and with it the node and the DDS participant: see ``RosSpinner.close``.
        self._state_machine.destroy_when_not_in_use()

    def _end_autostart(self) -> None:
        timer, self._autostart = self._autostart, None
        if timer is not None:
            self.destroy_timer(timer)

    def _configure_and_activate(self) -> None:
        self._end_autostart()
        done = self.trigger_configure()
        if done == TransitionCallbackReturn.SUCCESS:
            self.trigger_activate()
        elif done == TransitionCallbackReturn.FAILURE:
            self.start_automatically(AUTOSTART_AGAIN_S)
