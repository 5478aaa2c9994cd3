"""TimelyLLM's section 7 in the simulator: each figure and table, the paper's number, ours, and whether it holds.

Setting: an RTX 4090 with an 8B Llama as measured (profile ``rtx4090-llama3-8b``), prompts of 1300 tokens of which
1200 are a skill set's prefix that is cached, as pre-stored prompts are. How many tokens of a prompt are new is not in
the paper and matters most, so the sensitivity to it is shown. ``pud`` is the paper's algorithm, ``timely`` ours.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from timely.bench.bounds import Alone
from timely.bench.decision_cost import scheduling_point_us
from timely.bench.papers import plots
from timely.bench.papers.plots import Interval
from timely.bench.papers.run_context import Evaluation
from timely.bench.papers.timelyllm.runs import (
    ADDED,
    ALONE,
    EDF,
    FCFS,
    FIXED,
    NEW_TOKENS,
    OURS,
    PREFIX_TOKENS,
    PROFILE,
    PUD,
    STREAM,
    SYSTEMS,
    VLLM,
    Outcome,
    Runs,
    System,
    crossing,
    interval,
    run_records,
)
from timely.engines.replay_types import JobRecord, PlannedSegment, PlannedTask
from timely.engines.step_time.profile import load_profile

Claim = dict[str, Any]

CPU_PROFILE = "cpu-smollm2"
SWEEP = (16, 50, 100, 150, 200, 300, 400)
"""New prompt tokens a request."""
LONGER = (1.0, 1.5, 2.0, 3.0)
"""How many times as long stories are."""
BATCHES = (1, 2, 4, 6, 8, 10, 12, 14, 16)
TASK_IDS = tuple(range(1, 9))


# ---------------------------------------------------------------- the report


class Report:
    """Claims gathered one by one, and every number behind them as a table."""

    def __init__(self, out: Path, runs: Runs) -> None:
        self.out = out
        self.runs = runs
        self.crossings: dict[str, float] = {}
        """New prompt tokens from which a claim holds, by its id; nan where it never does."""
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

    def holds_from(self, name: str, holds: bool) -> str:
        """A note for a claim that fails here: from how many new prompt tokens on it holds."""
        at = self.crossings.get(name, math.nan)
        if holds:
            return ""
        if math.isnan(at):
            return f"; at none of {SWEEP[0]} to {SWEEP[-1]} new prompt tokens"
        return f"; holds from {at:.0f} new prompt tokens on"

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


def run(given: Evaluation) -> list[Claim]:
    """All of section 7; plots, ``numbers.csv`` and ``comparison.md`` into ``given.out``; returns the claims.

    Each claim is ``{"id", "what", "paper", "ours", "ci95", "ratio", "unit", "holds", "note"}``.
    """
    report = Report(given.out, Runs(given.checkpoints))
    for part in (
        table_1, comparison, sensitivity, figure_5, figure_6, figure_7, figure_8, figure_9, figure_10, tables_4_and_5,
        ablation, bounds,
    ):  # fmt: skip
        given.say(f"{part.__name__.replace('_', ' ')} ...")
        part(report, given.seeds)
    report.save_rows()
    if not plots.available():
        given.say("matplotlib is not installed: numbers, no pictures (install timely-serving[report])")
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


def comparison(report: Report, seeds: Sequence[int]) -> None:
    """All systems on WID 1 and 2 side by side, as ``comparison.md``: means over the seeds and 95% intervals."""
    measures: tuple[tuple[str, Callable[[Outcome], float]], ...] = (
        ("urgent, share of the maximum", lambda outcome: outcome.share["urgent"]),
        ("normal, share of the maximum", lambda outcome: outcome.share["normal"]),
        ("response of urgent, s", lambda outcome: outcome.response_s["urgent"]),
        ("response of normal, s", lambda outcome: outcome.response_s["normal"]),
        ("waiting, s", lambda outcome: outcome.waiting_s),
        ("served", lambda outcome: outcome.served),
    )
    lines = []
    for profile in (PROFILE, CPU_PROFILE):
        for name in ("wid1", "wid2"):
            lines += [
                f"{name}, {len(seeds)} seeds, profile `{profile}`, {NEW_TOKENS} new prompt tokens of"
                f" {PREFIX_TOKENS + NEW_TOKENS}",
                "",
                "| system | " + " | ".join(measure for measure, _ in measures) + " |",
                "|---" * (len(measures) + 1) + "|",
            ]
            for system in SYSTEMS:
                outcomes = report.runs.outcomes(system, name, seeds, profile=profile)
                cells = []
                for measure, of in measures:
                    value = interval([of(outcome) for outcome in outcomes])
                    report.row(f"comparison, {name}, {profile}", system.name, measure, value)
                    spread = f" ({value[1]:.3f} to {value[2]:.3f})" if value[2] - value[1] >= 0.001 else ""
                    cells.append(f"{value[0]:.3f}{spread}")
                lines.append(f"| {system.name} | {' | '.join(cells)} |")
            lines.append("")
    (report.out / "comparison.md").write_text("\n".join(lines), encoding="utf-8")


def figure_5(report: Report, seeds: Sequence[int]) -> None:
    """Figure 5: utility, response and waiting by task type, WID 1 (low) and WID 2 (high)."""
    shares: dict[tuple[str, str, str], list[float]] = {}
    for load, name in (("LW", "wid1"), ("HW", "wid2")):
        measures: dict[str, dict[str, list[Interval | None]]] = {"utility": {}, "response": {}, "waiting": {}}
        for system in (VLLM, STREAM, PUD, OURS):
            outcomes = report.runs.outcomes(system, name, seeds)
            for kind in ("urgent", "normal"):
                shares[load, system.name, kind] = [outcome.share[kind] for outcome in outcomes]
            shares[load, system.name, "response"] = [outcome.response_s["urgent"] for outcome in outcomes]
            shares[load, system.name, "waiting"] = [outcome.waiting_s for outcome in outcomes]
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
    column = ("utility", "response", "waiting").index(measure)
    return interval([outcome.types[number][column] for outcome in outcomes if number in outcome.types])


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
            f"{means['HW', VLLM.name, 'urgent'][0]:.3f} to {means['HW', system.name, 'urgent'][0]:.3f} of the maximum"
            + report.holds_from(f"fig5d-{name}", overall >= 1.91),
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
    runs = {system.name: run_records(system, "wid2", seed)[0] for system in (VLLM, PUD, OURS)}
    pair = _collision(runs[VLLM.name])
    if pair is None:
        report.claim(
            "fig6", "Fig. 6: urgent task 72 in time beside normal task 71", None, math.nan, "", None,
            "no such pair in this seed",
        )  # fmt: skip
        return
    rows, verdicts = [], {}
    for name, records in runs.items():
        for index, label in ((pair[1], "urgent"), (pair[0], "normal")):
            record = records[index]
            rows.append((f"{name}, {label}", _spans(record)))
            verdicts[name, label] = record.response_time_s <= record.task.hints.utility.ert_s + 1e-9
    plots.timeline(
        report.out / "figure-6-pair.png", "Figure 6: a normal and an urgent task that arrive together", rows[::-1],
        {"ERT urgent": 0.2, "ERT normal": 1.0},
    )  # fmt: skip
    record = runs[OURS.name][pair[1]]
    report.claim(
        "fig6", "Fig. 6: urgent task misses its ERT under vLLM, both are in time under timely", 0.2,
        record.response_time_s, "s",
        not verdicts[VLLM.name, "urgent"] and verdicts[OURS.name, "urgent"] and verdicts[OURS.name, "normal"],
        f"urgent task, vLLM {runs[VLLM.name][pair[1]].response_time_s:.3f} s",
    )  # fmt: skip


def _collision(records: Sequence[JobRecord]) -> tuple[int, int] | None:
    """A normal task and an urgent one of the same moment that was late."""
    for index, record in enumerate(records):
        if record.task.hints.utility.urgent and record.response_time_s > record.task.hints.utility.ert_s:
            for other, candidate in enumerate(records):
                same = candidate.task.arrival_s == record.task.arrival_s
                if same and not candidate.task.hints.utility.urgent:
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
    curves: dict[str, list[Interval]] = {}
    for system in (VLLM, FIXED):
        curves[system.name] = []
        for batch in BATCHES:
            outcomes = report.runs.outcomes(system, "wid2", seeds, max_batch=batch)
            value = interval([outcome.utility for outcome in outcomes])
            curves[system.name].append(value)
            report.row("7", system.name, str(batch), value)
    adaptive = interval([outcome.utility for outcome in report.runs.outcomes(OURS, "wid2", seeds)])
    curves["timely, no limit"] = [adaptive] * len(BATCHES)
    plots.lines(
        report.out / "figure-7-batch.png", "Figure 7: mean utility against the batch size, WID 2", BATCHES, curves,
        "batch size", "mean utility", paper={"paper: TimelyLLM": (6, 1.21), "paper: vLLM": (12, 0.74)}, floor=-2.0,
    )  # fmt: skip
    for name, key, paper, at in (
        (FIXED.name, "timelyllm", 1.21, 6), (VLLM.name, "vllm", 0.74, 12),
    ):  # fmt: skip
        best = max(range(len(BATCHES)), key=lambda index: curves[name][index][0])
        report.claim(
            f"fig7-{key}", f"Fig. 7: best mean utility over batch sizes, {name}", paper, curves[name][best], "utility",
            None, f"at batch {BATCHES[best]}, the paper's at {at}",
        )  # fmt: skip
    ahead = all(
        ours[0] >= theirs[0] for ours, theirs in zip(curves[FIXED.name], curves[VLLM.name], strict=True)
    )
    report.claim(
        "fig7-always", "Fig. 7: TimelyLLM above vLLM at every batch size", 1.0, float(ahead), "true", ahead
    )
    best_fixed = max(value[0] for value in curves[FIXED.name])
    report.claim(
        "fig7-timely", "Fig. 7: timely, composed steps instead of a batch size", 1.21, adaptive, "utility",
        adaptive[0] >= max(1.21, best_fixed), f"best fixed batch {best_fixed:.3f}",
    )  # fmt: skip


def figure_8(report: Report, seeds: Sequence[int]) -> None:
    """Figure 8: scheduling algorithms on WID 2, at our number of new tokens and where FCFS is the paper's."""
    for new_tokens in (NEW_TOKENS, 300):
        found: dict[str, tuple[Interval, Interval]] = {}
        for system in (FCFS, EDF, PUD, OURS):
            outcomes = report.runs.outcomes(system, "wid2", seeds, new_tokens=new_tokens)
            found[system.name] = (
                interval([outcome.share["urgent"] for outcome in outcomes]),
                interval([outcome.share["normal"] for outcome in outcomes]),
            )
            for kind, value in zip(("urgent", "normal"), found[system.name], strict=True):
                report.row(f"8 ({new_tokens} new tokens)", system.name, kind, value)
        plots.bars(
            report.out / f"figure-8-algorithms-{new_tokens}.png",
            f"Figure 8: share of the maximum utility, WID 2, {new_tokens} new prompt tokens", ["urgent", "normal"],
            {name: list(values) for name, values in found.items()}, "share of maximum", floor=-1.0,
        )  # fmt: skip
        ours, suffix = found[OURS.name], "" if new_tokens == NEW_TOKENS else f"-{new_tokens}"
        for who, short in ((OURS, "timely"), (PUD, "pud")):
            for system, key, paper in ((FCFS, "fcfs", 1.83), (EDF, "edf", 1.42)):
                best, theirs = found[who.name][0][0], found[system.name][0][0]
                ratio = best / theirs if theirs > 0 else math.inf
                name = f"fig8-{key}" if who is OURS else f"fig8-{key}-{short}"
                report.claim(
                    name + suffix, f"Fig. 8: {short}'s urgent utility over {system.name}'s, {new_tokens} new tokens",
                    paper, ratio, "ratio", ratio >= paper,
                    f"{theirs:.3f} to {best:.3f} of the maximum" + report.holds_from(name, ratio >= paper),
                )  # fmt: skip
        loss = found[FCFS.name][1][0] - ours[1][0]
        report.claim(
            f"fig8-normal{suffix}", f"Fig. 8: normal utility lost against segmented FCFS, {new_tokens} new tokens", 0.0,
            loss, "share", loss <= 0.01, f"{ours[1][0]:.3f} of the maximum",
        )  # fmt: skip


