"""Semantic scheduling's evaluation in the simulator: its figures, its tables and its claims, on its own machines.

Machines are those of appendix B. What the paper leaves open is taken from the simulation that its authors published
with it: 20 points of arrival ``gap`` seconds apart, at each 0 to ``C`` requests with all counts alike; urgency uniform
over five levels; prompt and output uniform over 1 to 499 tokens; lengths predicted in ten buckets of 50 tokens; a batch
of 16, but of 12 for the three baselines; and all disciplines on the same stage-aware, preemptive batches (Alg. 2), so
that only the order differs. So three comparisons are made:

* ``published``: every order on Alg. 2, the baselines with 12 places where semantic has 16, as published;
* ``equal``: every order on Alg. 2 with 16 places;
* ``plain``: the baselines as a serving engine has them, non-preemptive with chunked prompts beside decoding, 16 places.

Normalized waiting time is "the average waiting time per generated token". *Pooled* is all waiting over all tokens,
*each* the mean over requests of a request's own; ratios depend on which. A request waits from its arrival at the
predictor until its last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from timely.bench.papers import plots
from timely.bench.papers.old_claims import Claim, claim, interval, mean, over_seeds
from timely.bench.papers.run_context import Evaluation
from timely.core.errors import EngineFailed
from timely.core.hints import RequestHints
from timely.core.job import JobTable
from timely.disciplines.base import Discipline, Floats, Rows, StepLimits
from timely.disciplines.predictors.batching import PredictionStage, ready_times
from timely.disciplines.predictors.error_injection import mistaken_levels, mistaken_tokens
from timely.disciplines.registry import create
from timely.disciplines.semantic.discipline import Semantic, SemanticMixed
from timely.engines.replay_types import PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_profile

POINTS = 20
LEVELS = 5
LONGEST = 499
BUCKET = 50.0
PLACES = 16
PUBLISHED_PLACES = 12

MACHINES = {"A100-4B": "a100-qwen1.5-4b", "A100-7B": "a100-qwen1.5-7b", "A5000-7B": "a5000-qwen1.5-7b"}
MAIN = "A100-4B"
CONCURRENCY = (5, 10, 20, 50, 100)
MOST = 100
"""Of the headline."""
BASELINES = ("hpjf", "sjf", "fcfs")
HEADLINE = {"hpjf": 1.7, "sjf": 6.1, "fcfs": 8.7}
"""Times faster for urgency 0, gap 0.1 s, up to 100 at once (section 4.1)."""

RATES = (0.1, 0.3, 0.5, 0.7, 0.9)
LOADED = 20
"""Concurrency of the experiments on errors: without contention no order matters; with this levels lie as in Fig. 2."""

LATENCIES = {0.001: 4, 0.01: 16, 0.1: 32, 1.0: 64}
"""Of the predictor, seconds; and the concurrency that the published script of Table 1 gives with each."""
BATCHES = (4, 16, 32, 64)

Levels = list[float]
"""Normalized waiting of urgency 0..4 and of all, pooled, then the same as means over requests, seconds a token."""


class Known(Semantic):
    """The discipline with the profile's own step times, as the paper has them: they do not wobble."""

    clearly = 1.0


class KnownMixed(SemanticMixed):
    """The same without Alg. 2."""

    clearly = 1.0


class _Order(Known):
    """Another order on the paper's batches: stage-aware and preemptive, as its published baselines are."""


class StagedHpjf(_Order):
    """By urgency level, then by arrival."""

    def order(self, table: JobTable, rows: Rows, limits: StepLimits) -> tuple[Rows, Floats]:
        """See ``Semantic.order``."""
        level, _ = super().order(table, rows, limits)
        return level, table.sequence[rows].astype(np.float64)


class StagedSjf(_Order):
    """By estimated time left, whatever the urgency."""

    def order(self, table: JobTable, rows: Rows, limits: StepLimits) -> tuple[Rows, Floats]:
        """See ``Semantic.order``."""
        _, left = super().order(table, rows, limits)
        return np.zeros(len(rows), dtype=np.int64), left


class StagedFcfs(_Order):
    """By arrival."""

    def order(self, table: JobTable, rows: Rows, limits: StepLimits) -> tuple[Rows, Floats]:
        """See ``Semantic.order``."""
        return np.zeros(len(rows), dtype=np.int64), table.sequence[rows].astype(np.float64)


