"""Hooks of the documentation site: a link to a file outside docs/ becomes the path of that file."""

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\.?/[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace links that leave docs/ by their text and the path in the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def plain(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", folder, match.group(2).partition("#")[0]))
        if path.startswith("docs/"):
            return match.group()
        text = match.group(1)
        return f"`{path}`" if path.endswith(text.strip("`")) else f"{text} (`{path}`)"

    return LINK.sub(plain, markdown)
