"""Measures prompt injection: a corpus of attacks, and its run on a real model."""
