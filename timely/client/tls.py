"""The client's side of TLS."""

import os
import ssl

import httpx

from timely.core.errors import InvalidInput

CERTIFICATE_VARIABLE, KEY_VARIABLE = "TIMELY_CLIENT_CERTFILE", "TIMELY_CLIENT_KEYFILE"
"""Environment variables: PEM files of the client's own certificate and of its key, which may be in the first."""


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
