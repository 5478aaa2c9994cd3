"""Breaks a fleet again and again, at random and seeded, and counts broken promises: ``timely bench faults``.

Real parts, each in a process of its own: the server (a scripted model), the bridge, a driver for each robot, and
emulated robots with the vendors' own clients; the emulated Tello's network loses and doubles one datagram in five
throughout. In each round every robot gets a task and one fault strikes one of them, or all:

* ``late_segment``: the model stalls in the middle of a plan;
* ``unsafe_plan``: the model writes a motion outside the robot's limits;
* ``emulator_dies``, ``battery``: the robot is gone in the middle of a motion, its battery runs out;
* ``driver_killed``, ``bridge_killed``, ``server_killed``: the process gets SIGKILL and is started again;
* ``dds_cut``: the driver's ROS 2 datagrams are lost, both ways, for five seconds.

Then the robots' own logs are compared with what was sent, and every task's end is looked at (``judge``).
"""

from __future__ import annotations

from timely_ros_bench.faults.measure import measure_faults

__all__ = ["measure_faults"]