ON_BATCHES: dict[str, type[Semantic]] = {
    "semantic": Known,
    "semantic-mixed": KnownMixed,
    "staged-hpjf": StagedHpjf,
    "staged-sjf": StagedSjf,
    "staged-fcfs": StagedFcfs,
}


def make(system: str) -> Discipline:
    """A discipline by its registered name; ``staged-NAME`` is a baseline on Alg. 2."""
    return ON_BATCHES[system]() if system in ON_BATCHES else create(system)


def spikes(seed: int, concurrency: int, gap_s: float) -> list[PlannedTask]:
    """The workload, in order of arrival; lengths are predicted to the nearest bucket below or above."""
    rng = np.random.default_rng([seed, concurrency, round(1000 * gap_s)])
    tasks: list[PlannedTask] = []
    for point in range(POINTS):
        for _ in range(int(rng.integers(0, concurrency + 1))):
            tokens = int(rng.integers(1, LONGEST + 1))
            bucket = np.ceil(tokens / BUCKET) if rng.random() < 0.5 else np.floor(tokens / BUCKET)
            tasks.append(
                PlannedTask(
                    job=len(tasks),
                    arrival_s=point * gap_s,
                    plan=(PlannedSegment("", tokens, 0.0),),
                    prompt_tokens=int(rng.integers(1, LONGEST + 1)),
                    hints=RequestHints(
                        urgency=int(rng.integers(LEVELS)), expected_tokens=max(1.0, float(bucket * BUCKET))
                    ),
                    max_tokens=LONGEST + 1,
                )
            )
    return tasks


def with_predictions(
    tasks: Sequence[PlannedTask],
    levels: Sequence[int] | None = None,
    lengths: Sequence[float] | None = None,
    ready_s: Sequence[float] | None = None,
) -> list[PlannedTask]:
    """The tasks as the scheduler sees them: predicted levels and lengths, and at the queue when that is done."""
    seen = [
        replace(
            task,
            hints=replace(
                task.hints,
                urgency=task.hints.urgency if levels is None else levels[place],
                expected_tokens=task.hints.expected_tokens if lengths is None else lengths[place],
            ),
            arrival_s=task.arrival_s if ready_s is None else ready_s[place],
        )
        for place, task in enumerate(tasks)
    ]
    return sorted(seen, key=lambda task: task.arrival_s)


def waiting(
    tasks: Sequence[PlannedTask],
    discipline: Discipline,
    machine: str = MAIN,
    places: int = PLACES,
    seen: Sequence[PlannedTask] | None = None,
) -> Levels:
    """Serve ``seen`` (the tasks themselves unless given) and measure by the tasks' true arrivals and levels."""
    options = ReplayOptions(mode="whole", journal=False, max_batch=places, learned_speed=False)
    run = Simulator(options, load_profile(MACHINES[machine]), discipline=discipline).run(seen or tasks)
    waited, tokens, each = ([0.0] * (LEVELS + 1) for _ in range(3))
    counts = [0] * (LEVELS + 1)
    truth = {task.job: task for task in tasks}
    for record in run.records:
        task = truth[record.task.job]
        if record.outcome != "complete" or task.hints.urgency is None:
            raise EngineFailed(f"job {task.job} was not served: {record.outcome} {record.note}")
        latency_s = record.last_token_s - task.arrival_s
        for place in (task.hints.urgency, LEVELS):
            waited[place] += latency_s
            tokens[place] += task.output_tokens
            each[place] += latency_s / task.output_tokens
            counts[place] += 1
    pooled = [w / max(1.0, t) for w, t in zip(waited, tokens, strict=True)]
    return pooled + [e / max(1, c) for e, c in zip(each, counts, strict=True)]


# ---------------------------------------------------------------------- pieces of the evaluation


def _spike(machine: str, gap_s: float, concurrency: int, system: str, places: int, seed: int) -> Levels:
    return waiting(spikes(seed, concurrency, gap_s), make(system), machine, places)


def _urgent_alone(concurrency: int, seed: int) -> Levels:
    """Only the requests of level 0, on an otherwise idle machine: nobody can serve them sooner."""
    tasks = [task for task in spikes(seed, concurrency, 0.1) if task.hints.urgency == 0]
    return waiting(tasks, make("semantic-mixed"))


