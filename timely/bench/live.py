"""The paper's comparison on the real engine, in real time, and what the simulator predicts for the same runs.

Every run is a file in a folder: a call that is interrupted, or that was given little time, goes on where the last one
stopped. Systems take turns, so that a machine that drifts hurts none alone, and share one warm engine.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import os
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from lrtrace.compose.workload import compose
from timely.core.errors import EngineFailed, InvalidInput
from timely.disciplines import registry
from timely.engines.base import Mode
from timely.engines.replay_types import BackendRun, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.fit import fit_steps, measured_profile
from timely.engines.step_time.journal import (
    from_events,
    in_order,
    launches,
    passages,
    prompts_follow,
    read_events,
)
from timely.engines.step_time.learned import LearnedSpeed, StepLearner
from timely.engines.step_time.profile import StepTimeProfile, load_profile
from timely.replay import results
from timely.replay.files import read_result, result_text, write_text
from timely.replay.trace import planned

SYSTEMS: dict[str, tuple[str, Mode]] = {
    "timely": ("timely", "segmented"),
    "pud": ("pud", "segmented"),
    "edf": ("edf", "segmented"),
    "fcfs": ("fcfs", "segmented"),
    "vllm-stream": ("fcfs", "stream"),
    "vllm": ("fcfs", "whole"),
}
"""System -> discipline and mode, as TimelyLLM section 7.1 has them."""

PARTS: dict[str, tuple[str, Mode]] = {name: (name, "segmented") for name in registry.parts()}
"""What ``timely`` is made of, for the ablation."""

WORKLOADS = {"wid1": 45.0, "wid2": 45.0, "wid3": 60.0}
"""Workload of Table 3 -> how much of it, seconds."""

CLOSE = 0.10
"""How near a prediction of response times should be."""

DIFFERENT = 0.05
"""Systems whose values differ by more than this should be predicted in the same order."""

MEASURES: dict[str, tuple[str, ...]] = {
    "utility, urgent": ("by_class", "urgent", "utility_mean"),
    "utility, normal": ("by_class", "normal", "utility_mean"),
    "response p50": ("response_s", "p50"),
    "response p90": ("response_s", "p90"),
    "response mean": ("response_s", "mean"),
    "waiting mean": ("waiting_s", "mean"),
}
RESPONSES = ("response p50", "response p90")
"""Those that are held against the prediction one by one."""
RANKED = (
    "response p50",
    "response p90",
    "response mean",
    "waiting mean",
    "utility, urgent",
    "utility, normal",
)
"""Those by which systems are compared; of utilities, which may be near zero, the difference counts as a share of the
maximum where that is more than the larger of the two."""

LEAST_BOUND = 10
"""Tokens of the longest segment, if none is longer (TimelyLLM section 7.1)."""

SETTINGS_FILE, SIZES_FILE, STEPS_FILE = "settings.json", "sizes.json", "steps-{pid}.jsonl"

OWN = "runs"
"""Instead of a profile's name: each run predicted with step times fitted to its own steps."""

LEAST_STEPS = 60
"""Steps of a run from which its own step times are told; with fewer, those of all runs together."""

SAMPLES = 11
"""Simulations of a prediction, each with step times that scatter as the profile's errors say. Which of two requests of
equal worth goes first can hang on a millisecond, and all that follows on that, on either side: so the prediction is
their mean, and their range says how much is chance."""

SIGMA_OF_MEDIAN = 1.4826
"""Standard deviation of a normal variable over the median of its absolute value."""

Say = Callable[[str], None]
Run = tuple[str, str, int]
"""(workload, system, repetition)."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured; all runs of a folder share it.

    Attributes:
        workloads: name -> seconds of it.
        seed: of the tasks of the first repetition; the next has the next seed. All systems get the same tasks.
        prompt_tokens, shared_prefix_tokens: of every task; the shared part is cached, as pre-stored prompts are.
        model: folder or name of the model; None: the packaged one.
        arguments: further ones for vLLM.
    """

    workloads: Mapping[str, float]
    systems: tuple[str, ...] = tuple(SYSTEMS)
    seed: int = 7
    prompt_tokens: int = 600
    shared_prefix_tokens: int = 480
    model: str | None = None
    arguments: tuple[str, ...] = ()


