"""A small planner for the built-in model: examples, training, judging by what plans do, the shipped adapter."""
