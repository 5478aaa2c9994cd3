"""Event log and metrics of the server."""
