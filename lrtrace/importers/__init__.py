"""Reads event logs, ROS 2 recordings and public request traces."""
