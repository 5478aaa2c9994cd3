"""The client's connections: TLS, and a pool that is unlimited while in use and closed soon after."""

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from timely.client.problems import TOKEN_VARIABLE
from timely.client.protocol import client_bearer_header
from timely.core.errors import InvalidInput, NotAllowed
from timely.core.http_url import check_http_url

AUTHORITY_VARIABLE = "SSL_CERT_FILE"
"""Environment variable of httpx: the authorities of servers, PEM."""

CERTIFICATE_VARIABLE, KEY_VARIABLE = "TIMELY_CLIENT_CERTFILE", "TIMELY_CLIENT_KEYFILE"
"""Environment variables: PEM files of the client's own certificate and of its key, which may be in the first."""

KEPT_S = 20.0
"""An idle connection is kept for so long; less than the server's own 30 s."""

CONNECTIONS = httpx.Limits(
    # Each open event stream holds a connection, and a bridge may have any number of robots.
    max_connections=None,
    # httpcore counts busy connections too: with 21 open streams, every report would open another connection.
    max_keepalive_connections=None,
    keepalive_expiry=KEPT_S,
)


@contextmanager
def client_tls_errors() -> Iterator[None]:
    """What httpx raises for the authorities of the environment becomes InvalidInput with the name of the file."""
    try:
        yield
    except OSError as error:
        file = os.environ.get(AUTHORITY_VARIABLE, "")
        raise InvalidInput(f"unusable: {error}", where=f"${AUTHORITY_VARIABLE} {file}") from error


REFUSED_CERTIFICATE = re.compile(r"ALERT_(.*CERTIFICATE.*|UNKNOWN_CA|ACCESS_DENIED)")
"""OpenSSL's names of the alerts of a server that refuses the client's certificate, or that gets none."""


@contextmanager
def client_tls_alerts() -> Iterator[None]:
    """An alert of the server becomes an error of httpx, which maps none in asyncio.

    Raises:
        NotAllowed: the alert is of the client's certificate, so no repeat of the request would help.
    """
    try:
        yield
    except (ssl.SSLError, httpx.TransportError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        # An error that Python code raised has no reason.
        if cause is not None and REFUSED_CERTIFICATE.search(getattr(cause, "reason", None) or ""):
            detail = f"the server refuses this program's certificate: {cause}"
            raise NotAllowed(detail, where=f"${CERTIFICATE_VARIABLE}") from error
        if error is cause:
            raise httpx.ReadError(str(error)) from error
        raise


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


def client_tls(verify: ssl.SSLContext | bool) -> ssl.SSLContext | bool:
    """``verify``; if it is True, with the certificate of the environment for servers that ask for one.

    ``$SSL_CERT_FILE`` names the authorities of servers, as for httpx.

    Raises:
        InvalidInput: the certificate or its key cannot be read.
    """
    certificate = os.environ.get(CERTIFICATE_VARIABLE)
    if verify is not True or not certificate:
        return verify
    context = httpx.create_ssl_context()
    try:
        context.load_cert_chain(certificate, os.environ.get(KEY_VARIABLE) or None)
    except OSError as error:
        raise InvalidInput(f"unusable: {error}", where=f"${CERTIFICATE_VARIABLE} {certificate}") from error
    return context
