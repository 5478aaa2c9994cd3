"""LAPS-SD, its evaluation in the simulator."""
