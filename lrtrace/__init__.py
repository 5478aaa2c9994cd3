"""LRTrace: record, model, compose, import and summarise the time traces of robots that plan with an LLM.

Stands alone: it knows trace files, robot profiles and execution times, and nothing of the serving system.
"""
