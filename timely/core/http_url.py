"""URLs that a user gives of a server."""

from urllib.parse import urlsplit

from timely.core.errors import InvalidInput


def check_http_url(url: object, example: str, *, where: str) -> None:
    """Check that a server can be at a URL.

    Raises:
        InvalidInput: it cannot; the message has ``example``.
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        is_usable = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
        is_usable = is_usable and (parts is None or parts.port != 0)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidInput(f"must be like {example}, not {str(url)[:140]!r}", where=where)
