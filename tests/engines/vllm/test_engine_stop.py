"""The end of an engine: its reader ends before its process, and live generations get an error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import multiprocessing.process
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field, model_validator

from timely.core.errors import EngineFailed, InvalidInput
from timely.engines.vllm import engine as engine_module
from timely.engines.vllm.arguments import SOCKETS_VARIABLE, VllmOptions
from timely.engines.vllm.engine import VllmEngine
from timely.engines.vllm.engine_process import ctrl_c_ends_vllm_start, launch_vllm
from timely.engines.vllm.openai import build_vllm_openai_app
from timely.engines.vllm.parent_watch import end_vllm_with_parent

pytestmark = pytest.mark.engine


class FakeClient:
    """vLLM's client as far as ``stop`` uses it: a task that reads outputs, and the states of live requests."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.output_handler = asyncio.create_task(self._read())
        self.output_processor = self

    async def _read(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append("reader ended")

    def propagate_error(self, error: Exception) -> None:
        from vllm.exceptions import GenerationError
        from vllm.v1.engine.exceptions import EngineDeadError

        assert isinstance(error, GenerationError), "vLLM logs a traceback of any other for each stream"
        assert isinstance(error, EngineDeadError), "vLLM aborts the requests of any other"
        self.events.append(str(error))

    def shutdown(self, timeout_s: float) -> None:
        self.events.append("process ended")


def test_ctrl_c_that_an_import_catches_ends_the_start() -> None:
    """Before Python 3.12 it may also come as the cause of a ``RuntimeError``, which more imports catch."""
    for caught in (BaseException, ValueError):
        with pytest.raises(KeyboardInterrupt), ctrl_c_ends_vllm_start():  # noqa: PT012
            with contextlib.suppress(caught):
                signal.raise_signal(signal.SIGINT)
            assert caught is BaseException
    with ctrl_c_ends_vllm_start():
        pass


async def test_the_reader_of_outputs_ends_before_the_engine() -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    engine = VllmEngine()
    client = engine._llm = FakeClient()
    await asyncio.sleep(0)
    await engine.stop()
    await engine.stop()
    assert client.events == ["reader ended", "the engine is shutting down", "process ended"]


async def test_the_sockets_of_an_engine_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM leaves three in the folder for temporary files at each start, and removes none."""
    pytest.importorskip("vllm", reason="needs vLLM")
    monkeypatch.delenv(SOCKETS_VARIABLE, raising=False)
    folders: list[Path] = []

    class Client(FakeClient):
        engine_core = SimpleNamespace(core_engines=[0])

        def get_tokenizer(self) -> None:
            pass

    async def launch(*_: Any) -> Client:
        folders.append(Path(os.environ[SOCKETS_VARIABLE]))
        (folders[-1] / "socket").touch()
        if len(folders) == 2:
            raise EngineFailed("it does not start")
        return Client()

    async def nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(engine_module, "launch_vllm", launch)
    monkeypatch.setattr("timely.engines.vllm.openai.build_vllm_openai_app", nothing)
    monkeypatch.setattr(VllmEngine, "_warm_up", nothing)
    engine = VllmEngine()
    await engine.start()
    assert folders[0].is_dir()
    assert SOCKETS_VARIABLE not in os.environ
    await engine.stop()
    with pytest.raises(EngineFailed):
        await engine.start()
    assert not any(folder.exists() for folder in folders)


async def test_vllms_app_hides_no_warning_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library of its routes sets the root logger and its handlers to errors, so the log had no warning any more."""
    pytest.importorskip("vllm", reason="needs vLLM")

    def build_app(*_: Any) -> Any:
        root.setLevel(logging.ERROR)
        handler.setLevel(logging.ERROR)
        return SimpleNamespace(router=SimpleNamespace(routes=[]), state=SimpleNamespace())

    async def supported_tasks() -> list[str]:
        return ["generate"]

    async def init_app_state(*_: Any) -> None:
        pass

    monkeypatch.setattr("vllm.entrypoints.launchers.app.build_app", build_app)
    monkeypatch.setattr("vllm.entrypoints.launchers.api_server.app_state.init_app_state", init_app_state)
    root, handler = logging.getLogger(), logging.NullHandler()
    level = root.level
    root.addHandler(handler)
    try:
        llm = SimpleNamespace(get_supported_tasks=supported_tasks, model_config=None)
        await build_vllm_openai_app(llm, None)
        assert (root.level, handler.level) == (level, logging.NOTSET)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


async def test_a_terminal_ends_no_process_of_an_engine() -> None:
    """Else an engine would die before the last plans, while the server waits for them."""
    print_blocked = "import signal; print(*sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"

    class Engine:
        @staticmethod
        def from_vllm_config(**_: Any) -> str:
            return subprocess.run(
                [sys.executable, "-c", print_blocked], capture_output=True, check=True, text=True
            ).stdout

    contexts: list[str] = []

    def arguments() -> Any:
        return SimpleNamespace(
            create_engine_config=lambda context: contexts.append(context.name),
            enable_log_requests=False,
            disable_log_stats=True,
        )

    blocked = await launch_vllm(Engine, arguments, "a model")
    assert contexts == ["OPENAI_API_SERVER"], "steps as large as those of vLLM's own server"
    assert blocked.split() == [str(int(number)) for number in (signal.SIGHUP, signal.SIGINT)]


async def test_a_start_that_is_cancelled_ends_a_process_that_begins_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when Ctrl-C comes while vLLM still reads the configuration: the process must not load the model first."""
    async_llm = pytest.importorskip("vllm.v1.engine.async_llm", reason="needs vLLM")
    entered, cancelled = threading.Event(), threading.Event()
    processes: list[multiprocessing.process.BaseProcess] = []

    def launch(**_: Any) -> None:
        entered.set()
        assert cancelled.wait(60)
        process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,), daemon=True)
        process.start()
        processes.append(process)
        process.join(60)
        raise RuntimeError("engine core initialization failed")

    monkeypatch.setattr(async_llm.AsyncLLM, "from_vllm_config", launch)
    engine = VllmEngine(VllmOptions())
    start = asyncio.create_task(engine.start())
    assert await asyncio.to_thread(entered.wait, 60)
    start.cancel()
    await asyncio.sleep(0)
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(start, 30)
    assert processes[0].exitcode == -signal.SIGTERM


class FakeCore:
    """Answers a control event when the test says so."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[list[dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self.engine_core = self
        self.errored = False

    async def call_utility_all_async(self, method: str, event: dict[str, Any]) -> list[dict[str, Any]]:
        return await self.answer


@pytest.mark.parametrize("turns", range(4))
async def test_a_cancellation_that_comes_with_an_answer_is_not_lost(turns: int) -> None:
    """A replay cancels its sampler at its end, and waited for ever when statistics came at that moment.

    Args:
        turns: of the event loop between the answer and the cancellation.
    """
    engine = VllmEngine()
    core = engine._llm = FakeCore()

    async def sample() -> None:
        while True:
            await engine.cancel("a task")
            core.answer = asyncio.get_running_loop().create_future()

    sampling = asyncio.create_task(sample())
    await asyncio.sleep(0)
    core.answer.set_result([{"known": True}])
    for _ in range(turns):
        await asyncio.sleep(0)
    sampling.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    ended = sampling.done()
    sampling.cancel()
    await asyncio.gather(sampling, return_exceptions=True)
    assert ended


async def test_a_model_that_is_not_there_is_an_error_of_one_line() -> None:
    def look_for_the_model() -> Any:
        raise FileNotFoundError("no snapshot of it\non this disk")

    with pytest.raises(EngineFailed) as raised:
        await launch_vllm(None, look_for_the_model, "nobody/nothing")
    assert raised.value.message == "vLLM did not start with the model nobody/nothing: no snapshot of it"


@pytest.mark.parametrize(
    ("value", "where", "message"),
    [
        (7.0, "--gpu-memory-utilization", "Input should be less than or equal to 1"),
        (0.5, "vllm arguments", "there are 4096 positions"),
    ],
)
async def test_a_value_that_vllms_configuration_refuses_is_bad_input(
    value: float, where: str, message: str
) -> None:
    """The line said "1 validation error for CacheConfig", and that the engine had failed."""

    class CacheConfig(BaseModel):
        gpu_memory_utilization: float = Field(le=1)

        @model_validator(mode="after")
        def refuse(self) -> CacheConfig:
            raise ValueError("there are 4096 positions\nin all")

    with pytest.raises(InvalidInput) as raised:
        await launch_vllm(None, lambda: CacheConfig(gpu_memory_utilization=value), "a model")
    assert (raised.value.where, raised.value.message) == (where, message)


LEFT_ALONE = """
import multiprocessing, os, signal, sys, time
from timely.engines.vllm.openai import build_vllm_openai_app
from timely.engines.vllm.parent_watch import end_vllm_with_parent

def run(deaf):
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_vllm_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(600)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=run, args=(sys.argv[1] == "deaf",), name=sys.argv[2])
    process.start()
    process.join()
"""


@pytest.mark.parametrize("kind", ["healthy", "deaf"])
@pytest.mark.parametrize("name", ["EngineCore", "EngineCore_DP1"])
def test_a_killed_server_leaves_no_engine(kind: str, name: str, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(LEFT_ALONE)
    with subprocess.Popen([sys.executable, script, kind, name], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        engine = os.pidfd_open(int(server.stdout.readline()))
        try:
            assert not select.select([engine], [], [], 0.0)[0]
            server.kill()
            assert select.select([engine], [], [], 60.0)[0]
        finally:
            os.close(engine)


def test_a_process_that_is_no_engine_does_not_end_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine within the process of its user ends as that wishes."""
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("watched"))
    monkeypatch.setattr(multiprocessing, "parent_process", multiprocessing.current_process)
    end_vllm_with_parent()