def figure_9(report: Report, seeds: Sequence[int]) -> None:
    """Figure 9: robot arms, WID 3."""
    tasks = {9: "stacking", 10: "desk cleaning", 11: "sorting"}
    for profile in (PROFILE, "timelyllm-4090"):
        utilities: dict[str, list[Interval | None]] = {}
        waits: dict[str, list[Interval | None]] = {}
        for system in (VLLM, STREAM, PUD, OURS):
            outcomes = report.runs.outcomes(system, "wid3", seeds, profile=profile)
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
            outcomes = report.runs.outcomes(system, "chat", seeds, profile=profile, unit=unit)
            utilities[label].append(interval([outcome.utility for outcome in outcomes]))
            waits[label].append(interval([outcome.waiting_s for outcome in outcomes]))
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
    gain, saved = ours[0] - theirs[0], 1.0 - wait[0] / theirs_wait[0]
    needed = _longer_stories(report, seeds, models["Phi3"])
    told = "the paper does not tell how long its stories are"
    report.claim(
        "fig10-utility", "Fig. 10: timely by sentences, gain in utility over vLLM, Phi3", 21.57, gain, "utility",
        gain >= 21.57,
        f"{theirs[0]:.2f} to {ours[0]:.2f}; ours is at its maximum and the rest is how late vLLM is; {told}"
        + ("" if gain >= 21.57 else f": holds where they are {needed[0]:.1f} times ours"),
    )  # fmt: skip
    report.claim(
        "fig10-delay", "Fig. 10: timely by sentences, delay saved, Phi3", 0.96, saved, "share", saved >= 0.96,
        f"{theirs_wait[0]:.2f} s to {wait[0]:.2f} s"
        + ("" if saved >= 0.96 else f"; holds where stories are {needed[1]:.1f} times ours"),
    )  # fmt: skip
    report.claim(
        "fig10-order", "Fig. 10: sentences before paragraphs before vLLM", 1.0,
        float(ours[0] >= para[0] >= theirs[0]), "true", ours[0] >= para[0] >= theirs[0],
    )  # fmt: skip


