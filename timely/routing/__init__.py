"""The choice of an engine for a task, and the prediction of its response there. Time is an argument."""
