"""The ROS 2 bridge of the Timely server: an action for each robot, segments to its driver, reports back."""
