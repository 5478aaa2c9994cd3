"""Training the planner's adapter."""
