"""Composes workloads out of events, tasks and robots."""
