"""The end of an engine: its reader ends before its process, and live generations get an error."""

from __future__ import annotations

import asyncio

import pytest

from timely.engines.vllm.engine import VllmEngine

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
        self.events.append(type(error).__name__)

    def shutdown(self, timeout_s: float) -> None:
        self.events.append("process ended")


async def test_the_reader_of_outputs_ends_before_the_engine() -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    engine = VllmEngine()
    client = engine._llm = FakeClient()
    await asyncio.sleep(0)
    await engine.stop()
    await engine.stop()
    assert client.events == ["reader ended", "EngineDeadError", "process ended"]