def _wrong_levels(rate: float, seed: int) -> Levels:
    tasks = spikes(seed, LOADED, 0.1)
    levels = mistaken_levels(
        [task.hints.urgency or 0 for task in tasks], rate, np.random.default_rng([seed, 1])
    )
    return waiting(tasks, make("semantic"), seen=with_predictions(tasks, levels=levels))


def _wrong_lengths(rate: float, seed: int) -> Levels:
    tasks = spikes(seed, LOADED, 0.1)
    known = [task.hints.expected_tokens or 1.0 for task in tasks]
    lengths = mistaken_tokens(known, rate, np.random.default_rng([seed, 2]), most=LONGEST + 1.0)
    return waiting(tasks, make("semantic"), seen=with_predictions(tasks, lengths=lengths))


def _predicted(latency_s: float, batch: int, batching: str, concurrency: int, seed: int) -> Levels:
    """A predictor in front. A batch that does not fill is taken after two seconds, when nobody comes any more."""
    tasks = spikes(seed, concurrency, 0.1)
    stage: PredictionStage[int] = PredictionStage(latency_s, batch, batching, max_wait_s=2.0)  # type: ignore[arg-type]
    ready_s = ready_times([task.arrival_s for task in tasks], stage)
    return waiting(tasks, make("semantic"), seen=with_predictions(tasks, ready_s=ready_s))


# ---------------------------------------------------------------------- claims


def run(given: Evaluation) -> list[Claim]:
    """Reproduce the evaluation: plots are drawn, claims come back."""
    return [
        *_headline(given),
        *_figures_2cd_and_4(given),
        *_figure_2a(given),
        *_figure_2b(given),
        *_table_1(given),
        *_table_2(given),
        claim(
            "fig3",
            "the real dataset (Fig. 3 and 5): urgency 0 against FCFS, at most",
            167.3,
            None,
            "times faster",
            None,
            "not reproduced: the 1,000 emergency conversations are not public. 6.69 s a token at five requests at once"
            " is 500 times what the profile of appendix B gives, so something other than the model was waited for",
        ),
    ]


def _column(runs: Sequence[Levels], level: int, each: bool = False) -> list[float]:
    return [run[level + (LEVELS + 1) * each] for run in runs]


def _ratio(other: Sequence[Levels], mine: Sequence[Levels], each: bool = False, level: int = 0) -> float:
    """Mean over seeds of the other's waiting over the mean of ours."""
    return mean(_column(other, level, each)) / mean(_column(mine, level, each))


