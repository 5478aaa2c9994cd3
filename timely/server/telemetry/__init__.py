"""Event log, metrics and traces of the server."""
