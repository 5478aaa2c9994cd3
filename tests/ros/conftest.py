"""Fixtures of the ROS 2 tests; without the ROS 2 packages in the environment there is nothing to test here."""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine_locks import try_lock

NEEDED = ("rclpy", "timely_interfaces", "timely_bridge", "timely_robots", "timely_ros_bench")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]

collect_ignore_glob = ["*"] if MISSING else []

if not MISSING:
    from timely_ros_bench.faults.dds_cut import fault_bench_dds_udp_only

    # Before any context is made: everything stays on this machine, and goes by UDP.
    # Over Fast DDS's shared memory an action is sometimes not discovered: in 1 of 544 tests, alone.
    os.environ.update(fault_bench_dds_udp_only())

FIRST_DOMAIN, DOMAINS = 102, 98
"""Domains above 101 use ports that Linux also hands out to clients; loopback only, so a clash is unlikely.

Domains 0 to 101 are left to people and to the benchmark.
"""

RCLPY_WARNINGS = (
    # While the parts of an action find each other, a response may be lost; rclpy says so and goes on.
    "ignore:failed to send response:RuntimeWarning",
    # rclpy's own use of its own deprecated logger method.
    "ignore:Deprecated in favor of:DeprecationWarning",
)

_next_domain = itertools.count(os.getpid())


@pytest.fixture(scope="session", autouse=True)
def nothing_in_shared_memory() -> Iterator[None]:
    """Some tests kill programs, which leave half a megabyte each there."""
    from timely_robots.ros.shared_memory import clean_ros_shared_memory

    clean_ros_shared_memory()
    yield
    clean_ros_shared_memory()


@pytest.fixture(autouse=True)
def own_state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Drivers of real robots keep stop, tasks and lease here, so that no test finds those of another."""
    monkeypatch.setenv("TIMELY_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def domain_id() -> Iterator[int]:
    """A ROS domain that no other test of this machine uses at the same time."""
    for number in itertools.islice(_next_domain, DOMAINS):
        domain = FIRST_DOMAIN + number % DOMAINS
        lock = try_lock(f"ros-domain-{domain}")
        if lock is not None:
            with lock:
                yield domain
            return
    pytest.fail("other test runs hold all ROS domains")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of rclpy that are not about our code are no errors, in the tests of this folder."""
    folder = f"{Path(__file__).parent}{os.sep}"
    marks = [pytest.mark.filterwarnings(warning) for warning in RCLPY_WARNINGS]
    for item in items:
        if str(item.path).startswith(folder):
            for mark in marks:
                item.add_marker(mark)
