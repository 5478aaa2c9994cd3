"""Breaks a fleet again and again, seeded, and counts violations: ``timely bench faults``.

Server (a scripted model), bridge, drivers and emulated robots run in processes of their own. Drivers use the vendors'
own clients. The network of the emulated Tello loses and doubles one datagram in five. In each round every robot gets a
task, and one fault happens to one robot or to all:

* ``late_segment``: the model stalls in the middle of a plan;
* ``unsafe_plan``: the model writes a motion outside the robot's limits;
* ``emulator_dies``, ``battery``: the robot is gone in the middle of a motion, its battery runs out;
* ``driver_killed``, ``bridge_killed``, ``server_killed``: the process gets SIGKILL and is started again;
* ``dds_cut``: the driver's ROS 2 datagrams are lost, both ways, for five seconds.

Then the robots' own logs are compared with what was sent, and the end of every task is checked (``judge``).
"""

from __future__ import annotations

from timely_ros_bench.faults.measure import measure_faults

__all__ = ["measure_faults"]
