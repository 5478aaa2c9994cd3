"""Event log, metrics and totals of the server."""
