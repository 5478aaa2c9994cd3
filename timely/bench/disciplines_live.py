"""Every discipline on the real engine under mixed load: do the steps follow its decisions, and is nothing lost?

One engine serves all disciplines and is switched between them.
Disciplines that use the acceptance of drafts get an engine that speculates (n-grams).
Each run is kept in the checkpoints, so a long comparison may stop and go on.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timely.bench.checkpoints import BenchCheckpoints
from timely.bench.journal_audit import (
    RULES,
    EventLogAudit,
    audit_benchmark_event_log,
    audit_benchmark_journal,
)
from timely.bench.mixed_load import MixedLoadCounts, run_mixed_benchmark_load
from timely.core.progress import Say
from timely.disciplines import registry
from timely.disciplines.predictors.request_annotator import PredictorFiles
from timely.disciplines.requirements import SPECULATION, discipline_lacks
from timely.engines.step_time.journal import read_step_journal

SPECULATIVE = (
    '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'
)

ARGUMENTS = ("--max-model-len", "2048")
MAX_BATCH = 4
"""Sequences in a step: so few that requests wait, which shows their order."""

START_S = 180.0
LOG_S = 5.0
"""Longest delay of the event log, seconds."""


class LiveBenchServer:
    """A server on the real engine.

    Args:
        speculative: use draft tokens.
        folder: of the journal and the event log.
    """

    def __init__(self, speculative: bool, folder: Path) -> None:
        name = "speculative" if speculative else "plain"
        self._speculative = speculative
        self._journal = folder / f"{name}.journal.jsonl"
        self._events = folder / f"{name}.events.jsonl"
        self._server = self._start()

    def run(self, disciplines: Sequence[str], seconds: float, seed: int) -> dict[str, Any]:
        """Serve the load under a discipline, or under several in turn.

        Returns: the clients' measurements, and the audits of the scheduler's journal and the server's event log.
        """
        journal_from, events_from = _live_bench_log_size(self._journal), _live_bench_log_size(self._events)
        load = asyncio.run(self._serve(disciplines, seconds, seed))
        verdict = audit_benchmark_journal(
            read_step_journal(self._journal, journal_from),
            RULES.get(disciplines[0]) if len(disciplines) == 1 else None,
        )
        log_audit = self._audit_events(events_from)
        is_answered = load.plans == load.plans_answered and load.requests == load.requests_answered
        return {
            "good": verdict.good and log_audit.good and is_answered and not load.failures,
            "drafts": self._speculative,
            "verdict": asdict(verdict),
            "event_log": asdict(log_audit),
            "plans": load.plans,
            "segments": load.segments,
            "requests": load.requests,
            "unanswered": load.plans - load.plans_answered + load.requests - load.requests_answered,
            "tokens": load.tokens,
            "response_p50_s": _live_bench_median(load.response_s),
            "latency_p50_s": _live_bench_median(load.latency_s),
            "failures": load.failures[:10],
        }

    def _audit_events(self, offset: int) -> EventLogAudit:
        """Audit the event log once it is complete; a thread of the server writes it with a delay."""
        end_s = time.monotonic() + LOG_S
        while True:
            audit = audit_benchmark_event_log(read_step_journal(self._events, offset))
            if audit.good or time.monotonic() > end_s:
                return audit
            time.sleep(0.05)

    async def _serve(self, disciplines: Sequence[str], seconds: float, seed: int) -> MixedLoadCounts:
        from timely.client import AsyncTimelyClient

        async with AsyncTimelyClient(self._server.url) as client:
            await client.set_discipline(disciplines[0])
            load = asyncio.create_task(run_mixed_benchmark_load(self._server.url, seconds, seed=seed))
            for name in disciplines[1:]:
                await asyncio.sleep(seconds / len(disciplines))
                await client.set_discipline(name)
            return await load

    def _start(self) -> Any:
        from timely.engines.vllm.arguments import VllmOptions
        from timely.engines.vllm.engine import VllmEngine
        from timely.server.app import create_app
        from timely.server.server_thread import ServerThread
        from timely.server.settings import ServerSettings

        arguments = (*ARGUMENTS, *(("--speculative-config", SPECULATIVE) if self._speculative else ()))
        engine = VllmEngine(
            VllmOptions(
                discipline="fcfs",
                max_batch=MAX_BATCH,
                journal=str(self._journal),
                arguments=arguments,
                warm_up=("drone", "arm"),
            )
        )
        app = create_app(engine, ServerSettings(event_log=self._events), predictors=PredictorFiles.read(()))
        return ServerThread(app, start_timeout_s=START_S).__enter__()

    def stop(self) -> None:
        self._server.stop()


@contextmanager
def _live_bench_servers(folder: Path | None) -> Iterator[Callable[[str, float, int], dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as running:
        servers: dict[bool, LiveBenchServer] = {}

        def run(names: str, seconds: float, seed: int) -> dict[str, Any]:
            speculative = _do_live_bench_disciplines_speculate(names)
            if speculative not in servers:
                running.close()  # Two engines at once would slow each other down.
                servers.clear()
                servers[speculative] = LiveBenchServer(speculative, folder or Path(scratch))
                running.callback(servers[speculative].stop)
            return servers[speculative].run(names.split("+"), seconds, seed)

        yield run


def benchmark_disciplines_live(
    disciplines: Sequence[str],
    seconds: float,
    seed: int,
    checkpoints: BenchCheckpoints,
    folder: Path | None,
    say: Say,
) -> dict[str, dict[str, Any]]:
    """Serve the load under each discipline, one after the other.

    Args:
        disciplines: names; ``a+b+c`` is one run that switches between them.
        folder: for journals and event logs; None deletes them.

    Raises:
        BenchOutOfTime: the budget of ``checkpoints`` is used up.
        EngineFailed: the engine does not start.
    """
    results = {}
    # Disciplines that need another engine come last, so that it starts once.
    runs = sorted(disciplines, key=lambda names: (_do_live_bench_disciplines_speculate(names), names))
    with _live_bench_servers(folder) as run:
        for name in runs:
            (results[name],) = checkpoints.map("live", run, [(name, seconds, seed)])
            row = results[name]
            say(f"{name}: {'good' if row['good'] else 'NOT GOOD'}, {row['verdict']['steps']} steps")
    return results


def _do_live_bench_disciplines_speculate(names: str) -> bool:
    return any(
        SPECULATION in discipline_lacks(registry.load_discipline(name).info, ()) for name in names.split("+")
    )


def _live_bench_log_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _live_bench_median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 4) if values else None
