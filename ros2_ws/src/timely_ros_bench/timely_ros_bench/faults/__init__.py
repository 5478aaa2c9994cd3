"""Breaks a fleet again and again, seeded, and counts violations: ``timely bench faults``.

Server (a scripted model), bridge, drivers and emulated robots run in processes of their own. Drivers use the vendors'
own clients. The network of the emulated Tello loses and doubles one datagram in five. In each round every robot gets a
task, and one fault or a pair happens to one robot or to all:

* ``late_segment``: the model stalls in the middle of a plan;
* ``unsafe_plan``: the model writes a motion outside the robot's limits;
* ``emulator_dies``, ``battery``: the robot is gone in the middle of a motion, its battery runs out;
* ``driver_killed``, ``bridge_killed``, ``server_killed``: the process gets SIGKILL and is started again;
* ``driver_hangs``, ``bridge_hangs``, ``server_hangs``: the process gets SIGSTOP, and goes on up to six seconds later;
* ``dds_cut``, ``dds_cut_sent``, ``dds_cut_received``: the driver's ROS 2 datagrams are lost for five seconds: both
  ways, those that it sends, or those that others send;
* ``fleet_stop``: a program stops the fleet, and an operator resets it;
* ``two_bridges``: another bridge for the same robots is started, and gets SIGKILL;
* ``disk_full``: server, bridge, and drivers of emulated robots can write no byte to any file;
* ``server_disk_hangs``, ``bridge_disk_hangs``, ``driver_disk_hangs``: what the process writes to its state waits, as on
  a disk that answers up to six seconds later;
* ``clock_jumps``: the wall clock of the driver's computer is an hour ahead or behind;
* ``overload``: other programs request far more plans than the server can serve. It cancels those without a reader;
* ``new_scene``: the drone's scene changes, so that its task is re-planned.

A failed motion is re-planned once, too. All plans of a task have motions of their own.

Every kind comes once alone. Then every second round is a pair: the second fault begins while the first one lasts.

Each round is judged by itself (``judge``). The whole run of a fleet is judged as one history (``history``). It has the
server's log, the ends and leases that bridge and drivers published, and the robots' own logs.
"""

from timely_ros_bench.faults.fleets import measure_fault_fleets

__all__ = ["measure_fault_fleets"]
