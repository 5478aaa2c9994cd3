"""The limit of open files against the number of connections."""

from __future__ import annotations

import resource

import pytest

from timely.server.open_files import OTHER_FILES, settings_within_open_files
from timely.server.settings import ServerSettings

SETTINGS = ServerSettings(max_connections=1000)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The process's limits, the latest last."""
    values = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: values[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: values.append(limit))
    return values


@pytest.mark.parametrize("hard", [1512, 4096, resource.RLIM_INFINITY])
def test_the_limit_is_raised_as_far_as_needed(limits: list[tuple[int, int]], hard: int) -> None:
    limits.append((1024, hard))
    assert settings_within_open_files(SETTINGS) is SETTINGS
    assert limits[-1] == (1000 + OTHER_FILES, hard)


@pytest.mark.parametrize("soft", [1512, 5000, resource.RLIM_INFINITY])
def test_a_limit_that_suffices_stays(limits: list[tuple[int, int]], soft: int) -> None:
    limits.append((soft, resource.RLIM_INFINITY))
    assert settings_within_open_files(SETTINGS) is SETTINGS
    assert limits[-1] == (soft, resource.RLIM_INFINITY)


@pytest.mark.parametrize(("hard", "connections"), [(1300, 788), (256, 64)])
def test_with_too_few_files_connections_are_fewer(
    limits: list[tuple[int, int]], hard: int, connections: int, caplog: pytest.LogCaptureFixture
) -> None:
    limits.append((256, hard))
    assert settings_within_open_files(SETTINGS).max_connections == connections
    assert limits[-1] == (max(256, hard), hard)
    assert f"connections are limited to {connections}" in caplog.text


def test_too_few_files_allow_no_more_connections_than_the_settings(limits: list[tuple[int, int]]) -> None:
    limits.append((256, 256))
    assert settings_within_open_files(ServerSettings(max_connections=10)).max_connections == 10