def _headline(given: Evaluation) -> list[Claim]:
    """Fig. 2c at 100: 1.7, 6.1 and 8.7 times faster for the most urgent."""

    def runs(system: str, places: int = PLACES) -> list[Levels]:
        return given.each("spike", _spike, MAIN, 0.1, MOST, system, places)

    mine, mixed = runs("semantic"), runs("semantic-mixed")
    alone = given.each("urgent-alone", _urgent_alone, MOST)
    found = [
        claim(
            "fig2c.semantic",
            "normalized waiting of urgency 0 under semantic, gap 0.1 s, up to 100 at once",
            0.08,
            mean(_column(mine, 0, each=True)),
            "s a token",
            mean(_column(mine, 0, each=True)) <= 0.085,
            f"each {over_seeds(_column(mine, 0, each=True), 4)}; pooled {mean(_column(mine, 0)):.3f}; with"
            f" semantic-mixed {mean(_column(mixed, 0, each=True)):.3f} and {mean(_column(mixed, 0)):.3f}; the urgent"
            f" alone on the machine {mean(_column(alone, 0, each=True)):.3f} and {mean(_column(alone, 0)):.3f}",
        )
    ]
    fluid = {"hpjf": 1.5, "sjf": 5.0, "fcfs": 7.5}
    for name, paper in HEADLINE.items():
        staged, fewer = runs(f"staged-{name}"), runs(f"staged-{name}", PUBLISHED_PLACES)
        plain = runs(name)
        ours = {"published": fewer, "equal": staged, "plain": plain}
        given.say(
            f"spikes, {name}: "
            + ", ".join(
                f"{k} {_ratio(v, mine):.2f} (each {_ratio(v, mine, True):.2f})" for k, v in ours.items()
            )
        )
        found.append(
            claim(
                f"fig2c.{name}",
                f"urgency 0: semantic faster than {name}, terms as published (16 places, the baseline 12)",
                paper,
                _ratio(fewer, mine),
                "times",
                _ratio(fewer, mine) >= paper,
                f"pooled; as means over requests {_ratio(fewer, mine, True):.1f}; by seed"
                f" {over_seeds([b / a for a, b in zip(_column(mine, 0), _column(fewer, 0), strict=True)], 2)}. In a"
                f" fluid without arrivals' spread {fluid[name] * PLACES / PUBLISHED_PLACES:.1f}",
            )
        )
        found.append(
            claim(
                f"fig2c.{name}.equal",
                f"the same with 16 places for {name} too",
                paper,
                _ratio(staged, mine),
                "times",
                _ratio(staged, mine) >= paper,
                f"pooled; as means over requests {_ratio(staged, mine, True):.1f}. In a fluid {fluid[name]:.1f}: a"
                " fifth of the work is level 0, and shortest first among uniform lengths ends after a third of it on"
                " average, first come first served after half",
            )
        )
        found.append(
            claim(
                f"fig2c.{name}.plain",
                f"the same against {name} without Alg. 2 (prompts in chunks beside decoding)",
                paper,
                _ratio(plain, mine),
                "times",
                _ratio(plain, mine) >= paper,
                f"pooled; as means over requests {_ratio(plain, mine, True):.1f}. Alg. 2 leaves places empty while the"
                f" most important decodes; semantic-mixed, without it: {_ratio(plain, mixed):.2f} and"
                f" {_ratio(plain, mixed, True):.1f}; nobody can exceed {_ratio(plain, alone):.2f} and"
                f" {_ratio(plain, alone, True):.1f} (the urgent alone on the machine)",
            )
        )
    return found


def _figures_2cd_and_4(given: Evaluation) -> list[Claim]:
    """Waiting of urgency 0 over concurrency, for both gaps and all machines."""
    paper = {
        (MAIN, 0.1): (0.08, 8.7),
        (MAIN, 1.0): (None, 9.1),
        ("A100-7B", 0.1): (0.18, 6.5),
        ("A100-7B", 1.0): (0.16, 6.6),
        ("A5000-7B", 0.1): (0.37, 6.8),
        ("A5000-7B", 1.0): (0.32, 7.0),
    }
    found: list[Claim] = []
    for (machine, gap_s), (waited, faster) in paper.items():
        steps = CONCURRENCY if machine == MAIN else CONCURRENCY[::2]
        cells: dict[str, list[list[Levels]]] = {}
        for system in ("semantic", *(f"staged-{name}" for name in BASELINES)):
            cells[system] = [given.each("spike", _spike, machine, gap_s, c, system, PLACES) for c in steps]
        figure = "fig2c" if (machine, gap_s) == (MAIN, 0.1) else "fig2d" if machine == MAIN else "fig4"
        plots.lines(
            given.out / f"{figure}_{machine}_gap{gap_s:g}.png",
            f"Semantic {figure}: urgency 0, {machine}, gap {gap_s:g} s",
            steps,
            {
                system.removeprefix("staged-"): [interval(_column(cell, 0)) for cell in row]
                for system, row in cells.items()
            },
            "most requests at once",
            "normalized waiting, s a token",
        )
        mine = cells["semantic"]
        top = max(
            _ratio(cell, mine[place])
            for name in BASELINES
            for place, cell in enumerate(cells[f"staged-{name}"])
        )
        most = max(mean(_column(cell, 0, each=True)) for cell in mine)
        given.say(f"{figure} {machine} gap {gap_s:g}: up to {most:.3f} s, {top:.1f} times")
        if figure == "fig2c":
            continue
        found.append(
            claim(
                f"{figure}.{machine}.gap{gap_s:g}",
                f"urgency 0 faster than all baselines, at most over concurrency ({machine}, gap {gap_s:g} s)",
                faster,
                top,
                "times",
                top >= faster,
                f"pooled, 16 places for all. Waiting up to {most:.3f} s a token as mean over requests"
                + (f" (paper {waited})" if waited else ""),
            )
        )
    return found


