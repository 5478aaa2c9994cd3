"""Benchmarks of the ROS 2 side: latency, stop, soak and faults."""
