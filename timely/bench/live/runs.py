"""The folder of a live comparison: runs still to measure, measured runs, journals of their steps."""

import asyncio
import itertools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timely.bench.live.engine import JOURNAL_FILE, SIZES_FILE, LiveBenchEngine
from timely.bench.live.settings import LiveBenchSettings
from timely.core.checkpoint import check_settings_file
from timely.core.errors import EngineFailed, InvalidInput
from timely.core.files import core_read_json, core_write_file
from timely.core.progress import Say
from timely.engines.step_time.journal import read_step_journal
from timely.replay import results
from timely.replay.result_file import read_replay_result, replay_result_text

SETTINGS_FILE = "settings.json"

Run = tuple[str, str, int]
"""(workload, system, repetition)."""


class LiveBenchRuns:
    """The runs in a folder.

    Raises:
        InvalidInput: the folder holds runs of other settings, or a broken file.
    """

    def __init__(self, folder: Path, settings: LiveBenchSettings) -> None:
        self.folder = folder
        self.settings = settings
        self._journals: dict[Path, tuple[int, list[dict[str, Any]]]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        check_settings_file(folder / SETTINGS_FILE, asdict(settings))

    def path(self, run: Run) -> Path:
        workload, system, repetition = run
        return self.folder / f"{workload}-{system}-{repetition + 1}.json"

    def pending(self, repetitions: int) -> Iterator[Run]:
        """Runs to do, systems in turn; each repetition begins with another system."""
        systems = list(self.settings.systems)
        for repetition in range(repetitions):
            first = repetition % len(systems)
            turn = systems[first:] + systems[:first]
            for workload, system in itertools.product(self.settings.workloads, turn):
                run = (workload, system, repetition)
                if not self.path(run).exists():
                    yield run

    async def measure(
        self, engine: LiveBenchEngine, repetitions: int, *, budget_s: float = float("inf"), say: Say
    ) -> int:
        """Do the pending runs; none begins after ``budget_s`` seconds. Returns how many are left.

        Raises:
            EngineFailed: the engine died, or a task of a run did not complete.
        """
        begin_s = time.monotonic()
        todo = list(self.pending(repetitions))
        try:
            for number, run in enumerate(todo):
                if time.monotonic() - begin_s > budget_s:
                    return len(todo) - number
                workload, system, repetition = run
                say(f"{number + 1} of {len(todo)}: {workload}, {system}, repetition {repetition + 1}")
                await self._measure(engine, run)
        finally:
            await engine.close()
        return 0

    async def _measure(self, engine: LiveBenchEngine, run: Run) -> None:
        workload, system, repetition = run
        options = self.settings.options(system)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        begin_s = time.monotonic()
        outcome = await engine.run(self.settings.tasks(workload, repetition), options)
        if outcome.partial:
            raise asyncio.CancelledError
        unfinished_records = [record for record in outcome.records if record.outcome != "complete"]
        if unfinished_records:
            raise EngineFailed(
                f"{len(unfinished_records)} of {len(outcome.records)} tasks did not end: {unfinished_records[0].note}",
                where=system,
            )
        wall_s = time.monotonic() - begin_s
        result = results.build_replay_result(outcome, options, engine="vllm", trace=workload, wall_s=wall_s)
        result["load_before"] = round(load, 2)
        # The scheduler's clock is the machine's monotonic one.
        latest = max(self.journal_files(), key=lambda file: file.stat().st_mtime, default=None)
        result["steps"] = latest and {"file": latest.name, "since_s": begin_s, "until_s": time.monotonic()}
        core_write_file(self.path(run), replay_result_text(result))

    def comparable(self, workload: str) -> dict[str, dict[int, dict[str, Any]]]:
        """Results by system and repetition, for systems that have any.

        Only repetitions that all of them have are returned, because their tasks are the same.
        Without a common repetition, each system has all of its own.
        """
        files = {
            system: {
                int(file.stem.rsplit("-", 1)[1]) - 1: file
                for file in self.folder.glob(f"{workload}-{system}-[0-9]*.json")
            }
            for system in self.settings.systems
        }
        files = {system: by_repetition for system, by_repetition in files.items() if by_repetition}
        shared_numbers = set.intersection(*map(set, files.values())) if files else set()
        return {
            system: {
                number: read_replay_result(by_repetition[number])
                for number in sorted(shared_numbers or by_repetition)
            }
            for system, by_repetition in files.items()
        }

    def sizes(self) -> dict[str, Any]:
        """KV blocks, batch and token budget of the engine that ran, by the names of ``EngineSizes``.

        Raises:
            InvalidInput: they were not kept.
        """
        file = self.folder / SIZES_FILE
        if not file.exists():
            raise InvalidInput("no steps of its runs were kept", where=str(self.folder))
        return core_read_json(file)

    def journal_files(self) -> list[Path]:
        """The schedulers' journals, one for each engine process."""
        return sorted(self.folder.glob(JOURNAL_FILE.replace("{pid}", "*")))

    def journals(self) -> list[list[dict[str, Any]]]:
        return [self._events(file) for file in self.journal_files()]

    def events_of(self, result: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The events of the journal that a run's steps are in; none if they were not kept."""
        steps = result.get("steps")
        return self._events(self.folder / steps["file"]) if steps else []

    def _events(self, file: Path) -> list[dict[str, Any]]:
        """A journal is read again only when it has grown."""
        size = file.stat().st_size if file.exists() else -1
        if file not in self._journals or self._journals[file][0] != size:
            self._journals[file] = (size, read_step_journal(file))
        return self._journals[file][1]
