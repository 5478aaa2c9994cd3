"""Flat fields of a test's request, with those that are hints put into ``RequestHints``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timely.core.hints import HINTS, RequestHints


def with_hints(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same fields; ``urgency``, ``app`` and the other hints move into ``hints``."""
    hints = {name: value for name, value in fields.items() if name in HINTS}
    return {name: value for name, value in fields.items() if name not in HINTS} | {
        "hints": RequestHints(**hints)
    }
