"""URLs that a user gives of a server."""

import re
from urllib.parse import urlsplit

from timely.core.errors import InvalidInput


def check_http_url(url: object, example: str, *, where: str) -> None:
    """Check that a server can be at a URL.

    Raises:
        InvalidInput: it cannot; the message has ``example``.
    """
    try:
        # A line feed at the end would be left out here, and would be an error of the HTTP library later.
        parts = urlsplit(url) if isinstance(url, str) and not re.search(r"[\s\x00-\x1f]", url) else None
        is_usable = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
        is_usable = is_usable and (parts is None or parts.port != 0)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise InvalidInput(f"must be like {example}, not {str(url)[:140]!r}", where=where)
