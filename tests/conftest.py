"""What all tests share: which files are read, how hypothesis looks for counterexamples, what one worker runs."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import marshal
import os
import re
import ssl
import threading
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import httpx
import pytest
import typer.main
import typer.utils
from _pytest.mark.expression import Expression
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# Whether an example takes 0.1 or 0.3 s says how busy the machine is. Timings belong into benchmarks.
settings.register_profile("house", deadline=None)
settings.register_profile(
    "fast", deadline=None, max_examples=25
)  # --hypothesis-profile=fast; see examples.py
settings.load_profile("house")

# There are workers enough for all processors: a second thread of torch would spin on that of another worker.
# Numba, which looks n-grams up for vLLM, sets the number of threads for torch, too.
for threads in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(threads, "1")


@cache
def authorities(file: str | None) -> ssl.SSLContext:
    """Those of the file, which the environment names, or of the web."""
    return httpx.create_ssl_context()


def tls_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """httpx's own, but the authorities of the web are read once, and not for each client: 50 ms, also without TLS."""
    if verify is True and cert is None and trust_env:
        return authorities(os.environ.get("SSL_CERT_FILE"))
    return httpx.create_ssl_context(verify, cert, trust_env)


httpx._transports.default.create_ssl_context = tls_context  # type: ignore[attr-defined]


class _UvicornLoop(ModuleType):
    """asyncio as Uvicorn sees it: it looks every 2 ms whether connections are closed, and not ten times a second."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay: float) -> None:
        await asyncio.sleep(min(delay, 0.002))


# Tests end some 340 servers. Those of disciplines need none, nor the extra ``server``.
if find_spec("uvicorn") is not None:
    import_module("uvicorn.server").asyncio = _UvicornLoop("asyncio")  # type: ignore[attr-defined]

# The parameters of a command are read once, and not for each of the tests' command lines: up to 30 ms.
typer.main.get_params_from_function = cache(typer.utils.get_params_from_function)  # type: ignore[attr-defined]

SERVED = ("live_engine", "offered_disciplines", "stock_server", "vllm_model")
ROBOTS = ("ros drivers", "ros")
TOGETHER = {
    "tests/ros/robots": "ros drivers",
    "tests/ros": "ros",
    **{f"tests/engines/vllm/test_{name}.py": "served engine" for name in SERVED},
    "tests/cli/test_terminal.py": "served engine",
    "tests/engines/vllm": "engine",
    "tests/bench/test_plain.py": "engine",
    "tests/bench/gpu/test_gpu_bench.py": "engine",
    "tests/planner": "planner",
    "tests/bench/capacity/test_forced_tokens_file.py": "planner",
    "tests/disciplines/predictors/test_text_classifier.py": "planner",
}
"""Paths that one worker runs with all below them.

They hold robots in real time, or tests that share an engine and its memory, or the import of vLLM or of torch and
transformers: 16 and 10 seconds of processor time.