def _longer_stories(report: Report, seeds: Sequence[int], profile: str) -> tuple[float, float]:
    """How many times as long stories must be for the paper's gain in utility, and for its saved delay."""
    gains, saved = [], []
    for longer in LONGER:
        found = {
            system.name: report.runs.outcomes(
                system, "chat", seeds, profile=profile, unit="sentence", longer=longer
            )
            for system in (VLLM, OURS)
        }
        pairs = list(zip(found[OURS.name], found[VLLM.name], strict=True))
        gain = interval([ours.utility - theirs.utility for ours, theirs in pairs])
        less = interval([1.0 - ours.waiting_s / theirs.waiting_s for ours, theirs in pairs])
        gains.append(gain[0])
        saved.append(less[0])
        report.row("10 gain, Phi3, by length of stories", "timely, sentences", f"{longer:g}", gain)
        report.row("10 delay saved, Phi3, by length of stories", "timely, sentences", f"{longer:g}", less)
        report.claim(
            f"sensitivity-stories-{longer:g}", f"Stories {longer:g} times as long, Phi3: gain in utility over vLLM",
            None, gain, "utility", None, f"delay saved {less[0]:.1%}",
        )  # fmt: skip
    return crossing(LONGER, gains, 21.57), crossing(LONGER, saved, 0.96)


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
    curves: dict[tuple[str, str], list[Interval]] = {}
    for name in ("wid1", "wid2"):
        for system in SYSTEMS:
            values = []
            for new_tokens in SWEEP:
                outcomes = report.runs.outcomes(system, name, seeds, new_tokens=new_tokens)
                value = interval([outcome.share["urgent"] for outcome in outcomes])
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
        at = crossing(SWEEP, [value[0] for value in curves[name, system.name]], paper)
        report.claim(
            f"sensitivity-{short}",
            f"New prompt tokens at which {system.name} has the paper's urgent share of {paper:g}, {name}",
            None, at, "tokens", None, "" if math.isfinite(at) else f"nowhere from {SWEEP[0]} to {SWEEP[-1]}",
        )  # fmt: skip
    _ratios(report, {system.name: [value[0] for value in curves["wid2", system.name]] for system in SYSTEMS})


