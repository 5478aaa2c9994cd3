"""Benchmarks of the whole system and reproductions of the papers."""