The robots leave a processor free most of the time. So their two scopes come first, beside the engine that runs in the
worker itself and the engines with processes of their own: four workers for two processors. Locks of the machine give
each worker its own ROS domains and its own addresses of emulated robots.
"""

FIRST = (
    *ROBOTS,
    "engine",
    "served engine",
    "planner",
    "tests/bench/live/test_live_comparison.py",
    "tests/server/test_live_page.py",
    "tests/house/test_docs.py",
)
"""The longest scopes, in the order of their start. The others take seconds, so no worker idles at the end."""


def scope_of(nodeid: str) -> str:
    """What one worker runs together: such a path, or else a file."""
    return scope_of_file(nodeid.partition("::")[0])


@cache
def scope_of_file(file: str) -> str:
    path = PurePosixPath(file)
    places = (place.as_posix() for place in (path, *path.parents))
    return next((TOGETHER[place] for place in places if place in TOGETHER), path.as_posix())


class ByPath(LoadScopeScheduling):
    """A worker gets whole scopes."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """The scheduler forgets tests that have run.

        xdist would count all that the worker had after each test. When a worker dies it would hand out scopes
        that are done, and wait for ever.
        """
        nodeid, scopes = self.registered_collections[node][item_index], self.assigned_work[node]
        scope = self._split_scope(nodeid)
        del scopes[scope][nodeid]
        if not scopes[scope]:
            del scopes[scope]
        self._reschedule(node)


@cache
def deselects(expression: str, marks: frozenset[str]) -> bool:
    """Whether ``-m expression`` leaves out all tests that carry these marks, whatever others they carry."""
    compiled = Expression.compile(expression)
    names: list[str] = sorted({*re.findall(r"\w+", expression)} - {"and", "or", "not"})
    choices: list[tuple[bool, ...]] = [(True,) if name in marks else (False, True) for name in names]

    def selects(case: tuple[bool, ...]) -> bool:
        def is_marked(name: str, /, **_: object) -> bool:
            return dict(zip(names, case, strict=True))[name]

        return compiled.evaluate(is_marked)

    return not any(map(selects, itertools.product(*choices)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--robots",
        type=Path,
        metavar="FILE",
        help="run the driver conformance suite over the robots of this YAML file, too; see docs/robots.md",
    )


def pytest_collection() -> None:
    """What is made while tests are collected lives to the end: the garbage collector need not look at it."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(200_000)  # with Python's 700 a tenth of the tests' time is garbage collection
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that its own marks deselect is not imported: vLLM alone takes ten seconds, in every worker."""
    expression = config.getoption("markexpr")
    if not expression or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    marks = re.findall(r"mark\.(\w+)", "".join(re.findall(r"^pytestmark = .*", text, re.MULTILINE)))
    return deselects(expression, frozenset(marks)) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest scopes begin first, and the others fill the rest of the run."""
    place = {scope: number for number, scope in enumerate(FIRST)}
    items.sort(key=lambda item: place.get(scope_of(item.nodeid), len(place)))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For ``pytest -n auto``: three workers for two processors, since tests wait for a quarter of their time.

    xdist would count the processors of the machine instead of those of this process.
    """
    processors = len(os.sched_getaffinity(0))
    return processors + processors // 2


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPath | None:
    """For ``--dist loadscope``."""
    return ByPath(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_configure_node(node: Any) -> None:
    """A worker says all of a test in one message; xdist's six cost 0.6 ms of processor time a test."""
    receive = node.process_from_remote

    def receive_together(message: Any) -> None:
        for event in marshal.loads(message) if isinstance(message, bytes) else [message]:
            receive(event)

    node.process_from_remote = receive_together


def pytest_sessionstart(session: pytest.Session) -> None:
    for plugin in session.config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            _send_together(plugin)


def _send_together(worker: Any) -> None:
    """The sending side of :func:`pytest_configure_node`."""
    events: list[tuple[str, dict[str, Any]]] = []
    one_sender = threading.Lock()

    def send(name: str, **content: Any) -> None:
        with one_sender:
            events.append((name, content))
            if name in ("logstart", "testreport", "logfinish"):
                return  # the event of a test's end follows them
            batch = tuple(events)
            events.clear()  # also where one of them cannot be sent
            worker.channel.send(marshal.dumps(batch))

    worker.sendevent = send


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Workers that run no robots leave the processors to those that do."""
    if "PYTEST_XDIST_WORKER" in os.environ and scope_of(item.nodeid) not in ROBOTS and os.nice(0) == 0:
        os.nice(5)


@pytest.fixture
def caplog(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.LogCaptureFixture]:
    """pytest's own, whatever libraries that earlier tests loaded have done to our loggers."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] in ("timely", "lrtrace") and isinstance(logger, logging.Logger):
            for attribute, value in (("disabled", False), ("propagate", True), ("level", logging.NOTSET)):
                monkeypatch.setattr(logger, attribute, value)
            logger.manager._clear_cache()  # type: ignore[attr-defined]
    with caplog.at_level(logging.INFO):
        yield caplog