def _figure_2a(given: Evaluation) -> list[Claim]:
    cells = [given.each("wrong-levels", _wrong_levels, rate) for rate in RATES]
    _errors_plot(given.out / "fig2a.png", "Semantic Fig2a: errors of the urgency predictor", cells)
    slower = [_ratio(cells[-1], cells[0], True, level) for level in range(LEVELS + 1)]
    given.say("wrong levels: " + ", ".join(f"{s:.2f}" for s in slower))
    values = [
        [mean(_column(cell, level, True)) for cell in (cells[0], cells[-1])] for level in range(LEVELS + 1)
    ]
    note = "at rates 0.1 and 0.9: " + ", ".join(
        f"{'all' if level == LEVELS else level} {a:.3f} and {b:.3f} s" for level, (a, b) in enumerate(values)
    )
    return [
        claim(
            "fig2a.urgency0", "urgency 0 slower at a level error of 0.9 than at 0.1", 3.5, slower[0], "times",
            slower[0] > 1.0, note + f" (up to {LOADED} at once); holds means slower",
        ),
        claim(
            "fig2a.urgency1", "urgency 1 slower at a level error of 0.9 than at 0.1", 7.3, slower[1], "times",
            slower[1] > 1.0, "holds means slower",
        ),
        claim(
            "fig2a.all", "all requests at a level error of 0.9 over 0.1 ('slightly decreases')", 0.92,
            slower[LEVELS], "ratio", slower[LEVELS] <= 1.05, "holds means no more than 5% up",
        ),
    ]  # fmt: skip


def _figure_2b(given: Evaluation) -> list[Claim]:
    cells = [given.each("wrong-lengths", _wrong_lengths, rate) for rate in RATES]
    _errors_plot(given.out / "fig2b.png", "Semantic Fig2b: errors of the length predictor", cells)
    slower = [_ratio(cells[-1], cells[0], True, level) for level in range(LEVELS + 1)]
    given.say("wrong lengths: " + ", ".join(f"{s:.2f}" for s in slower))
    paper = (1.0, 0.04 / 0.03, 0.11 / 0.08, 0.21 / 0.18, 0.33 / 0.30)
    return [
        claim(
            f"fig2b.urgency{level}",
            f"urgency {level} slower at a length error of 0.9 than at 0.1",
            paper[level],
            slower[level],
            "times",
            slower[level] > 1.0 if level else abs(slower[level] - 1.0) < 0.5,
            f"{mean(_column(cells[0], level, True)):.3f} and {mean(_column(cells[-1], level, True)):.3f} s a token;"
            f" pooled {_ratio(cells[-1], cells[0], False, level):.2f} times; holds means "
            + ("slower" if level else "within a half ('consistently around 0.01 s')"),
        )
        for level in range(LEVELS)
    ]


def _errors_plot(path: Path, title: str, cells: Sequence[Sequence[Levels]]) -> None:
    names = [f"urgency {level}" for level in range(LEVELS)] + ["all"]
    plots.lines(
        path,
        title,
        RATES,
        {
            name: [interval(_column(cell, level, each=True)) for cell in cells]
            for level, name in enumerate(names)
        },
        "error rate",
        "normalized waiting, s a token",
    )


