"""Predictions of urgency and length, made before a request is queued."""
