"""The real engine in this process, in float32, shared by the tests of this folder.

Its model is a tiny one with made-up weights. A step of the packaged model takes ten times as long and shows no more of
the scheduler. The tests of the served engine run the packaged one.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest import mock

import pytest
from tiny_models import write_tiny_model

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


LIMIT_S = 300.0
"""Longest run of an engine; a healthy one needs seconds."""

SCHEDULER = "timely.engines.vllm.scheduler.TimelyScheduler"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "engines/vllm" in str(item.path):
            # vLLM and torch warn about themselves; our own warnings stay errors.
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.filterwarnings("error:::timely"))


@dataclass
class LocalEngine:
    """vLLM's own offline front-end with our scheduler inside, stepped by the test."""

    llm: Any

    @property
    def scheduler(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core.scheduler

    @property
    def core(self) -> Any:
        return self.llm.llm_engine.engine_core.engine_core

    def add(
        self, request_id: str, prompt: Any, max_tokens: int, timely: dict[str, Any] | None = None, **more: Any
    ) -> None:
        """Queue one request; greedy unless it has a temperature, runs to ``max_tokens``."""
        from vllm import SamplingParams

        priority, lora_request = more.pop("priority", 0), more.pop("lora_request", None)
        parameters = SamplingParams(
            temperature=more.pop("temperature", 0.0),
            max_tokens=max_tokens,
            ignore_eos=True,
            extra_args={"timely": timely} if timely is not None else None,
            **more,
        )
        self.llm.llm_engine.add_request(
            request_id, prompt, parameters, lora_request=lora_request, priority=priority
        )

    def run(self, until: Callable[[], bool] | None = None) -> dict[str, Any]:
        """Step until all is done (or ``until``); the finished outputs by request id."""
        done: dict[str, Any] = {}
        engine = self.llm.llm_engine
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            if not engine.has_unfinished_requests() or (until is not None and until()):
                return done
            for output in engine.step():
                if output.finished:
                    done[output.request_id] = output
        # The engine is shared: what one test leaves behind is not the next one's to finish.
        engine.abort_request(list(engine.output_processor.request_states))
        raise AssertionError("the engine did not finish in time")

    @contextmanager
    def step_tokens(self) -> Iterator[list[int]]:
        """Tokens that each step of this context computes."""
        tokens: list[int] = []
        schedule = self.scheduler.schedule

        def counting(*args: Any) -> Any:
            output = schedule(*args)
            tokens.append(output.total_num_scheduled_tokens)
            return output

        self.scheduler.schedule = counting
        try:
            yield tokens
        finally:
            del self.scheduler.schedule

    def texts(
        self, count: int, max_tokens: int, timely: Callable[[int], dict[str, Any] | None]
    ) -> dict[str, Any]:
        """Run ``count`` different prompts together."""
        for number in range(count):
            self.add(
                f"r{number}",
                f"Tell me a story about number {number} and a robot.",
                max_tokens,
                timely(number),
            )
        return self.run()


def _shares() -> dict[str, Any]:
    """On a GPU several engines of the session live beside each other; by itself each would take nearly all of it."""
    import torch

    return {"gpu_memory_utilization": 0.15} if torch.cuda.is_available() else {}


def no_collection() -> AbstractContextManager[object]:
    """vLLM collects garbage often at start and end: a second each time in a process of so many tests."""
    return mock.patch.object(gc, "collect")


def _begin_groups() -> None:
    """The next engine makes process groups of its own, and no engine ends those of others.

    vLLM ends all groups of a process with each engine. A mixture of experts misses some in those of other engines.
    """
    from vllm.distributed import parallel_state

    for name in ("destroy_model_parallel", "destroy_distributed_environment"):
        setattr(parallel_state, name, lambda: None)
    for name, value in list(vars(parallel_state).items()):
        if isinstance(value, parallel_state.GroupCoordinator) and name != "_WORLD":
            setattr(parallel_state, name, None)


@contextmanager
def without_groups() -> Iterator[None]:
    """Processes that are forked in the block make groups of their own. Those of this process go on behind it."""
    from torch.distributed import distributed_c10d
    from vllm.distributed import parallel_state

    with (
        mock.patch.object(distributed_c10d, "_world", distributed_c10d._World()),
        mock.patch.object(parallel_state, "_WORLD", None),
    ):
        yield


@cache
def _replace_kernels(platform: Any) -> Callable[[], None]:
    """Once a process: vLLM looks through all modules for its kernels, and fails where n-gram drafts were loaded."""
    return cache(platform.register_triton_kernel_overrides)


def make_engine(*, model: str, asynchronous: bool = False, **options: Any) -> LocalEngine:
    """An engine in this process, with the model of a folder.

    The CPU platform turns asynchronous scheduling off; the test turns it on again.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.check_and_update_config.__func__

    def check(cls: Any, config: Any) -> None:
        original(cls, config)
        config.scheduler_config.async_scheduling = asynchronous

    standard = {
        "max_num_seqs": 16, "max_model_len": 256, "seed": 0, "block_size": 32, "dtype": "float32",
        "enforce_eager": True, "scheduler_cls": SCHEDULER,
    }  # fmt: skip
    options = {**standard, **_shares(), **options}
    _begin_groups()
    CpuPlatform.check_and_update_config = classmethod(check)
    try:
        kernels = staticmethod(_replace_kernels(CpuPlatform))
        with (
            no_collection(),
            mock.patch.object(CpuPlatform, "register_triton_kernel_overrides", kernels),
        ):
            llm = LLM(model, **options, async_scheduling=asynchronous)
    finally:
        CpuPlatform.check_and_update_config = classmethod(original)
        del os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"]
    assert llm.llm_engine.vllm_config.scheduler_config.async_scheduling is asynchronous
    return LocalEngine(llm)


def shut_down(engine: LocalEngine) -> None:
    with no_collection():
        engine.core.shutdown()
        del engine.llm  # which shuts it down once more


def _engine(**options: Any) -> Iterator[LocalEngine]:
    engine = make_engine(**{"num_gpu_blocks_override": 1024, **options})
    yield engine
    shut_down(engine)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a Llama whose tokens are bytes."""
    return str(write_tiny_model(tmp_path_factory.mktemp("tiny") / "llama", "llama"))


@pytest.fixture(scope="session")
def sync_engine(tiny_model: str) -> Iterator[LocalEngine]:
    """Synchronous scheduling, ample KV cache."""
    yield from _engine(model=tiny_model)


@pytest.fixture(scope="session")
def async_engine(tiny_model: str) -> Iterator[LocalEngine]:
    """Asynchronous scheduling, ample KV cache."""
    yield from _engine(asynchronous=True, model=tiny_model)


@pytest.fixture(scope="session")
def tight_engine(tiny_model: str) -> Iterator[LocalEngine]:
    """Asynchronous scheduling and room for about four of eight requests."""
    yield from _engine(asynchronous=True, model=tiny_model, num_gpu_blocks_override=16)


@pytest.fixture
def new_engine() -> Iterator[Callable[..., LocalEngine]]:
    """Makes engines with options of the test's own; each is shut down when the next is made or the test ends."""
    made: list[LocalEngine] = []

    def close() -> None:
        for engine in made:
            shut_down(engine)
            gc.collect()
        made.clear()

    def make(**options: Any) -> LocalEngine:
        close()
        engine = make_engine(**options)
        made.append(engine)
        return engine

    yield make
    close()
