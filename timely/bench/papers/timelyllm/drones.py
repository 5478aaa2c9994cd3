"""TimelyLLM on drones (sections 7.2 and 7.3): Figures 5 to 8, predicted at each calibrated number of new tokens."""

from collections.abc import Iterator, Sequence

from timely.bench.papers import plots
from timely.bench.papers.claims import BY_CONSTRUCTION, Claim, PaperRule, paper_claim
from timely.bench.papers.seed_statistics import Interval, paper_interval, paper_mean, paper_ratio_of_means
from timely.bench.papers.timelyllm.report import (
    PaperReport,
    paper_difference,
    paper_shares,
    paper_values_by_type,
)
from timely.bench.papers.timelyllm.runs import (
    EDF,
    FCFS,
    FIXED_BATCH,
    PUD,
    STREAM,
    TIMELY,
    VLLM,
    PaperOutcome,
    paper_run_records,
)
from timely.engines.replay_types import JobRecord

BATCHES = (1, 2, 4, 6, 8, 10, 12, 14, 16)
TASK_IDS = tuple(range(1, 9))

BRIEF_TASK = 2
"""The paper's task type 1, counted from 0: its skills are over before the next segment can be there (section 7.2)."""

CONSISTENT_TASKS = tuple(number for number in TASK_IDS if number != BRIEF_TASK)
"""Task types whose waiting the paper finds nearly equal to their response (Fig. 5c)."""


def _paper_figure_part(label: str, new_tokens: int) -> str:
    return f"{new_tokens} new tokens, calibrated on {'vLLM' if label == 'vllm' else 'segmented FCFS'}"


def paper_figure_5(report: PaperReport, label: str, new_tokens: int) -> Iterator[Claim]:
    """Figure 5: utility, response and waiting by task type, WID 1 (low) and WID 2 (high)."""
    outcomes: dict[tuple[str, str], list[PaperOutcome]] = {}
    for load, name in (("LW", "wid1"), ("HW", "wid2")):
        for system in (VLLM, STREAM, PUD, TIMELY):
            outcomes[load, system.name] = report.outcomes(system, name, new_tokens=new_tokens)
        for measure in ("utility", "response", "waiting"):
            values: dict[str, list[Interval | None]] = {}
            for system in (VLLM, STREAM, PUD, TIMELY):
                row = [
                    paper_interval(paper_values_by_type(outcomes[load, system.name], n, measure))
                    for n in TASK_IDS
                ]
                values[system.name] = list(row)
                for number, value in zip(TASK_IDS, row, strict=True):
                    report.row(f"5 {measure} {load}, {new_tokens}", system.name, f"task {number}", value)
            plots.paper_bars(
                report.out / f"figure-5-{measure}-{load}-{label}.png",
                f"Figure 5: {measure}, {load}, {new_tokens} new tokens (ids 1-5 normal, 6-8 urgent)",
                [str(number) for number in TASK_IDS], values, measure, floor=-2.0,
            )  # fmt: skip
    yield from _paper_figure_5_claims(report, label, new_tokens, outcomes)


def _paper_figure_5_claims(
    report: PaperReport, label: str, new_tokens: int, outcomes: dict[tuple[str, str], list[PaperOutcome]]
) -> Iterator[Claim]:
    where = _paper_figure_part(label, new_tokens)
    low, low_vllm = outcomes["LW", PUD.name], outcomes["LW", VLLM.name]
    high, high_vllm = outcomes["HW", PUD.name], outcomes["HW", VLLM.name]
    yield paper_claim(
        f"fig5a-pud-{label}", f"Fig. 5a: urgent share of the maximum, low load; {where}", 0.815,
        paper_interval(paper_shares(low)), "share", PaperRule.near(0.815, neutral=0.595),
        f"vLLM {paper_interval(paper_shares(low_vllm))[0]:.3f} (paper 0.595)",
    )  # fmt: skip
    yield paper_claim(
        f"fig5a-normal-{label}", f"Fig. 5a: normal tasks keep the maximum, low load; {where}", 1.0,
        paper_interval(paper_shares(low, "normal")), "share", PaperRule.at_least(0.995),
    )  # fmt: skip
    gain = paper_ratio_of_means(paper_shares(high), paper_shares(high_vllm))
    begin, end = paper_interval(paper_shares(high_vllm))[0], paper_interval(paper_shares(high))[0]
    yield paper_claim(
        f"fig5d-pud-{label}", f"Fig. 5d: gain in urgent utility over vLLM, high load; {where}", 1.91,
        (gain[0] - 1.0, gain[1] - 1.0, gain[2] - 1.0), "of vLLM's", PaperRule.near(1.91, neutral=0.0),
        f"{begin:.3f} to {end:.3f} of the maximum",
    )  # fmt: skip
    for load, mine, theirs, letter in (("low", low, low_vllm, "b"), ("high", high, high_vllm, "e")):
        yield paper_claim(
            f"fig5{letter}-{label}", f"Fig. 5{letter}: response of urgent tasks over vLLM's, {load} load; {where}",
            None, paper_ratio_of_means(_paper_urgent_response(mine), _paper_urgent_response(theirs)),
            "ratio", PaperRule.below(1.0),
        )  # fmt: skip
    for key, kind, ids, rule in (
        ("most", f"all task types but {BRIEF_TASK}", CONSISTENT_TASKS, PaperRule.near(1.0)),
        (
            "brief",
            f"task type {BRIEF_TASK}, whose skills take about a millisecond",
            (BRIEF_TASK,),
            BY_CONSTRUCTION,
        ),
    ):
        yield paper_claim(
            f"fig5c-{key}-{label}", f"Fig. 5c: waiting over response, {kind}, low load ('nearly consistent'); {where}",
            1.0 if key == "most" else None,
            paper_ratio_of_means(_paper_means_by_types(low, ids, 2), _paper_means_by_types(low, ids, 1)), "ratio", rule,
            "the paper excepts its task type 1, which only prints" if key == "most" else
            "the paper: 'we observe additional LLM planning time in task type 1'",
        )  # fmt: skip


