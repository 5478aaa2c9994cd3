"""Justitia, its evaluation in the simulator."""
