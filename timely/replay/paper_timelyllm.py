"""TimelyLLM's section 7 in the simulator: each figure and table, the paper's number, ours, and whether it holds.

Setting: an RTX 4090 with an 8B Llama as measured (profile ``rtx4090-llama3-8b``), prompts of 1300 tokens of which
1200 are a skill set's prefix that is cached, as pre-stored prompts are. How many tokens of a prompt are new is not in
the paper and matters most, so the sensitivity to it is shown. ``pud`` is the paper's algorithm, ``timely`` ours.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lrtrace.compose import Options, compose
from timely.core.job import Job, JobTable
from timely.disciplines.base import Discipline, Floats, Speed, StepLimits
from timely.disciplines.composition import StepBuilder
from timely.disciplines.cost import scheduling_point_us
from timely.disciplines.pud import Pud
from timely.disciplines.registry import create
from timely.disciplines.timely import Timely
from timely.engines.base import Mode
from timely.engines.replaying import JobRecord, PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.profile import load_profile
from timely.engines.sim.simulator import Simulator
from timely.replay import paper_plots as plots
from timely.replay.bounds import MOST_TASKS, Alone, clairvoyant_utility
from timely.replay.paper_plots import Interval
from timely.replay.trace import planned

Say = Callable[[str], None]
Claim = dict[str, Any]

PROFILE = "rtx4090-llama3-8b"
PREFIX_TOKENS = 1200
NEW_TOKENS = 100
SWEEP = (16, 50, 100, 150, 200, 300, 400)
BATCHES = (1, 2, 4, 6, 8, 10, 12, 14, 16)
TASK_IDS = tuple(range(1, 9))
RESAMPLES = 2000


# ---------------------------------------------------------------- systems


class _FixedBatch(Pud):
    """The paper's section 7.3.1: its priority, but a fixed batch instead of the latency-guided admission."""

    def may_join(self, table: JobTable, limits: StepLimits, builder: StepBuilder, row: int) -> bool:
        """Always."""
        return True


class _SegmentedFcfs(Pud):
    """Section 7.3.2: everything of the paper's but the priority, which is the order of arrival."""

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """Earlier arrivals first."""
        return -table.arrival_s

    def lead_s(self, job: Job, speed: Speed) -> float:
        """A suspended generation keeps its initial priority: runnable at once."""
        return math.inf


class _SegmentedEdf(_SegmentedFcfs):
    """The same with the order of the tasks' deadlines."""

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        """Earlier deadlines first."""
        result: Floats = -(table.arrival_s + table.ert_s)
        return result


class _Plain(Timely):
    """``timely`` with nothing of its own: the index alone."""

    PROTECT, CHUNK, EARLY, RIDE_S = False, False, 0.0, 0.0


class _Protecting(_Plain):
    PROTECT = True


class _Chunking(_Protecting):
    CHUNK = True


class _Early(_Chunking):
    EARLY = Timely.EARLY


@dataclass(frozen=True, slots=True)
class System:
    """Something to compare: a discipline and a serving mode."""

    name: str
    make: Callable[[], Discipline]
    mode: Mode = "segmented"


def _named(name: str) -> Callable[[], Discipline]:
    return lambda: create(name)


VLLM = System("vLLM", _named("fcfs"), "whole")
STREAM = System("vLLM-stream", _named("fcfs"), "stream")
FCFS = System("segmented FCFS", _SegmentedFcfs)
EDF = System("segmented EDF", _SegmentedEdf)
PUD = System("TimelyLLM (pud)", Pud)
OURS = System("timely", Timely)
SYSTEMS = (VLLM, STREAM, FCFS, EDF, PUD, OURS)
ABLATION = (
    PUD,
    System("index alone", _Plain),
    System("+ protect", _Protecting),
    System("+ chunks", _Chunking),
    System("+ early is better", _Early),
    System("+ ride along = timely", Timely),
)


