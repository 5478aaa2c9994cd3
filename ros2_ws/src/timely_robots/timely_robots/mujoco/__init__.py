"""Physics robots without a window: an arm on a table and a quadrotor, simulated by MuJoCo."""
