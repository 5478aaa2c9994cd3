"""The workers of a test run: when one dies, another goes on with what is left and is given nothing that is done."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = ["tests/a.py::test_1", "tests/a.py::test_2", "tests/b.py::test_1", "tests/b.py::test_2"]


class Worker:
    """What a scheduler sees of one."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self) -> None:
        self.indices: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        assert indices, "the worker would wait for ever"
        self.indices += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def test_what_a_dead_worker_has_done_is_not_handed_out_again(request: pytest.FixtureRequest) -> None:
    options = {"tx": ["popen"], "loadscopereorder": False, "debug": False}
    config = SimpleNamespace(getvalue=options.get, option=SimpleNamespace(**options))
    conftest = request.config.pluginmanager.get_plugin(str(CONFTEST))
    assert conftest is not None
    scheduler = conftest.ByPath(config)
    first, second = Worker(), Worker()
    scheduler.add_node(first)
    scheduler.add_node_collection(first, TESTS)
    scheduler.schedule()
    assert first.indices == [0, 1, 2, 3]
    for index in (0, 1, 2):
        scheduler.mark_test_complete(first, index)
    scheduler.add_node(second)
    scheduler.add_node_collection(second, TESTS)
    assert scheduler.remove_node(first) == TESTS[3]
    scheduler.schedule()
    assert second.indices == [3]
    assert second.shutting_down