# ---------------------------------------------------------------- runs


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: its records, and the trace id of each."""

    records: list[JobRecord]
    end_s: float
    ids: tuple[int, ...]

    def pick(self, wanted: Callable[[JobRecord, int], bool]) -> list[JobRecord]:
        """Some of the records."""
        return [
            record for record, number in zip(self.records, self.ids, strict=True) if wanted(record, number)
        ]

    def utility(self, wanted: Callable[[JobRecord, int], bool]) -> float:
        """Mean utility; nan for none."""
        return _mean(record.utility(self.end_s) for record in self.pick(wanted))

    def share(self, wanted: Callable[[JobRecord, int], bool]) -> float:
        """Utility of the maximum."""
        chosen = self.pick(wanted)
        most = sum(record.task.utility.beta for record in chosen)
        return sum(record.utility(self.end_s) for record in chosen) / most if chosen else math.nan


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return math.fsum(known) / len(known) if known else math.nan


def urgent(record: JobRecord, _: int) -> bool:
    """Urgent tasks."""
    return record.task.utility.urgent


def normal(record: JobRecord, _: int) -> bool:
    """The others."""
    return not record.task.utility.urgent


def everything(_record: JobRecord, _: int) -> bool:
    """All tasks."""
    return True


@lru_cache(maxsize=64)
def workload(
    name: str, seed: int, new_tokens: int, unit: str = ""
) -> tuple[tuple[PlannedTask, ...], tuple[int, ...]]:
    """A workload of Table 3 (or ``chat``) as tasks, and their trace ids."""
    if name == "chat":
        composed = compose("chat", seed, options=Options(unit=unit))  # type: ignore[arg-type]
    else:
        composed = compose(
            name, seed, prompt_tokens=PREFIX_TOKENS + new_tokens, shared_prefix_tokens=PREFIX_TOKENS
        )
    jobs = list(composed.jobs)
    tasks = tuple(planned(job, composed.header.network_s) for job in jobs)
    return tasks, tuple(int(job.extra.get("trace_id", 0)) for job in jobs)


def run_system(
    system: System,
    name: str,
    seed: int,
    *,
    new_tokens: int = NEW_TOKENS,
    profile: str = PROFILE,
    max_batch: int | None = None,
    unit: str = "",
) -> Outcome:
    """One system on one workload."""
    tasks, ids = workload(name, seed, new_tokens, unit)
    options = ReplayOptions(
        discipline="given", mode=system.mode, max_batch=max_batch, journal=False, warm_prefixes=True
    )
    run = Simulator(options, load_profile(profile), discipline=system.make()).run(tasks)
    return Outcome(run.records, run.end_s, ids)


def interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Mean and 95% confidence interval by bootstrap over the seeds."""
    sample = np.array([value for value in values if math.isfinite(value)])
    if sample.size == 0:
        return (math.nan, math.nan, math.nan)
    rng = np.random.default_rng(seed)
    means = rng.choice(sample, (RESAMPLES, sample.size)).mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return (float(sample.mean()), float(low), float(high))


# ---------------------------------------------------------------- the report


