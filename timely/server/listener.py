"""The address of a server: its socket, and its files for TLS."""

import ipaddress
import logging
import socket
import ssl
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from timely.core.errors import InvalidInput
from timely.core.files import file_errors, file_stamp

log = logging.getLogger(__name__)


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


def server_tls_files(
    certificate: Path | None, key: Path | None, client_ca: Path | None
) -> ServerTlsFiles | None:
    """The files for TLS, or None.

    Raises:
        InvalidInput: one is missing or cannot be read.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise InvalidInput("TLS needs a certificate and a key", where="--ssl-certfile, --ssl-keyfile")
    files = ServerTlsFiles(certificate, key, client_ca)
    _warn_of_tls_files(files, _server_tls_context(files))
    return files


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


def _warn_of_tls_files(files: ServerTlsFiles, context: ssl.SSLContext) -> None:
    if problem := _tls_client_complaint(context, files.certificate):
        # No error: the clock of a robot's computer may be wrong after its start.
        log.warning("%s: clients will refuse it: %s", files.certificate, problem)
    if files.key.stat().st_mode & stat.S_IROTH:
        log.warning("%s: every user of this machine can read it", files.key)


class RenewedServerTls:
    """TLS of new connections, by the files as they are now. Files that cannot be used change nothing.

    Attributes:
        context: of the next connection; open ones keep theirs.

    Raises:
        InvalidInput: the files cannot be used at the start.
    """

    def __init__(self, files: ServerTlsFiles) -> None:
        self._files = files
        self._stamps = self._read_stamps()
        self.context = _server_tls_context(files)

    def refresh(self) -> None:
        """Look at the files; to be called about once a second."""
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            # A new one: no authority of clients can be removed from a context.
            context = _server_tls_context(self._files)
            _warn_of_tls_files(self._files, context)
            self.context = context
        except (OSError, InvalidInput) as error:
            log.error("the certificate stays as it was: %s", error)
        else:
            log.warning("certificate read again from %s", self._files.certificate)

    def _read_stamps(self) -> list[tuple[int, int, int] | None]:
        files = self._files
        return [
            _tls_file_stamp(path) for path in filter(None, (files.certificate, files.key, files.client_ca))
        ]


def _tls_file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        return file_stamp(path)
    except OSError:
        return None


def _refuse_tls_pass_phrase(key: Path) -> bytes:
    """OpenSSL would ask at the terminal, and a service has none."""
    raise InvalidInput("has a pass phrase; give a key without one", where=str(key))


def _tls_client_complaint(server_context: ssl.SSLContext, certificate: Path) -> str:
    """What a client says of a certificate that it trusts; empty if it takes it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
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
            return error.verify_message
    return ""
