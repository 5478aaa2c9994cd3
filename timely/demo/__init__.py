"""The demonstration: real model, ROS 2 robots, a minute of mixed tasks, watched live and drawn at the end."""
