"""Semantic scheduling, its evaluation in the simulator."""