def _ratios(report: Report, urgent: dict[str, list[float]]) -> None:
    """Ratios of urgent utility on WID 2 along ``SWEEP``, and from where on they are what the paper says."""
    for name, ours, theirs, paper, what in (
        ("fig5d-pud", PUD, VLLM, 2.91, "Fig. 5d"), ("fig5d-timely", OURS, VLLM, 2.91, "Fig. 5d"),
        ("fig8-fcfs-pud", PUD, FCFS, 1.83, "Fig. 8"), ("fig8-fcfs", OURS, FCFS, 1.83, "Fig. 8"),
        ("fig8-edf-pud", PUD, EDF, 1.42, "Fig. 8"), ("fig8-edf", OURS, EDF, 1.42, "Fig. 8"),
    ):  # fmt: skip
        ratios = [
            a / b if b > 0.05 else math.nan
            for a, b in zip(urgent[ours.name], urgent[theirs.name], strict=True)
        ]
        at = report.crossings[name] = crossing(SWEEP, ratios, paper)
        told = ", ".join(
            f"{x}: {ratio:.2f}" for x, ratio in zip(SWEEP, ratios, strict=True) if math.isfinite(ratio)
        )
        report.claim(
            f"sensitivity-{name}",
            f"New prompt tokens from which {ours.name} has {paper:g} times {theirs.name}'s urgent utility ({what})",
            None, at, "tokens", None, f"ratio by new tokens: {told or 'the other has nothing left'}",
        )  # fmt: skip


