"""What a long run tells its caller while it goes on."""

from collections.abc import Callable

Say = Callable[[str], None]
"""Takes a line about what was done or measured."""
