"""Tests of optional packages, without loading them while tests are collected: vLLM alone takes ten seconds."""

from importlib.util import find_spec

import pytest


def require_package(name: str) -> None:
    """Skip the test, or the module that calls this at its top, where the package is not installed."""
    if find_spec(name) is None:
        pytest.skip(f"needs {name}", allow_module_level=True)