def _paper_urgent_response(outcomes: Sequence[PaperOutcome]) -> list[float]:
    return [outcome.response_s["urgent"] for outcome in outcomes]


def _paper_means_by_types(outcomes: Sequence[PaperOutcome], ids: Sequence[int], column: int) -> list[float]:
    """Mean over these task types of their response (column 1) or waiting (2), seconds."""
    return [paper_mean([o.types[number][column] for number in ids if number in o.types]) for o in outcomes]


def paper_figure_6(report: PaperReport, label: str, new_tokens: int) -> Iterator[Claim]:
    """Figure 6: an urgent and a normal task of one event, under vLLM and under TimelyLLM."""
    in_time = [
        share
        for share in report.evaluation.each("pairs", _measure_paper_pairs, new_tokens)
        if share is not None
    ]
    _plot_first_paper_pair(report, label, new_tokens)
    yield paper_claim(
        f"fig6-{label}",
        f"Fig. 6: pairs with the urgent task late under vLLM that are both in time; "
        f"{_paper_figure_part(label, new_tokens)}", 1.0,
        paper_interval(in_time), "share", PaperRule.at_least(0.5, neutral=0.0), "the paper shows one such pair",
    )  # fmt: skip


def _paper_collision_pairs(
    new_tokens: int, seed: int
) -> tuple[dict[str, list[JobRecord]], list[tuple[int, int]]]:
    """The records of vLLM and of TimelyLLM, and the pairs whose urgent task was late under vLLM."""
    runs = {
        system.name: paper_run_records(system, "wid2", seed, new_tokens=new_tokens)[0]
        for system in (VLLM, PUD)
    }
    return runs, _paper_collisions(runs[VLLM.name])


def _measure_paper_pairs(new_tokens: int, seed: int) -> float | None:
    """Share of the pairs of which TimelyLLM serves both in time; None where there is no pair."""
    runs, pairs = _paper_collision_pairs(new_tokens, seed)
    pud = runs[PUD.name]
    return (
        paper_mean(
            [float(_is_paper_record_on_time(pud[a]) and _is_paper_record_on_time(pud[b])) for a, b in pairs]
        )
        if pairs
        else None
    )


def _plot_first_paper_pair(report: PaperReport, label: str, new_tokens: int) -> None:
    if not plots.can_plot_papers():
        return
    runs, pairs = _paper_collision_pairs(new_tokens, report.evaluation.seeds[0])
    if pairs:
        _plot_paper_pair(report, label, pairs[0], runs)


def _is_paper_record_on_time(record: JobRecord) -> bool:
    return record.response_time_s <= record.task.hints.utility.ert_s + 1e-9


def _paper_collisions(records: Sequence[JobRecord]) -> list[tuple[int, int]]:
    """A normal and an urgent task of the same event, for each urgent task that was late."""
    normal = {r.task.arrival_s: place for place, r in enumerate(records) if not r.task.hints.utility.urgent}
    return [
        (normal[record.task.arrival_s], place)
        for place, record in enumerate(records)
        if record.task.hints.utility.urgent
        and not _is_paper_record_on_time(record)
        and record.task.arrival_s in normal
    ]


def _plot_paper_pair(
    report: PaperReport, label: str, pair: tuple[int, int], runs: dict[str, list[JobRecord]]
) -> None:
    rows = [
        (f"{name}, {kind}", _paper_spans(records[place]))
        for name, records in runs.items()
        for place, kind in ((pair[1], "urgent"), (pair[0], "normal"))
    ]
    plots.paper_timeline(
        report.out / f"figure-6-pair-{label}.png", "Figure 6: a normal and an urgent task of one event", rows[::-1],
        {"ERT urgent": 0.2, "ERT normal": 1.0},
    )  # fmt: skip