class Report:
    """Claims gathered one by one, and every number behind them as a table."""

    def __init__(self, out: Path, say: Say) -> None:
        self.out = out
        self.say = say
        self.claims: list[Claim] = []
        self._rows: list[tuple[str, str, str, float, float, float]] = []

    def claim(
        self,
        name: str,
        what: str,
        paper: float | None,
        ours: Interval | float,
        unit: str,
        holds: bool | None,
        note: str = "",
    ) -> None:
        """Add a claim; ``holds`` None where there is nothing to hold (a baseline's own number)."""
        mean, low, high = ours if isinstance(ours, tuple) else (ours, math.nan, math.nan)
        self.claims.append(
            {
                "id": name,
                "what": what,
                "paper": paper,
                "ours": _plain(mean),
                "ci95": [_plain(low), _plain(high)] if math.isfinite(low) else None,
                "ratio": _plain(mean / paper) if paper else None,
                "unit": unit,
                "holds": None if holds is None else bool(holds),
                "note": note,
            }
        )

    def row(self, figure: str, system: str, group: str, value: Interval) -> None:
        """Keep a plotted number."""
        self._rows.append((figure, system, group, *value))

    def save_rows(self) -> None:
        """All plotted numbers as ``numbers.csv``."""
        with (self.out / "numbers.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("figure", "system", "group", "mean", "ci_low", "ci_high"))
            writer.writerows((*row[:3], *(f"{value:.6g}" for value in row[3:])) for row in self._rows)


def _plain(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def run(seeds: Sequence[int], out: Path, say: Say) -> list[Claim]:
    """All of section 7; plots and ``numbers.csv`` into ``out``; returns the claims.

    Each claim is ``{"id", "what", "paper", "ours", "ci95", "ratio", "unit", "holds", "note"}``.
    """
    report = Report(out, say)
    for part in (
        table_1, figure_5, figure_6, figure_7, figure_8, figure_9, figure_10, tables_4_and_5, sensitivity, ablation,
        bounds,
    ):  # fmt: skip
        say(f"{part.__name__.replace('_', ' ')} ...")
        part(report, seeds)
    report.save_rows()
    if not plots.available():
        say("matplotlib is not installed: numbers, no pictures (install timely-serving[report])")
    return report.claims


def table_1(report: Report, seeds: Sequence[int]) -> None:
    """Table 1: what one request of 2884 tokens costs, on our profile of the same card."""
    alone = Alone(load_profile(PROFILE))
    one = PlannedTask(job=0, arrival_s=0.0, plan=(PlannedSegment("", 1, 0.0),), prompt_tokens=2884)
    two = PlannedTask(job=0, arrival_s=0.0, plan=(PlannedSegment("", 2, 0.0),), prompt_tokens=2884)
    first = 1e3 * alone.response_s(one)
    token = 1e3 * alone.response_s(two) - first
    note = "vLLM on the same card; the paper measured Hugging Face Transformers"
    report.claim(
        "table1-first", "Table 1: first token after 2884 prompt tokens", 328.45, first, "ms", None, note
    )
    report.claim("table1-token", "Table 1: each further token", 21.93, token, "ms", None, note)


def figure_5(report: Report, seeds: Sequence[int]) -> None:
    """Figure 5: utility, response and waiting by task type, WID 1 (low) and WID 2 (high)."""
    shares: dict[tuple[str, str, str], list[float]] = {}
    for load, name in (("LW", "wid1"), ("HW", "wid2")):
        measures: dict[str, dict[str, list[Interval | None]]] = {"utility": {}, "response": {}, "waiting": {}}
        for system in (VLLM, STREAM, PUD, OURS):
            outcomes = [run_system(system, name, seed) for seed in seeds]
            for kind, wanted in (("urgent", urgent), ("normal", normal)):
                shares[load, system.name, kind] = [outcome.share(wanted) for outcome in outcomes]
            shares[load, system.name, "response"] = [
                _mean(r.response_time_s for r in outcome.pick(urgent)) for outcome in outcomes
            ]
            shares[load, system.name, "waiting"] = [
                _mean(r.waiting_time_s for r in outcome.records) for outcome in outcomes
            ]
            for measure, of_systems in measures.items():
                values = [_by_type(outcomes, number, measure) for number in TASK_IDS]
                of_systems[system.name] = list(values)
                for number, value in zip(TASK_IDS, values, strict=True):
                    report.row(f"5 {measure} {load}", system.name, f"task {number}", value)
        labels = [str(number) for number in TASK_IDS]
        for letter, (measure, unit) in zip(
            "abc" if load == "LW" else "def",
            (("utility", ""), ("response", "s"), ("waiting", "s")),
            strict=True,
        ):
            plots.bars(
                report.out / f"figure-5{letter}-{measure}-{load}.png",
                f"Figure 5{letter}: {measure}, {load} (task ids 1-5 normal, 6-8 urgent)",
                labels, measures[measure], f"{measure} {unit}".strip(), floor=-2.0,
            )  # fmt: skip
    _claims_5(report, {key: interval(values) for key, values in shares.items()}, shares)


def _by_type(outcomes: Sequence[Outcome], number: int, measure: str) -> Interval:
    values = []
    for outcome in outcomes:
        chosen = outcome.pick(lambda _, own: own == number)
        if measure == "utility":
            values.append(_mean(record.utility(outcome.end_s) for record in chosen))
        elif measure == "response":
            values.append(_mean(record.response_time_s for record in chosen))
        else:
            values.append(_mean(record.waiting_time_s for record in chosen))
    return interval(values)


def _claims_5(
    report: Report, means: dict[tuple[str, str, str], Interval], raw: dict[tuple[str, str, str], list[float]]
) -> None:
    def share(load: str, system: System, kind: str = "urgent") -> Interval:
        return means[load, system.name, kind]

    base = share("LW", VLLM)
    report.claim(
        "fig5a-vllm", "Fig. 5a: vLLM, urgent tasks' share of the maximum, low load", 0.595, base, "share", None,
        f"grows with fewer new prompt tokens; here {NEW_TOKENS} of {PREFIX_TOKENS + NEW_TOKENS}",
    )  # fmt: skip
    report.claim(
        "fig5a-pud", "Fig. 5a: TimelyLLM's own algorithm, the same", 0.815, share("LW", PUD), "share",
        share("LW", PUD)[0] >= 0.815,
    )  # fmt: skip
    report.claim(
        "fig5a-timely",
        "Fig. 5a: timely, the same",
        0.815,
        share("LW", OURS),
        "share",
        share("LW", OURS)[0] >= 0.815,
    )
    report.claim(
        "fig5a-normal", "Fig. 5a: timely, normal tasks keep the maximum, low load", 1.0, share("LW", OURS, "normal"),
        "share", share("LW", OURS, "normal")[0] >= 0.995,
    )  # fmt: skip
    for system, name in ((PUD, "pud"), (OURS, "timely")):
        gains = [
            ours / theirs - 1.0 if theirs > 0 else math.nan
            for ours, theirs in zip(
                raw["HW", system.name, "urgent"], raw["HW", VLLM.name, "urgent"], strict=True
            )
        ]
        overall = means["HW", system.name, "urgent"][0] / means["HW", VLLM.name, "urgent"][0] - 1.0
        spread = interval(gains)
        report.claim(
            f"fig5d-{name}", f"Fig. 5d: {name}, gain in urgent utility over vLLM, high load", 1.91,
            (overall, min(spread[1], overall), max(spread[2], overall)), "of vLLM's", overall >= 1.91,
            f"{means['HW', VLLM.name, 'urgent'][0]:.3f} to {means['HW', system.name, 'urgent'][0]:.3f} of the maximum",
        )  # fmt: skip
    report.claim(
        "fig5d-normal", "Fig. 5d: timely, normal tasks' share of the maximum, high load", None,
        share("HW", OURS, "normal"), "share",
        share("HW", OURS, "normal")[0] >= share("HW", PUD, "normal")[0] - 0.005, "not below the paper's algorithm",
    )  # fmt: skip
    for load, letter in (("LW", "b"), ("HW", "e")):
        ours, theirs = means[load, OURS.name, "response"], means[load, VLLM.name, "response"]
        report.claim(
            f"fig5{letter}-response", f"Fig. 5{letter}: timely, response of urgent tasks, {load}", None, ours, "s",
            ours[0] < theirs[0], f"vLLM {theirs[0]:.3f} s",
        )  # fmt: skip
    for load, letter in (("LW", "c"), ("HW", "f")):
        ours, theirs = means[load, OURS.name, "waiting"], means[load, VLLM.name, "waiting"]
        report.claim(
            f"fig5{letter}-waiting", f"Fig. 5{letter}: timely, waiting over all tasks, {load}", None, ours, "s",
            ours[0] < theirs[0], f"vLLM {theirs[0]:.3f} s",
        )  # fmt: skip


def figure_6(report: Report, seeds: Sequence[int]) -> None:
    """Figure 6: an urgent and a normal task that arrive together, under vLLM and under ours."""
    seed = seeds[0]
    runs = {system.name: run_system(system, "wid2", seed) for system in (VLLM, PUD, OURS)}
    pair = _collision(runs[VLLM.name])
    if pair is None:
        report.claim(
            "fig6", "Fig. 6: urgent task 72 in time beside normal task 71", None, math.nan, "", None,
            "no such pair in this seed",
        )  # fmt: skip
        return
    rows, verdicts = [], {}
    for name, outcome in runs.items():
        for index, label in ((pair[1], "urgent"), (pair[0], "normal")):
            record = outcome.records[index]
            rows.append((f"{name}, {label}", _spans(record)))
            verdicts[name, label] = record.response_time_s <= record.task.utility.ert_s + 1e-9
    plots.timeline(
        report.out / "figure-6-pair.png", "Figure 6: a normal and an urgent task that arrive together", rows[::-1],
        {"ERT urgent": 0.2, "ERT normal": 1.0},
    )  # fmt: skip
    record = runs[OURS.name].records[pair[1]]
    report.claim(
        "fig6", "Fig. 6: urgent task misses its ERT under vLLM, both are in time under timely", 0.2,
        record.response_time_s, "s",
        not verdicts[VLLM.name, "urgent"] and verdicts[OURS.name, "urgent"] and verdicts[OURS.name, "normal"],
        f"urgent task, vLLM {runs[VLLM.name].records[pair[1]].response_time_s:.3f} s",
    )  # fmt: skip


def _collision(outcome: Outcome) -> tuple[int, int] | None:
    """A normal task and an urgent one of the same moment that was late."""
    records = outcome.records
    for index, record in enumerate(records):
        if record.task.utility.urgent and record.response_time_s > record.task.utility.ert_s:
            for other, candidate in enumerate(records):
                same = candidate.task.arrival_s == record.task.arrival_s
                if same and not candidate.task.utility.urgent:
                    return other, index
    return None


def _spans(record: JobRecord) -> list[tuple[float, float, str]]:
    begin = record.task.arrival_s
    spans = [(0.0, record.admitted_s - begin, "queued")]
    spans.append((record.admitted_s - begin, record.ready_s[0] - begin, "generating"))
    window = 1.6
    for start, end in zip(record.start_s, record.end_s, strict=True):
        if start - begin < window:
            spans.append((start - begin, min(end - begin, window), "executing"))
    return spans


def figure_7(report: Report, seeds: Sequence[int]) -> None:
    """Figure 7: utility against a fixed batch size, WID 2."""
    fixed = System("TimelyLLM, fixed batch", _FixedBatch)
    curves: dict[str, list[Interval]] = {}
    for system in (VLLM, fixed):
        curves[system.name] = []
        for batch in BATCHES:
            value = interval(
                [run_system(system, "wid2", s, max_batch=batch).utility(everything) for s in seeds]
            )
            curves[system.name].append(value)
            report.row("7", system.name, str(batch), value)
    adaptive = interval([run_system(OURS, "wid2", seed).utility(everything) for seed in seeds])
    curves["timely, no limit"] = [adaptive] * len(BATCHES)
    plots.lines(
        report.out / "figure-7-batch.png", "Figure 7: mean utility against the batch size, WID 2", BATCHES, curves,
        "batch size", "mean utility", paper={"paper: TimelyLLM": (6, 1.21), "paper: vLLM": (12, 0.74)}, floor=-2.0,
    )  # fmt: skip
    for name, key, paper, at in (
        (fixed.name, "timelyllm", 1.21, 6), (VLLM.name, "vllm", 0.74, 12),
    ):  # fmt: skip
        best = max(range(len(BATCHES)), key=lambda index: curves[name][index][0])
        report.claim(
            f"fig7-{key}", f"Fig. 7: best mean utility over batch sizes, {name}", paper, curves[name][best], "utility",
            None, f"at batch {BATCHES[best]}, the paper's at {at}",
        )  # fmt: skip
    ahead = all(
        ours[0] >= theirs[0] for ours, theirs in zip(curves[fixed.name], curves[VLLM.name], strict=True)
    )
    report.claim(
        "fig7-always", "Fig. 7: TimelyLLM above vLLM at every batch size", 1.0, float(ahead), "true", ahead
    )
    best_fixed = max(value[0] for value in curves[fixed.name])
    report.claim(
        "fig7-timely", "Fig. 7: timely, composed steps instead of a batch size", 1.21, adaptive, "utility",
        adaptive[0] >= max(1.21, best_fixed), f"best fixed batch {best_fixed:.3f}",
    )  # fmt: skip


def figure_8(report: Report, seeds: Sequence[int]) -> None:
    """Figure 8: scheduling algorithms on WID 2, at our number of new tokens and where FCFS is the paper's."""
    for new_tokens in (NEW_TOKENS, 300):
        found: dict[str, tuple[Interval, Interval]] = {}
        for system in (FCFS, EDF, PUD, OURS):
            outcomes = [run_system(system, "wid2", seed, new_tokens=new_tokens) for seed in seeds]
            found[system.name] = (
                interval([outcome.share(urgent) for outcome in outcomes]),
                interval([outcome.share(normal) for outcome in outcomes]),
            )
            for kind, value in zip(("urgent", "normal"), found[system.name], strict=True):
                report.row(f"8 ({new_tokens} new tokens)", system.name, kind, value)
        plots.bars(
            report.out / f"figure-8-algorithms-{new_tokens}.png",
            f"Figure 8: share of the maximum utility, WID 2, {new_tokens} new prompt tokens", ["urgent", "normal"],
            {name: list(values) for name, values in found.items()}, "share of maximum", floor=-1.0,
        )  # fmt: skip
        ours, suffix = found[OURS.name], "" if new_tokens == NEW_TOKENS else f"-{new_tokens}"
        for system, paper in ((FCFS, 1.83), (EDF, 1.42)):
            theirs = found[system.name]
            ratio = ours[0][0] / theirs[0][0] if theirs[0][0] > 0 else math.inf
            note = f"{theirs[0][0]:.3f} to {ours[0][0]:.3f} of the maximum, {new_tokens} new prompt tokens"
            if ratio < paper:
                note += f"; they would have to leave {1 - 1 / paper:.0%} of the maximum: see sensitivity"
            report.claim(
                f"fig8-{system.make().__class__.__name__[10:].lower()}{suffix}",
                f"Fig. 8: timely's urgent utility over {system.name}'s", paper, ratio, "ratio", ratio >= paper, note,
            )  # fmt: skip
        loss = found[FCFS.name][1][0] - ours[1][0]
        report.claim(
            f"fig8-normal{suffix}", "Fig. 8: normal utility lost against segmented FCFS", 0.0, loss, "share",
            loss <= 0.01, f"{ours[1][0]:.3f} of the maximum",
        )  # fmt: skip


def figure_9(report: Report, seeds: Sequence[int]) -> None:
    """Figure 9: robot arms, WID 3."""
    tasks = {9: "stacking", 10: "desk cleaning", 11: "sorting"}
    for profile in (PROFILE, "timelyllm-4090"):
        utilities: dict[str, list[Interval | None]] = {}
        waits: dict[str, list[Interval | None]] = {}
        for system in (VLLM, STREAM, PUD, OURS):
            outcomes = [run_system(system, "wid3", seed, profile=profile) for seed in seeds]
            utilities[system.name] = [_by_type(outcomes, number, "utility") for number in tasks]
            waits[system.name] = [_by_type(outcomes, number, "waiting") for number in tasks]
            for index, label in enumerate(tasks.values()):
                for measure, values in (("utility", utilities), ("waiting", waits)):
                    value = values[system.name][index]
                    if value is not None:
                        report.row(f"9 {measure}, {profile}", system.name, label, value)
        for measure, values in (("utility", utilities), ("waiting", waits)):
            plots.bars(
                report.out / f"figure-9-{measure}-{profile}.png", f"Figure 9: {measure}, WID 3, {profile}",
                list(tasks.values()), values, measure, floor=-2.0,
            )  # fmt: skip
        _claims_9(report, profile, utilities, waits)


def _claims_9(
    report: Report,
    profile: str,
    utilities: dict[str, list[Interval | None]],
    waits: dict[str, list[Interval | None]],
) -> None:
    desk = 1
    suffix = "" if profile == PROFILE else "-paper-constants"
    where = "" if profile == PROFILE else ", with Table 1's constants"
    ours, theirs = utilities[OURS.name][desk], utilities[VLLM.name][desk]
    wait, theirs_wait = waits[OURS.name][desk], waits[VLLM.name][desk]
    if ours is None or theirs is None or wait is None or theirs_wait is None:
        return
    factor = ours[0] / theirs[0] if theirs[0] > 0.0 else math.inf
    report.claim(
        f"fig9-utility{suffix}", f"Fig. 9: timely's utility over vLLM's on desk cleaning{where}", 1.97, factor, "ratio",
        ours[0] >= 1.97 * theirs[0],
        f"{theirs[0]:.3f} to {ours[0]:.3f} of at most 1" + ("" if theirs[0] > 0.0 else ", so there is no factor")
        + "; the paper's needs vLLM at 0.51: a response of 1.25 s",
    )  # fmt: skip
    saved = 1.0 - wait[0] / theirs_wait[0]
    report.claim(
        f"fig9-waiting{suffix}", f"Fig. 9: timely, waiting saved on desk cleaning{where}", 0.84, saved, "share",
        saved >= 0.84, f"{theirs_wait[0]:.3f} s to {wait[0]:.3f} s",
    )  # fmt: skip
    stream = utilities[STREAM.name][desk]
    if stream is not None:
        report.claim(
            f"fig9-stream{suffix}", f"Fig. 9: vLLM-stream between vLLM and timely on desk cleaning{where}", None,
            stream[0], "utility", theirs[0] <= stream[0] <= ours[0] + 0.005,
        )  # fmt: skip


def figure_10(report: Report, seeds: Sequence[int]) -> None:
    """Figure 10: chatbots, sentences and paragraphs, on both of the paper's models."""
    models = {"Llama3": "timelyllm-4090", "Phi3": "timelyllm-4090-phi3"}
    utilities: dict[str, list[Interval | None]] = {}
    waits: dict[str, list[Interval | None]] = {}
    cases = (
        (VLLM, "sentence", "vLLM"),
        (OURS, "paragraph", "timely, paragraphs"),
        (OURS, "sentence", "timely, sentences"),
    )
    for system, unit, label in cases:
        utilities[label], waits[label] = [], []
        for profile in models.values():
            outcomes = [run_system(system, "chat", seed, profile=profile, unit=unit) for seed in seeds]
            utilities[label].append(interval([outcome.utility(everything) for outcome in outcomes]))
            waits[label].append(interval([_mean(r.waiting_time_s for r in o.records) for o in outcomes]))
        for model, utility, wait in zip(models, utilities[label], waits[label], strict=True):
            if utility is not None and wait is not None:
                report.row("10 utility", label, model, utility)
                report.row("10 delay", label, model, wait)
    plots.bars(
        report.out / "figure-10-utility.png",
        "Figure 10: utility, chatbot",
        list(models),
        utilities,
        "utility",
        floor=-25.0,
    )
    plots.bars(report.out / "figure-10-delay.png", "Figure 10: delay, chatbot", list(models), waits, "s")
    phi = 1
    ours, theirs = utilities["timely, sentences"][phi], utilities["vLLM"][phi]
    wait, theirs_wait = waits["timely, sentences"][phi], waits["vLLM"][phi]
    para = utilities["timely, paragraphs"][phi]
    if ours is None or theirs is None or wait is None or theirs_wait is None or para is None:
        return
    gain = ours[0] - theirs[0]
    # vLLM's utility falls by 2 for each second, and its delay grows with the length of the story.
    longer = (theirs_wait[0] + (21.57 - gain) / 2.0) / theirs_wait[0]
    report.claim(
        "fig10-utility", "Fig. 10: timely by sentences, gain in utility over vLLM, Phi3", 21.57, gain, "utility",
        gain >= 21.57,
        f"{theirs[0]:.2f} to {ours[0]:.2f}; ours is at its maximum and the rest is how late vLLM is: the paper's number"
        f" needs stories {longer:.1f} times as long as ours, whose length the paper does not tell",
    )  # fmt: skip
    saved = 1.0 - wait[0] / theirs_wait[0]
    longer = wait[0] / (1.0 - 0.96) / theirs_wait[0]
    report.claim(
        "fig10-delay", "Fig. 10: timely by sentences, delay saved, Phi3", 0.96, saved, "share", saved >= 0.96,
        f"{theirs_wait[0]:.2f} s to {wait[0]:.2f} s"
        + (f"; needs stories {longer:.1f} times as long" if saved < 0.96 else ""),
    )  # fmt: skip
    report.claim(
        "fig10-order", "Fig. 10: sentences before paragraphs before vLLM", 1.0,
        float(ours[0] >= para[0] >= theirs[0]), "true", ours[0] >= para[0] >= theirs[0],
    )  # fmt: skip


def tables_4_and_5(report: Report, seeds: Sequence[int]) -> None:
    """Table 4 is the live engine's; Table 5: a scheduling point, measured on this machine."""
    report.claim(
        "table4", "Table 4: overhead of segmenting", 0.041, math.nan, "share", None,
        "the simulator parks at no cost; `timely bench overhead` measures the real engine",
    )  # fmt: skip
    published = {1: 0.58, 2: 0.83, 4: 1.25, 6: 1.58, 8: 2.03}
    for jobs, paper in published.items():
        cost = scheduling_point_us("timely", jobs) / 1e3
        report.claim(
            f"table5-{jobs}", f"Table 5: scheduling overhead with {jobs} tasks, timely", paper, cost, "ms",
            cost <= paper, "this machine's processor",
        )  # fmt: skip


def sensitivity(report: Report, seeds: Sequence[int]) -> None:
    """How the comparison depends on the new tokens of a prompt, which the paper does not tell."""
    few = seeds[:3] if len(seeds) > 3 else seeds
    curves: dict[tuple[str, str], list[Interval]] = {}
    for name in ("wid1", "wid2"):
        for system in SYSTEMS:
            values = []
            for new_tokens in SWEEP:
                value = interval(
                    [run_system(system, name, s, new_tokens=new_tokens).share(urgent) for s in few]
                )
                values.append(value)
                report.row(f"sensitivity, urgent, {name}", system.name, str(new_tokens), value)
            curves[name, system.name] = values
        plots.lines(
            report.out / f"sensitivity-new-tokens-{name}.png",
            f"Urgent tasks, {name.upper()}, against new prompt tokens a request", SWEEP,
            {system.name: curves[name, system.name] for system in SYSTEMS}, "new prompt tokens",
            "share of maximum utility", floor=-1.5,
        )  # fmt: skip
    for name, system, paper, short in (
        ("wid1", VLLM, 0.595, "vllm"), ("wid1", PUD, 0.815, "pud"), ("wid2", FCFS, 0.43, "fcfs"),
    ):  # fmt: skip
        at = _crossing(SWEEP, [value[0] for value in curves[name, system.name]], paper)
        report.claim(
            f"sensitivity-{short}",
            f"New prompt tokens at which {system.name} has the paper's urgent share of {paper:g}, {name}",
            None, at, "tokens", None, "" if math.isfinite(at) else f"nowhere from {SWEEP[0]} to {SWEEP[-1]}",
        )  # fmt: skip


def _crossing(x: Sequence[float], y: Sequence[float], level: float) -> float:
    """Where a falling curve passes a level; nan when it does not."""
    for i in range(len(x) - 1):
        if y[i] >= level >= y[i + 1] and y[i] > y[i + 1]:
            return x[i] + (x[i + 1] - x[i]) * (y[i] - level) / (y[i] - y[i + 1])
    return math.nan


def ablation(report: Report, seeds: Sequence[int]) -> None:
    """Each idea of ``timely`` added to the one before, WID 2 with 100 and 400 new prompt tokens."""
    for new_tokens in (NEW_TOKENS, 400):
        found: dict[str, list[Interval | None]] = {}
        for system in ABLATION:
            outcomes = [run_system(system, "wid2", seed, new_tokens=new_tokens) for seed in seeds]
            kinds = (("urgent", urgent), ("normal", normal))
            found[system.name] = [interval([o.share(wanted) for o in outcomes]) for _, wanted in kinds]
            waits = interval([_mean(r.waiting_time_s for r in o.records) for o in outcomes])
            for (kind, _), value in zip(kinds, found[system.name], strict=True):
                if value is not None:
                    report.row(f"ablation, {new_tokens} new tokens", system.name, kind, value)
                    report.claim(
                        f"ablation-{new_tokens}-{system.name.strip('+ ').split(' ')[0]}-{kind}",
                        f"Ablation, {new_tokens} new tokens: {system.name}, {kind} share of the maximum", None, value,
                        "share", None, f"waiting {waits[0]:.3f} s",
                    )  # fmt: skip
        plots.bars(
            report.out / f"ablation-{new_tokens}.png",
            f"Ablation: share of the maximum, WID 2, {new_tokens} new prompt tokens", ["urgent", "normal"], found,
            "share of maximum", floor=-1.0,
        )  # fmt: skip


def bounds(report: Report, seeds: Sequence[int]) -> None:
    """How far ``timely`` is from what no schedule can beat."""
    profile = load_profile(PROFILE)
    alone = Alone(profile)
    for new_tokens in (NEW_TOKENS, 400):
        ours = interval(
            [run_system(OURS, "wid2", seed, new_tokens=new_tokens).utility(everything) for seed in seeds]
        )
        solo = interval(
            [_mean(alone.utility(task) for task in workload("wid2", seed, new_tokens)[0]) for seed in seeds]
        )
        report.claim(
            f"bound-alone-{new_tokens}", f"timely of the bound 'every task alone', WID 2, {new_tokens} new tokens",
            None, ours[0] / solo[0], "share", None, f"{ours[0]:.3f} of {solo[0]:.3f}",
        )  # fmt: skip
        reached, possible, theirs = 0.0, 0.0, 0.0
        for seed in seeds[:3]:
            for burst in _bursts(workload("wid2", seed, new_tokens)[0]):
                possible += clairvoyant_utility(burst, profile)
                reached += _burst_utility(OURS, burst)
                theirs += _burst_utility(PUD, burst)
        report.claim(
            f"bound-clairvoyant-{new_tokens}",
            f"timely of the clairvoyant bound, single events of WID 2, {new_tokens} new tokens", None,
            reached / possible if possible > 0 else math.nan, "share", None,
            f"{reached:.1f} of {possible:.1f}; TimelyLLM's algorithm {theirs:.1f}",
        )  # fmt: skip


def _bursts(tasks: Sequence[PlannedTask]) -> list[list[PlannedTask]]:
    """Tasks that arrive together, by event, small enough to be ordered exactly."""
    events: dict[float, list[PlannedTask]] = {}
    for task in tasks:
        events.setdefault(task.arrival_s, []).append(task)
    return [burst for burst in events.values() if 4 <= len(burst) <= min(12, MOST_TASKS)][:8]


def _burst_utility(system: System, burst: Sequence[PlannedTask]) -> float:
    options = ReplayOptions(discipline="given", mode=system.mode, journal=False, warm_prefixes=True)
    run = Simulator(options, load_profile(PROFILE), discipline=system.make()).run(burst)
    return sum(record.utility(run.end_s) for record in run.records)
