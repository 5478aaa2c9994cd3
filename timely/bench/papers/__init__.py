"""Reproductions of the five papers, one folder a paper."""