def _paper_spans(record: JobRecord) -> list[tuple[float, float, str]]:
    begin_s, window_s = record.task.arrival_s, 1.6
    spans = [(0.0, record.admitted_s - begin_s, "queued")]
    spans.append((record.admitted_s - begin_s, record.ready_s[0] - begin_s, "generating"))
    for start_s, end_s in zip(record.start_s, record.end_s, strict=True):
        if start_s - begin_s < window_s:
            spans.append((start_s - begin_s, min(end_s - begin_s, window_s), "executing"))
    return spans


def paper_figure_7(report: PaperReport, label: str, new_tokens: int) -> Iterator[Claim]:
    """Figure 7: mean utility against a fixed batch size, WID 2."""
    values: dict[str, list[list[float]]] = {}
    for system in (VLLM, FIXED_BATCH):
        values[system.name] = [
            [
                outcome.utility
                for outcome in report.outcomes(system, "wid2", new_tokens=new_tokens, max_batch=batch)
            ]
            for batch in BATCHES
        ]
        for batch, row in zip(BATCHES, values[system.name], strict=True):
            report.row(f"7, {new_tokens}", system.name, str(batch), paper_interval(row))
    plots.paper_line_plot(
        report.out / f"figure-7-batch-{label}.png", "Figure 7: mean utility against the batch size, WID 2", BATCHES,
        {name: [paper_interval(row) for row in rows] for name, rows in values.items()}, "batch size", "mean utility",
        paper={"paper: TimelyLLM": (6, 1.21), "paper: vLLM": (12, 0.74)}, floor=-2.0,
    )  # fmt: skip
    where = _paper_figure_part(label, new_tokens)
    for system, key, paper, at, neutral in (
        (FIXED_BATCH, "pud", 1.21, 6, 0.74),
        (VLLM, "vllm", 0.74, 12, None),
    ):
        means = [paper_interval(row) for row in values[system.name]]
        best = max(range(len(BATCHES)), key=lambda place: means[place][0])
        yield paper_claim(
            f"fig7-{key}-{label}", f"Fig. 7: best mean utility over batch sizes, {system.name}; {where}", paper,
            means[best], "utility", PaperRule.near(paper, neutral), f"at batch {BATCHES[best]}, the paper's at {at}",
        )  # fmt: skip
    leads = [paper_difference(a, b) for a, b in zip(values[FIXED_BATCH.name], values[VLLM.name], strict=True)]
    yield paper_claim(
        f"fig7-always-{label}", f"Fig. 7: least lead of TimelyLLM over vLLM over the batch sizes; {where}", None,
        min(leads, key=lambda lead: lead[0]), "utility", PaperRule.above(0.0),
    )  # fmt: skip


def paper_figure_8(report: PaperReport, label: str, new_tokens: int) -> Iterator[Claim]:
    """Figure 8: scheduling algorithms on WID 2."""
    outcomes = {
        system.name: report.outcomes(system, "wid2", new_tokens=new_tokens)
        for system in (FCFS, EDF, PUD, TIMELY)
    }
    urgent = {name: paper_shares(values) for name, values in outcomes.items()}
    normal = {name: paper_shares(values, "normal") for name, values in outcomes.items()}
    plots.paper_bars(
        report.out / f"figure-8-algorithms-{label}.png",
        f"Figure 8: share of the maximum utility, WID 2, {new_tokens} new prompt tokens", ["urgent", "normal"],
        {name: [paper_interval(urgent[name]), paper_interval(normal[name])] for name in outcomes}, "share of maximum",
        floor=-1.0,
    )  # fmt: skip
    where = _paper_figure_part(label, new_tokens)
    for mine, theirs, key, paper in (
        (PUD, FCFS, "fcfs", 1.83), (PUD, EDF, "edf", 1.42), (EDF, FCFS, "edf-fcfs", 1.83 / 1.42),
    ):  # fmt: skip
        yield paper_claim(
            f"fig8-{key}-{label}", f"Fig. 8: urgent utility of {mine.name} over {theirs.name}; {where}", paper,
            paper_ratio_of_means(urgent[mine.name], urgent[theirs.name]), "ratio", PaperRule.near(paper,
            neutral=1.0),
            f"{paper_interval(urgent[theirs.name])[0]:.3f} to"
            f" {paper_interval(urgent[mine.name])[0]:.3f} of the maximum",
        )  # fmt: skip
    yield paper_claim(
        f"fig8-normal-{label}", f"Fig. 8: normal utility lost against segmented FCFS; {where}", 0.0,
        paper_difference(normal[FCFS.name], normal[PUD.name]), "share", PaperRule.at_most(0.01),
        f"normal: TimelyLLM {paper_interval(normal[PUD.name])[0]:.3f}, EDF {paper_interval(normal[EDF.name])[0]:.3f}",
    )  # fmt: skip
    yield paper_claim(
        f"fig8-edf-normal-{label}", f"Fig. 8: EDF neglects normal tasks: its loss against TimelyLLM; {where}", None,
        paper_difference(normal[PUD.name], normal[EDF.name]), "share", PaperRule.at_least(0.01, neutral=0.0),
    )  # fmt: skip