def _table_1(given: Evaluation) -> list[Claim]:
    """Predictor latency, batches of 64: at the caption's concurrency, and at that of the published script."""

    def cells(batching: str, *, scripted: bool) -> list[list[Levels]]:
        # The script also makes a call of the predictor cost a tenth of its latency for each place in the batch.
        return [
            given.each(
                "predicted",
                _predicted,
                latency * (6.4 if scripted else 1.0),
                64,
                batching,
                many if scripted else 5,
            )
            for latency, many in LATENCIES.items()
        ]

    captioned = {batching: cells(batching, scripted=False) for batching in ("full", "immediate")}
    scripted = {batching: cells(batching, scripted=True) for batching in ("full", "immediate")}
    for name, table in (("caption", captioned), ("script", scripted)):
        plots.lines(
            given.out / f"table1_{name}.png",
            f"Semantic Table 1: predictor latency ({name})",
            [float(np.log10(latency)) for latency in LATENCIES],
            {
                f"{batching}, {who}": [interval(_column(cell, level, each=True)) for cell in row]
                for batching, row in table.items()
                for who, level in (("urgency 0", 0), ("all", LEVELS))
            },
            "log10 of the latency, s",
            "normalized waiting, s a token",
        )
        text = "; ".join(
            f"{batching} " + " ".join(f"{mean(_column(cell, LEVELS, True)):.3f}" for cell in row)
            for batching, row in table.items()
        )
        given.say(f"table 1, {name}: {text}")

    def rise(table: dict[str, list[list[Levels]]], batching: str) -> float:
        return _ratio(table[batching][-1], table[batching][0], True, LEVELS)

    quick = _ratio(captioned["full"][0], captioned["immediate"][0], True, LEVELS)
    slow = _ratio(captioned["immediate"][-1], captioned["full"][-1], True, LEVELS)
    steps = {b: [mean(_column(cell, LEVELS, True)) for cell in row] for b, row in captioned.items()}
    grows = all(row == sorted(row) for row in steps.values())
    return [
        claim(
            "table1.quick",
            "latency 0.001 s: full batching over immediate processing, all requests",
            0.21 / 0.04,
            quick,
            "times",
            quick > 1.0,
            f"full {steps['full'][0]:.3f}, immediate {steps['immediate'][0]:.3f} s a token; up to 5 at once, as"
            " the caption says",
        ),
        claim(
            "table1.slow",
            "latency 1 s: immediate processing over full batching, all requests",
            2.56 / 2.46,
            slow,
            "times",
            slow > 1.0,
            f"immediate {steps['immediate'][-1]:.3f}, full {steps['full'][-1]:.3f} s a token. Immediate takes up to a"
            " batch of those who wait, as the published code does: it never makes more calls than full batching would",
        ),
        claim(
            "table1.latency",
            "latency 1 s over 0.001 s, immediate processing, all requests, up to 5 at once as captioned",
            2.56 / 0.04,
            rise(captioned, "immediate"),
            "times",
            grows,
            f"full {rise(captioned, 'full'):.1f} times (paper {2.46 / 0.21:.1f}); holds means that waiting grows with"
            " every step of the latency in both modes. The paper's growth is not the latency's: see the next row",
        ),
        claim(
            "table1.script",
            "the same with the concurrency that the published script gives each latency: 4, 16, 32, 64",
            2.56 / 0.04,
            rise(scripted, "immediate"),
            "times",
            rise(scripted, "immediate") > 2.0 * rise(captioned, "immediate"),
            f"full {rise(scripted, 'full'):.1f} times. Table 1's columns double as that concurrency does, and Table 2,"
            " at 0.01 s, repeats its second column; holds means that concurrency explains more than the latency",
        ),
    ]


def _table_2(given: Evaluation) -> list[Claim]:
    """Batch sizes at a latency of 0.01 s, up to 16 at once."""
    cells = {
        batching: [given.each("predicted", _predicted, 0.01, batch, batching, 16) for batch in BATCHES]
        for batching in ("full", "immediate")
    }
    steps = {b: [mean(_column(cell, LEVELS, True)) for cell in row] for b, row in cells.items()}
    given.say(
        "table 2: " + "; ".join(f"{b} " + " ".join(f"{v:.4f}" for v in row) for b, row in steps.items())
    )
    plots.lines(
        given.out / "table2.png",
        "Semantic Table 2: predictor batch, latency 0.01 s",
        BATCHES,
        {b: [interval(_column(cell, LEVELS, each=True)) for cell in row] for b, row in cells.items()},
        "predictor batch",
        "normalized waiting of all, s a token",
    )
    full, immediate = steps["full"], steps["immediate"]
    spread = max(immediate) / min(immediate)
    better = sum(i <= f for i, f in zip(immediate, full, strict=True))
    return [
        claim(
            "table2.full", "full batching: batch 64 over batch 4, all requests", 0.60 / 0.58, full[-1] / full[0],
            "times", full == sorted(full), "s a token: " + ", ".join(f"{v:.4f}" for v in full) + "; holds: only rises",
        ),
        claim(
            "table2.immediate", "immediate processing: largest over smallest ('insensitive')", 0.59 / 0.58, spread,
            "times", spread < 1.1, "s a token: " + ", ".join(f"{v:.4f}" for v in immediate),
        ),
        claim(
            "table2.better", "batch sizes at which immediate processing is no slower", 3.0, float(better), "of 4",
            better >= 3, "paper: 'across a majority of experiment settings'",
        ),
    ]  # fmt: skip
