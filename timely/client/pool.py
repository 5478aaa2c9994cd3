"""How many connections a client keeps: as many as it has plans on the way, and those it used lately."""

from __future__ import annotations

import httpx

KEPT_S = 20.0
"""An idle connection is kept for so long; less than the server's own 30 s."""

CONNECTIONS = httpx.Limits(
    # A plan on its way holds one, and a bridge may have any number of robots.
    max_connections=None,
    # httpcore compares this with all connections, busy ones too: with 21 plans on the way, every report would open one.
    max_keepalive_connections=None,
    keepalive_expiry=KEPT_S,
)
