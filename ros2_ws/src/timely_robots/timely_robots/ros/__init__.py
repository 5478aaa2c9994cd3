"""Everything of a driver process that needs rclpy."""
