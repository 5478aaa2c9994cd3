"""The client's connection pool: unlimited while in use, closed soon after."""

import os
import ssl
from typing import Any

import httpx

from timely.client.problems import TOKEN_VARIABLE
from timely.client.protocol import client_bearer_header
from timely.client.tls import client_tls
from timely.core.http_url import check_http_url

KEPT_S = 20.0
"""An idle connection is kept for so long; less than the server's own 30 s."""

CONNECTIONS = httpx.Limits(
    # Each open event stream holds a connection, and a bridge may have any number of robots.
    max_connections=None,
    # httpcore counts busy connections too: with 21 open streams, every report would open another connection.
    max_keepalive_connections=None,
    keepalive_expiry=KEPT_S,
)


def client_pool_options(
    url: str, timeout_s: float, verify: ssl.SSLContext | bool, token: str | None
) -> dict[str, Any]:
    """The arguments of httpx's client; without a token that of the environment is sent.

    Raises:
        InvalidInput: no server can be at the URL, or no header can carry the token.
    """
    check_http_url(url, "http://127.0.0.1:8000", where="url")
    headers = client_bearer_header(token or os.environ.get(TOKEN_VARIABLE))
    return {
        "base_url": url,
        "timeout": timeout_s,
        "limits": CONNECTIONS,
        "verify": client_tls(verify),
        "headers": headers,
    }
