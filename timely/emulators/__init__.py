"""Robots on loopback that speak their makers' protocols and behave: for trying drivers without a robot."""
