"""How many random cases a test tries: all of them, or the fourth part in `make test-fast`."""

from __future__ import annotations

from hypothesis import settings


def examples(number: int) -> int:
    """So many under the profile of ``make test``, of which Hypothesis's own default is 100; at least one."""
    return -(-number * settings().max_examples // 100)
