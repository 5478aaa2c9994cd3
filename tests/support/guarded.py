"""Principals of the security tests, and clients with their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from fleet import Fleet

from timely.principals import principal_token_digest

TOKENS = {
    name: f"{name}-0123456789-0123456789"
    for name in ("drones", "arms", "planner", "ops", "arm-ops", "watcher", "stranger")
}
PRINCIPALS = [
    {"name": "drones", "roles": ["robot"], "agents": ["drone-*"]},
    {"name": "arms", "roles": ["robot"], "agents": ["arm-1", "crane-*"]},
    {"name": "planner", "roles": ["program"], "agents": ["drone-1"]},
    {"name": "ops", "roles": ["operator"]},
    {"name": "arm-ops", "roles": ["operator"], "agents": ["arm-*"]},
    {"name": "watcher", "roles": ["viewer"]},
]

HIGH_CLAIMS: dict[str, Any] = {
    "tuf": {"ert_s": 0.1, "alpha": -1000.0, "beta": 50.0},
    "urgency": 0,
    "priority": -5.0,
    "app": "a",
}
"""Claims of a task above the limits of every role but the operator's."""


@dataclass
class Guarded:
    """A server with principals; ``as_(name)`` is a client of one of them."""

    fleet: Fleet
    path: Path

    def as_(self, name: str, **headers: str) -> httpx.Client:
        """A client with the token of that principal."""
        headers = {"Authorization": f"Bearer {TOKENS[name]}", **headers}
        return httpx.Client(base_url=self.fleet.url, headers=headers, timeout=10.0)


def write_principals(path: Path, entries: Sequence[Mapping[str, object]] = PRINCIPALS) -> None:
    """Write the file of principals with the tokens of the tests."""
    listed = [
        {**entry, "token_sha256": [principal_token_digest(TOKENS[str(entry["name"])])]} for entry in entries
    ]
    path.write_text(yaml.safe_dump(listed))
