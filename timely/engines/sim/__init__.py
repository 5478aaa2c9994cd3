"""The simulated engine: iteration-level, on a virtual clock, with the live engine's own scheduling code."""
