"""Every discipline on the real engine under mixed load: is what it decided what happened, and does nothing get lost?

One engine serves all, switched between them while it runs; those that go by draft acceptance get one that speculates
(n-grams). Each run is a piece that is kept, so a long comparison may stop and go on.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timely.bench.checkpoints import Checkpoints
from timely.bench.journal_audit import RULES, account, judge, read
from timely.bench.journal_audit import Account as Logged
from timely.bench.mixed_load import Account, serve
from timely.disciplines import registry
from timely.disciplines.predictors.request_annotator import Predictors
from timely.disciplines.requirements import SPECULATION, lacks

SPECULATIVE = (
    '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'
)

ARGUMENTS = ("--max-model-len", "2048")
MAX_BATCH = 4
"""So few sequences in a step that requests have to wait, and an order is seen."""

START_S = 180.0
LOG_S = 5.0
"""Longest that the event log lags behind, seconds."""


class Bench:
    """A server on the real engine, started when it is first needed.

    Args:
        speculative: with draft tokens.
        folder: for its journal and event log.
    """

    def __init__(self, speculative: bool, folder: Path) -> None:
        name = "speculative" if speculative else "plain"
        self._speculative = speculative
        self._journal = folder / f"{name}.journal.jsonl"
        self._events = folder / f"{name}.events.jsonl"
        self._server: Any = None

    def run(self, disciplines: Sequence[str], seconds: float, seed: int) -> dict[str, Any]:
        """Serve the load under a discipline, or under several in turn, switched while it goes on.

        Returns: what clients saw, and what the scheduler's journal and the server's event log say.
        """
        if self._server is None:
            self._start()
        journal_from, events_from = _size(self._journal), _size(self._events)
        seen = asyncio.run(self._serve(disciplines, seconds, seed))
        verdict = judge(
            read(self._journal, journal_from), RULES.get(disciplines[0]) if len(disciplines) == 1 else None
        )
        logged = self._logged(events_from)
        answered = seen.plans == seen.plans_answered and seen.requests == seen.requests_answered
        return {
            "good": verdict.good and logged.good and answered and not seen.failures,
            "drafts": self._speculative,
            "verdict": asdict(verdict),
            "event_log": asdict(logged),
            "plans": seen.plans,
            "segments": seen.segments,
            "requests": seen.requests,
            "unanswered": seen.plans - seen.plans_answered + seen.requests - seen.requests_answered,
            "tokens": seen.tokens,
            "response_p50_s": _median(seen.response_s),
            "latency_p50_s": _median(seen.latency_s),
            "failures": seen.failures[:10],
        }

    def _logged(self, offset: int) -> Logged:
        """What the event log says, once it says that all is over: the server's own thread writes it, a little later."""
        end_s = time.monotonic() + LOG_S
        while True:
            found = account(read(self._events, offset))
            if found.good or time.monotonic() > end_s:
                return found
            time.sleep(0.05)

    async def _serve(self, disciplines: Sequence[str], seconds: float, seed: int) -> Account:
        from timely.client import AsyncTimelyClient

        async with AsyncTimelyClient(self._server.url) as client:
            await client.set_discipline(disciplines[0])
            load = asyncio.create_task(serve(self._server.url, seconds, seed=seed))
            for name in disciplines[1:]:
                await asyncio.sleep(seconds / len(disciplines))
                await client.set_discipline(name)
            return await load

    def _start(self) -> None:
        from timely.engines.vllm.engine import VllmEngine, VllmOptions
        from timely.server import ServerSettings, ServerThread, create_app

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
        app = create_app(engine, ServerSettings(event_log=self._events), predictors=Predictors.read(()))
        server = ServerThread(app, start_timeout_s=START_S)
        server.__enter__()
        self._server = server

    def stop(self) -> None:
        """End the server, if it runs."""
        server, self._server = self._server, None
        if server is not None:
            server.__exit__(None, None, None)


@contextmanager
def _benches(folder: Path | None) -> Iterator[Callable[[str, float, int], dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as scratch:
        benches: dict[bool, Bench] = {}

        def run(names: str, seconds: float, seed: int) -> dict[str, Any]:
            speculative = _speculates(names)
            if speculative not in benches:
                # Two engines at once would halve each other.
                for other in benches.values():
                    other.stop()
                benches[speculative] = Bench(speculative, folder or Path(scratch))
            return benches[speculative].run(names.split("+"), seconds, seed)

        try:
            yield run
        finally:
            for bench in benches.values():
                bench.stop()


def compare(
    disciplines: Sequence[str],
    seconds: float,
    seed: int,
    checkpoints: Checkpoints,
    folder: Path | None,
    say: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Serve the load under each of them, one after the other.

    Args:
        disciplines: names; ``a+b+c`` is one run in which they follow each other while it is served.
        folder: keeps journals and event logs there; None throws them away.

    Raises:
        OutOfTime: the budget of ``checkpoints`` is used up.
        EngineFailed: the engine does not start.
    """
    found = {}
    # Those that need another engine last: it starts once.
    ordered = sorted(disciplines, key=lambda names: (_speculates(names), names))
    with _benches(folder) as run:
        for name in ordered:
            (found[name],) = checkpoints.map("live", run, [(name, seconds, seed)])
            row = found[name]
            say(f"{name}: {'good' if row['good'] else 'NOT GOOD'}, {row['verdict']['steps']} steps")
    return found


def _speculates(names: str) -> bool:
    return any(SPECULATION in lacks(registry.load(name).info, ()) for name in names.split("+"))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 4) if values else None
