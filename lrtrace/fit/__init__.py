"""Fits execution-time models to recorded runs."""