def ablation(report: Report, seeds: Sequence[int]) -> None:
    """Ideas of ``timely`` added one by one, and each alone, WID 2 with 100 and 400 new prompt tokens."""
    for new_tokens in (NEW_TOKENS, 400):
        found: dict[str, list[Interval | None]] = {}
        for number, system in enumerate((*ADDED, *ALONE)):
            outcomes = report.runs.outcomes(system, "wid2", seeds, new_tokens=new_tokens)
            kinds = ("urgent", "normal")
            found[system.name] = [interval([outcome.share[kind] for outcome in outcomes]) for kind in kinds]
            waits = interval([outcome.waiting_s for outcome in outcomes])
            for kind, value in zip(kinds, found[system.name], strict=True):
                if value is not None:
                    report.row(f"ablation, {new_tokens} new tokens", system.name, kind, value)
                    report.claim(
                        f"ablation-{new_tokens}-{number}-{kind}",
                        f"Ablation, {new_tokens} new tokens: {system.name}, {kind} share of the maximum", None, value,
                        "share", None, f"waiting {waits[0]:.3f} s",
                    )  # fmt: skip
        for name, systems in (("ablation", ADDED), ("ablation-each", (*ALONE, ADDED[-1]))):
            shown = {system.name: found[system.name] for system in systems}
            plots.bars(
                report.out / f"{name}-{new_tokens}.png",
                f"Ablation: share of the maximum, WID 2, {new_tokens} new prompt tokens", ["urgent", "normal"], shown,
                "share of maximum", floor=-1.0,
            )  # fmt: skip


def bounds(report: Report, seeds: Sequence[int]) -> None:
    """How far ``timely`` is from what no schedule can beat."""
    for new_tokens in (NEW_TOKENS, 400):
        outcomes = report.runs.outcomes(OURS, "wid2", seeds, new_tokens=new_tokens)
        ours = interval([outcome.utility for outcome in outcomes])
        solo = interval(report.runs.alone(seeds, new_tokens))
        report.claim(
            f"bound-alone-{new_tokens}", f"timely of the bound 'every task alone', WID 2, {new_tokens} new tokens",
            None, ours[0] / solo[0], "share", None, f"{ours[0]:.3f} of {solo[0]:.3f}",
        )  # fmt: skip
        possible, reached, theirs = (
            math.fsum(column) for column in zip(*report.runs.bursts(seeds[:3], new_tokens), strict=True)
        )
        report.claim(
            f"bound-clairvoyant-{new_tokens}",
            f"timely of the clairvoyant bound, single events of WID 2, {new_tokens} new tokens", None,
            reached / possible if possible > 0 else math.nan, "share", None,
            f"{reached:.1f} of {possible:.1f}; TimelyLLM's algorithm {theirs:.1f}",
        )  # fmt: skip
