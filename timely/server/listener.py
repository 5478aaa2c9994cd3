"""The address of a server: its socket, and its files for TLS."""

import ipaddress
import logging
import math
import socket
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from timely.core.errors import InvalidInput
from timely.core.files import file_errors, file_stamp

log = logging.getLogger(__name__)

DAY_S = 86_400.0
EXPIRY_WARNINGS = ((14 * DAY_S, 1 / 3), (DAY_S, 1 / 10), (0.0, 0.0))
"""Time left of a certificate at which the log warns, seconds, and the most that this is of the certificate's life."""

X509_V_FLAG_NO_CHECK_TIME = 0x200000
"""Of OpenSSL; Python has no name for it."""


def bind_server_socket(host: str, port: int, *, authenticated: bool, insecure: bool = False) -> socket.socket:
    """A socket that is bound and not listening yet; port 0 takes a free one.

    Raises:
        InvalidInput: the address is not available, or other machines could command the robots without a token.
    """
    if not _listens_on_loopback(host) and not authenticated:
        if not insecure:
            raise InvalidInput(
                "other machines could command the robots: name principals (--principals, --api-key) or say --insecure",
                where=host,
            )
        log.warning("listening on %s without authentication: every client can command the robots", host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets whose protocol number is that of TCP. With the algorithm,
    # every response on a kept connection waits 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(f"cannot listen there: {reason}", where=f"{host}:{port}") from error
    return listener


def server_socket_url(listener: socket.socket, scheme: str = "http") -> str:
    """``http://HOST:PORT`` of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _listens_on_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class ServerTlsFiles:
    """Files for TLS, in PEM.

    Attributes:
        client_ca: certificate authority of the clients; with it, every client must show a certificate.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None


def _server_tls_context(files: ServerTlsFiles) -> ssl.SSLContext:
    """TLS of a server by its files; raises InvalidInput if one is unusable."""
    certificate, key, client_ca = files.certificate, files.key, files.client_ca
    for path in filter(None, (certificate, key, client_ca)):
        with file_errors(path, "cannot be read"):
            path.read_bytes()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=partial(_refuse_tls_pass_phrase, key))
    except OSError as error:
        raise InvalidInput(f"unusable: {error}", where=f"{certificate}, {key}") from error
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise InvalidInput(f"unusable: {error}", where=str(client_ca)) from error
    return context


class RenewedServerTls:
    """TLS of new connections, by the files as they are now. Files that cannot be used change nothing.

    The log warns once of a certificate that soon expires, that has expired, or that clients will refuse otherwise.
    These are no errors: the clock of a robot's computer may be wrong after its start.

    Args:
        epoch_s: the time of day, seconds since 1970.

    Attributes:
        context: of the next connection; open ones keep theirs.
        expires_s: when the certificate expires, seconds since 1970; NaN: unknown.

    Raises:
        InvalidInput: the files cannot be used at the start.
    """

    def __init__(self, files: ServerTlsFiles, epoch_s: Callable[[], float] = time.time) -> None:
        self._files, self._epoch_s = files, epoch_s
        self._stamps = self._read_stamps()
        self._load()
        self._warn_of_expiry()

    def refresh(self) -> None:
        """Look at the files and at the time; to be called about once a second."""
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._load()
            except (OSError, InvalidInput) as error:
                log.error("the certificate stays as it was: %s", error)
            else:
                log.warning("certificate read again from %s", self._files.certificate)
        self._warn_of_expiry()

    def _load(self) -> None:
        # A new one: no authority of clients can be removed from a context.
        certificate, context = self._files.certificate, _server_tls_context(self._files)
        begins_s, expires_s, problem = _check_tls_certificate(context, certificate)
        if self._files.key.stat().st_mode & stat.S_IROTH:
            log.warning("%s: every user of this machine can read it", self._files.key)
        if begins_s > self._epoch_s():
            problem = "certificate is not yet valid"
        if problem:
            log.warning("%s: clients will refuse it: %s", certificate, problem)
        self.context, self.expires_s = context, expires_s
        life_s = expires_s - begins_s
        self._warnings_s = [min(left_s, share * life_s) for left_s, share in EXPIRY_WARNINGS]

    def _warn_of_expiry(self) -> None:
        left_s = self.expires_s - self._epoch_s()
        due = [limit_s for limit_s in self._warnings_s if left_s <= limit_s]
        if not due:
            return
        self._warnings_s = self._warnings_s[len(due) :]
        if left_s <= 0.0:
            log.warning("%s: clients will refuse it: certificate has expired", self._files.certificate)
        else:
            log.warning("%s: expires in %.1f days", self._files.certificate, left_s / DAY_S)

    def _read_stamps(self) -> list[tuple[int, int, int] | None]:
        files = self._files
        return [
            _tls_file_stamp(path) for path in filter(None, (files.certificate, files.key, files.client_ca))
        ]


def server_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> RenewedServerTls | None:
    """TLS by these files, or None.

    Raises:
        InvalidInput: one is missing or cannot be read.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise InvalidInput("TLS needs a certificate and a key", where="--ssl-certfile, --ssl-keyfile")
    return RenewedServerTls(ServerTlsFiles(certificate, key, client_ca))


def _tls_file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        return file_stamp(path)
    except OSError:
        return None


def _refuse_tls_pass_phrase(key: Path) -> bytes:
    """OpenSSL would ask at the terminal, and a service has none."""
    raise InvalidInput("has a pass phrase; give a key without one", where=str(key))


def _check_tls_certificate(server_context: ssl.SSLContext, certificate: Path) -> tuple[float, float, str]:
    """When a certificate begins and ends to be valid, and what else a client says of it that trusts it.

    Times are seconds since 1970, NaN if the client refuses the certificate. The text is empty if it does not.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | X509_V_FLAG_NO_CHECK_TIME
    context.load_verify_locations(certificate)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return math.nan, math.nan, error.verify_message
    fields = client.getpeercert() or {}
    begins_s, expires_s = (ssl.cert_time_to_seconds(str(fields[name])) for name in ("notBefore", "notAfter"))
    return begins_s, expires_s, ""
