"""Timely: an LLM serving system for robots; plans come in segments, scheduled by their time-utility."""

__version__ = "0.1.0"
