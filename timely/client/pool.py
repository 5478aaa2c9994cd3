"""Limits of the client's connection pool: unlimited while in use, closed soon after."""

import httpx

KEPT_S = 20.0
"""An idle connection is kept for so long; less than the server's own 30 s."""

CONNECTIONS = httpx.Limits(
    # Each open event stream holds a connection, and a bridge may have any number of robots.
    max_connections=None,
    # httpcore counts busy connections too: with 21 open streams, every report would open another connection.
    max_keepalive_connections=None,
    keepalive_expiry=KEPT_S,
)
