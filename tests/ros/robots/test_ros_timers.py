"""Timers of nodes go on when the computer's time is set back."""

from __future__ import annotations

import pytest
from rclpy.clock import ClockType
from timely_robots.ros.lifecycle import ManagedRosNode
from timely_robots.ros.spinner import isolated_ros_context


@pytest.mark.ros
def test_timers_do_not_follow_the_wall_clock(domain_id: int) -> None:
    context = isolated_ros_context(domain_id)
    node = ManagedRosNode("timed", context=context, overrides={"autostart": True})
    try:
        node.start_automatically()
        node.begin_work({lambda: None: 1.0})
        assert [timer.clock.clock_type for timer in node.timers] == [ClockType.STEADY_TIME] * 2
    finally:
        node.destroy_node()
        context.try_shutdown()
