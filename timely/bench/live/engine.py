"""The engine of a live comparison: one vLLM for all runs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from timely.bench.live.settings import LiveBenchSettings
from timely.core.files import core_write_file
from timely.engines.replay_types import BackendRun, PlannedTask, ReplayOptions

SIZES_FILE, JOURNAL_FILE = "sizes.json", "steps-{pid}.jsonl"


class LiveBenchEngine(Protocol):
    """Runs a system's tasks in real time."""

    async def run(self, tasks: Sequence[PlannedTask], options: ReplayOptions) -> BackendRun:
        """Replay the tasks; the first call starts the engine."""

    async def close(self) -> None: ...


class LiveBenchVllm:
    """Switches discipline and mode of one vLLM engine between runs.

    The scheduler's journals and the engine's sizes stay in ``folder``: a prediction uses the steps that were measured.
    """

    def __init__(self, folder: Path, settings: LiveBenchSettings) -> None:
        from timely.engines.vllm.replay import vllm_replay_options

        # Imports vLLM, so it comes before the event loop: in there Ctrl-C would wait for the import.
        vllm_replay_options(ReplayOptions())
        self._folder = folder
        self._settings = settings
        self._engine: Any = None

    async def run(self, tasks: Sequence[PlannedTask], options: ReplayOptions) -> BackendRun:
        from timely.engines.vllm.engine import VllmEngine
        from timely.engines.vllm.replay import VllmBackend, vllm_replay_options

        options = replace(options, profile=self._settings.model)
        if self._engine is None:
            vllm_options = vllm_replay_options(options, self._settings.arguments)
            journal = str(self._folder / JOURNAL_FILE)
            self._engine = VllmEngine(replace(vllm_options, journal=journal, journal_details=False))
            await self._engine.start()
            core_write_file(self._folder / SIZES_FILE, json.dumps(asdict(self._engine.sizes)) + "\n")
        await self._engine.set_mode(options.mode)
        await self._engine.set_discipline(options.discipline)
        return await VllmBackend(self._engine).run(list(tasks), options)

    async def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.stop()