class LiveEngine(Protocol):
    """What runs a system's tasks in real time."""

    async def run(self, tasks: Sequence[PlannedTask], options: ReplayOptions) -> BackendRun:
        """Replay; started at the first call."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class VllmLive:
    """One vLLM engine for all runs; discipline and mode are switched between them.

    Its scheduler's journals and its sizes stay in ``folder``: the times of the very steps that were measured.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder = folder
        self._settings = settings
        self._engine: Any = None

    async def run(self, tasks: Sequence[PlannedTask], options: ReplayOptions) -> BackendRun:
        """See ``LiveEngine``."""
        from timely.engines.vllm.engine import VllmEngine
        from timely.engines.vllm.replay import VllmBackend, replay_options

        options = replace(options, profile=self._settings.model)
        if self._engine is None:
            chosen = replay_options(options, self._settings.arguments)
            self._engine = VllmEngine(replace(chosen, journal=str(self._folder / STEPS_FILE)))
            await self._engine.start()
            sizes = asdict(self._engine.sizes)
            write_text(self._folder / SIZES_FILE, json.dumps(sizes) + "\n")
        await self._engine.set_mode(options.mode)
        await self._engine.set_discipline(options.discipline)
        return await VllmBackend(self._engine).run(list(tasks), options)

    async def close(self) -> None:
        """See ``LiveEngine``."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.stop()


class LiveBench:
    """The runs of a folder: those there are, those missing, and what they say.

    Raises:
        InvalidInput: the folder holds runs of other settings, or a broken file.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self._read: dict[Path, tuple[int, list[dict[str, Any]]]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        known, told = folder / SETTINGS_FILE, asdict(settings)
        told = json.loads(json.dumps(told))
        if known.exists():
            if json.loads(known.read_text(encoding="utf-8")) != told:
                raise InvalidInput("holds runs of other settings; give another folder", where=str(folder))
        else:
            write_text(known, json.dumps(told, indent=2) + "\n")

    # ------------------------------------------------------------------ measuring

    def missing(self, repetitions: int) -> Iterator[Run]:
        """Runs to do, systems in turn; each repetition begins with another system."""
        systems = list(self.settings.systems)
        for repetition in range(repetitions):
            turn = systems[repetition % len(systems) :] + systems[: repetition % len(systems)]
            for workload, system in itertools.product(self.settings.workloads, turn):
                run = (workload, system, repetition)
                if not self.path(run).exists():
                    yield run

    async def measure(
        self, engine: LiveEngine, repetitions: int, *, budget_s: float = float("inf"), say: Say
    ) -> int:
        """Do what is missing; no run is begun after ``budget_s`` seconds. Returns how many are left.

        Raises:
            EngineFailed: the engine died, or a run was not served whole.
        """
        begun = time.monotonic()
        todo = list(self.missing(repetitions))
        try:
            for number, run in enumerate(todo):
                if time.monotonic() - begun > budget_s:
                    return len(todo) - number
                workload, system, repetition = run
                say(f"{number + 1} of {len(todo)}: {workload}, {system}, repetition {repetition + 1}")
                await self._measure(engine, run)
        finally:
            await engine.close()
        return 0

    async def _measure(self, engine: LiveEngine, run: Run) -> None:
        workload, system, repetition = run
        options = self.options(system)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        begun = time.monotonic()
        done = await engine.run(self.tasks(workload, repetition), options)
        if done.partial:
            raise asyncio.CancelledError
        unfinished = [record for record in done.records if record.outcome != "complete"]
        if unfinished:
            raise EngineFailed(
                f"{len(unfinished)} of {len(done.records)} tasks did not end: {unfinished[0].note}",
                where=system,
            )
        result = results.build(done, options, engine="vllm", trace=workload, wall_s=time.monotonic() - begun)
        result["load_before"] = round(load, 2)
        # The scheduler's clock is the machine's monotonic one.
        latest = max(self._journals(), key=lambda file: file.stat().st_mtime, default=None)
        result["steps"] = latest and {"file": latest.name, "since_s": begun, "until_s": time.monotonic()}
        write_text(self.path(run), result_text(result))

    def _journals(self) -> list[Path]:
        return sorted(self.folder.glob(STEPS_FILE.replace("{pid}", "*")))

    def path(self, run: Run) -> Path:
        """The file of a run."""
        workload, system, repetition = run
        return self.folder / f"{workload}-{system}-{repetition + 1}.json"

    def options(self, system: str) -> ReplayOptions:
        """How a system is replayed, on either engine."""
        discipline, mode = (SYSTEMS | PARTS)[system]
        registry.load(discipline)
        return ReplayOptions(
            discipline=discipline, mode=mode, seed=self.settings.seed, journal=False, warm_prefixes=True
        )

    def tasks(self, workload: str, repetition: int = 0) -> list[PlannedTask]:
        """The tasks of a workload in order of arrival, the longest segment of each skill set known beforehand.

        Each repetition has tasks of its own: where a schedule hangs on a millisecond, more runs of the same tasks would
        only tell that again.
        """
        settings = self.settings
        trace = compose(
            workload,
            settings.seed + repetition,
            duration_s=settings.workloads[workload],
            prompt_tokens=settings.prompt_tokens,
            shared_prefix_tokens=settings.shared_prefix_tokens,
        )
        tasks = [planned(job, trace.header.network_s) for job in trace.jobs]
        longest: dict[str, int] = {}
        for task in tasks:
            bound = max(segment.tokens for segment in task.plan)
            longest[task.skill_set] = max(bound, longest.get(task.skill_set, LEAST_BOUND))
        return sorted(
            (replace(task, segment_bound=longest[task.skill_set]) for task in tasks),
            key=lambda task: task.arrival_s,
        )

    # ------------------------------------------------------------------ what came out

    def own_profile(self) -> StepTimeProfile:
        """A profile fitted to the steps of the runs themselves: the machine as it was while they ran.

        Raises:
            InvalidInput: no steps were kept, or too few.
        """
        files = self._journals()
        if not files or not (self.folder / SIZES_FILE).exists():
            raise InvalidInput("no steps of its runs were kept", where=str(self.folder))
        journals = [self._events(file) for file in files]
        steps = [step for events in journals for step in from_events(events)]
        sizes = json.loads((self.folder / SIZES_FILE).read_text(encoding="utf-8"))
        return measured_profile(
            OWN, f"{len(steps)} steps of the measured runs", steps, sizes, launches(journals)
        )

    def _events(self, file: Path) -> list[dict[str, Any]]:
        """What a scheduler's journal holds, read again only when it has grown."""
        size = file.stat().st_size if file.exists() else -1
        if file not in self._read or self._read[file][0] != size:
            self._read[file] = (size, read_events(file))
        return self._read[file][1]

    def door_s(self) -> float:
        """From a task's arrival to the first step of an engine that was asleep, seconds: the median; 0 without one."""
        found = []
        for file in self._journals():
            events = self._events(file)
            steps = [(event["t_s"], event["end_s"]) for event in events if event["event"] == "timed"]
            begins = [begin for begin, _ in steps]
            for arrival in {event["t_s"] for event in events if event["event"] == "arrive"}:
                after = bisect_left(begins, arrival)
                if after < len(steps) and (not after or steps[after - 1][1] < arrival):
                    found.append(begins[after] - arrival)
        return statistics.median(found) if found else 0.0

    def _passed(self, tasks: list[PlannedTask], run: Mapping[str, Any], door_s: float) -> list[PlannedTask]:
        """The tasks, each as long at the door as it was in that run."""
        kept = run.get("steps")
        if not kept:
            return tasks
        events = self._events(self.folder / kept["file"])
        found = passages(events, door_s, kept["since_s"], kept["until_s"])
        # A request's name is the job's, when its run began, and a suffix of vLLM's.
        by_job = {name.rsplit("-", 2)[0]: passed_s for name, passed_s in found.items()}
        return [replace(task, door_s=by_job.get(str(task.job))) for task in tasks]

    def _profile_of(self, run: Mapping[str, Any], otherwise: StepTimeProfile) -> StepTimeProfile:
        """Fitted to the steps of one run, which a machine that drifts makes another; or that of all runs."""
        kept = run.get("steps")
        if not kept:
            return otherwise
        steps = from_events(self._events(self.folder / kept["file"]), kept["since_s"], kept["until_s"])
        if len(steps) < LEAST_STEPS:
            return otherwise
        terms, errors = fit_steps(steps)
        return otherwise.model_copy(update={"step_s": terms, "fit_error": errors})

    def _speed_of(
        self,
        run: Mapping[str, Any],
        options: ReplayOptions,
        profile: StepTimeProfile,
        tasks: list[PlannedTask],
    ) -> LearnedSpeed:
        """What the engine had learned of its step times when a run began: from the steps before it.

        Where none were kept, what is learned from serving the same tasks once.
        """
        speed, kept = LearnedSpeed(), run.get("steps")
        if not kept:
            Simulator(options, profile, speed=speed).run(tasks)
            return speed
        events = self._events(self.folder / kept["file"])
        # The run's warm-up counts: the discipline is made anew after it, what is known of step times is not.
        made = (event["t_s"] for event in events if event["event"] == "switch")
        begun = max(
            (when for when in made if kept["since_s"] <= when <= kept["until_s"]), default=kept["since_s"]
        )
        before = (event for event in events if event["event"] == "timed" and event["t_s"] < begun)
        learner = StepLearner(speed.observe)
        for event, begin_s, after in in_order(before):
            learner.ran(
                event["decodes"] + event["prefills"],
                event["prefill_tokens"],
                event["end_s"] - begin_s,
                prompts_follow=prompts_follow(event, after),
            )
        return speed

    def report(self, name: str) -> dict[str, Any]:
        """Measured, and predicted with a profile (or ``OWN``), and where the prediction holds.

        ``{"settings", "profile", "door_s", "close": [...], "pairs": [...], "workloads": {workload: {system: {"runs",
        "measured", "by_repetition", "predicted", "range", "load_before"}}}}``: means over the repetitions that all
        systems have, the prediction's over its simulations too, ``range`` the least and greatest of these.
        """
        profile = self.own_profile() if name == OWN else load_profile(name)
        door_s = self.door_s()
        workloads: dict[str, Any] = {}
        for workload in self.settings.workloads:
            rows = {
                system: self._row(workload, system, files, profile, door_s, each=name == OWN)
                for system, files in self._comparable(workload).items()
            }
            if rows:
                workloads[workload] = rows
        return {
            "settings": asdict(self.settings),
            "profile": profile.name,
            "door_s": round(door_s, 6),
            "workloads": workloads,
            "close": [row for name, rows in workloads.items() for row in closeness(name, rows)],
            "pairs": [row for name, rows in workloads.items() for row in pairs(name, rows)],
        }

    def _comparable(self, workload: str) -> dict[str, list[Path]]:
        """Files of each system that has any; of the same repetitions, whose tasks are the same, if there is one."""
        runs = {
            system: {_repetition(file): file for file in self.folder.glob(f"{workload}-{system}-[0-9]*.json")}
            for system in self.settings.systems
        }
        runs = {system: files for system, files in runs.items() if files}
        shared = set.intersection(*(set(files) for files in runs.values())) if runs else set()
        return {
            system: [files[number] for number in sorted(shared or files)] for system, files in runs.items()
        }

    def _row(
        self,
        workload: str,
        system: str,
        files: Sequence[Path],
        profile: StepTimeProfile,
        door_s: float,
        *,
        each: bool,
    ) -> dict[str, Any]:
        runs = {_repetition(file): read_result(file) for file in files}
        drawn: list[list[dict[str, float]]] = []
        most: dict[str, float] = {}
        for repetition, run in runs.items():
            tasks = self.tasks(workload, repetition)
            if each:
                tasks = self._passed(tasks, run, door_s)
            options = replace(self.options(system), door_s=door_s)
            one = self._profile_of(run, profile) if each else profile
            speed = self._speed_of(run if each else {}, options, one, tasks)
            drawn.append(_predictions(tasks, options, one, speed))
        for group_name, group in next(iter(runs.values()))["summary"]["by_class"].items():
            most[f"utility, {group_name}"] = group["utility_max_mean"] or 0.0
        values = {repetition: measured(run["summary"]) for repetition, run in runs.items()}
        names = [name for name in MEASURES if all(name in value for value in values.values())]
        return {
            "runs": len(runs),
            "jobs": sum(run["summary"]["jobs"] for run in runs.values()),
            "load_before": max(run.get("load_before", 0.0) for run in runs.values()),
            "share_served": min(run["summary"]["share_served"] for run in runs.values()),
            "measured": {name: statistics.mean(value[name] for value in values.values()) for name in names},
            "by_repetition": {
                name: {repetition: value[name] for repetition, value in values.items()} for name in names
            },
            "predicted": {
                name: statistics.mean(sample[name] for samples in drawn for sample in samples)
                for name in names
            },
            "range": {name: _range(drawn, name) for name in names},
            "most": most,
        }


def _repetition(file: Path) -> int:
    """Of a run's file, from 0."""
    return int(file.stem.rsplit("-", 1)[1]) - 1


def _predictions(
    tasks: list[PlannedTask], options: ReplayOptions, profile: StepTimeProfile, speed: LearnedSpeed
) -> list[dict[str, float]]:
    """The compared numbers of ``SAMPLES`` simulations whose step times scatter; of one, if they do not."""
    (decode, prompts), found = noise_of(profile), []
    for sample in range(SAMPLES if decode or prompts else 1):
        chosen = replace(options, step_noise=decode, prompt_noise=prompts, seed=options.seed + sample)
        simulated = Simulator(chosen, profile, speed=copy.deepcopy(speed)).run(tasks)
        found.append(measured(results.summary(simulated.records, simulated.end_s)))
    return found


def _range(drawn: Sequence[Sequence[Mapping[str, float]]], name: str) -> tuple[float, float]:
    """Least and greatest mean over the repetitions, one simulation of each."""
    means = [statistics.mean(sample[name] for sample in samples) for samples in zip(*drawn, strict=False)]
    return min(means), max(means)


def noise_of(profile: StepTimeProfile) -> tuple[float, float]:
    """How step times scatter around a profile: the sigma that its median errors speak of, 0 where it names none.

    Of steps that decode, and of those with prompts: what ``pud`` learns from them differs by how well these are known.
    """

    def sigma(*kinds: str) -> float:
        known = [profile.fit_error.get(f"{kind}_median") for kind in kinds]
        errors = [error for error in known if isinstance(error, float)]
        # A simulation takes less than 1; a fit as bad as that predicts nothing anyway.
        return min(SIGMA_OF_MEDIAN * statistics.mean(errors), 0.9) if errors else 0.0

    return sigma("decode"), sigma("prefill", "mixed")


def measured(summary: Mapping[str, Any]) -> dict[str, float]:
    """The compared numbers of a result's summary; without those of a class that has no tasks."""
    found: dict[str, float] = {}
    for name, path in MEASURES.items():
        node: Any = summary
        for key in path:
            node = node[key]
        if node is not None:
            found[name] = float(node)
    return found


def closeness(workload: str, rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How far each response time is from its prediction, relatively."""
    return [
        {
            "workload": workload,
            "system": system,
            "measure": name,
            "measured": row["measured"][name],
            "predicted": row["predicted"][name],
            "error": row["predicted"][name] / row["measured"][name] - 1.0,
            "holds": abs(row["predicted"][name] / row["measured"][name] - 1.0) <= CLOSE,
            "range": row["range"][name],
            "inside": row["range"][name][0] <= row["measured"][name] <= row["range"][name][1],
        }
        for system, row in rows.items()
        for name in RESPONSES
        if name in row["measured"]
    ]


def pairs(workload: str, rows: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every two systems that differ by more than ``DIFFERENT``, and whether the prediction has the same winner.

    ``agreed``: in every repetition the same one was ahead.
    """
    found = []
    for name in RANKED:
        for first, second in itertools.combinations(rows, 2):
            a, b = rows[first], rows[second]
            if name not in a["measured"] or name not in b["measured"]:
                continue
            live = a["measured"][name] - b["measured"][name]
            scale = max(a["most"].get(name, 1e-9), abs(a["measured"][name]), abs(b["measured"][name]))
            if abs(live) <= DIFFERENT * scale:
                continue
            predicted = a["predicted"][name] - b["predicted"][name]
            found.append(
                {
                    "workload": workload,
                    "measure": name,
                    "systems": [first, second],
                    "measured": live,
                    "predicted": predicted,
                    "agreed": _agreed(a["by_repetition"][name], b["by_repetition"][name]),
                    "holds": live * predicted > 0.0,
                }
            )
    return found


def _agreed(first: Mapping[int, float], second: Mapping[int, float]) -> bool:
    ahead = {first[repetition] > second[repetition] for repetition in first.keys() & second.keys()}
    return len(ahead) == 1


def text(report: Mapping[str, Any]) -> str:
    """The report as Markdown tables: measured / predicted."""
    lines = []
    for workload, rows in report["workloads"].items():
        first = next(iter(rows.values()))
        seconds = report["settings"]["workloads"][workload]
        names = [name for name in MEASURES if name in first["measured"]]
        lines += [
            f"{workload}, {seconds:.0f} s, {first['jobs']} tasks in {first['runs']} runs;"
            f" measured / predicted by `{report['profile']}`",
            "",
            f"| system | runs | {' | '.join(names)} |",
            f"|---|---|{'---|' * len(names)}",
        ]
        for system, row in rows.items():
            cells = [f"{row['measured'][name]:.3f} / {row['predicted'][name]:.3f}" for name in names]
            lines.append(f"| {system} | {row['runs']} | {' | '.join(cells)} |")
        lines.append("")
    close, compared = report["close"], report["pairs"]
    if close:
        worst = max(close, key=lambda row: abs(row["error"]))
        near = sum(row["holds"] for row in close)
        lines.append(
            f"Response p50 and p90 within {CLOSE:.0%} of the prediction: {near} of {len(close)};"
            f" the worst {worst['error']:+.0%} ({worst['workload']}, {worst['system']}, {worst['measure']});"
            f" {sum(row['inside'] for row in close)} within the range of its simulations."
        )
    if compared:
        wrong = [row for row in compared if not row["holds"]]
        clear = [row for row in compared if row["agreed"]]
        missed = [row for row in clear if not row["holds"]]
        lines.append(
            f"Same winner in {len(compared) - len(wrong)} of {len(compared)} pairs that differ by more than"
            f" {DIFFERENT:.0%}, in {len(clear) - len(missed)} of the {len(clear)} with the same winner in every"
            f" repetition{'.' if not wrong else ':'}"
        )
        lines += [
            f"- {row['workload']}, {row['measure']}: {' - '.join(row['systems'])} is {row['measured']:+.3f}, predicted"
            f" {row['predicted']:+.3f}"
            + ("" if row["agreed"] else " (not the same winner in every repetition)")
            for row in wrong
        ]
    return "\n".join(lines)
