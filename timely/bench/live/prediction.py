"""The simulator's prediction of live runs, with a profile or with the very steps that were measured."""

import copy
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from timely.bench.live.runs import LiveBenchRuns
from timely.core.errors import InvalidInput
from timely.engines.replay_types import PlannedTask, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.fit import (
    fit_steps,
    measured_step_profile,
    step_errors,
    steps_without_waiting_jobs,
)
from timely.engines.step_time.journal import (
    TimedStep,
    step_journal_admission_s,
    step_journal_prompts_follow,
    steps_from_events,
    timed_steps_in_order,
)
from timely.engines.step_time.learned import LearnedSpeed, StepTimeLearner
from timely.engines.step_time.loop import step_loop_s
from timely.engines.step_time.profile import StepTerms, StepTime, StepTimeProfile, load_step_profile
from timely.replay import results

OWN = "runs"
"""Instead of a profile's name: each run is predicted with step times fitted to its own steps."""

DRIFT = "runs-with-drift"
"""As ``OWN``, and the step times change during a run as the machine's speed did: see ``LiveBenchStepDrift``."""

DRIFT_WINDOW_S = 4.0
"""Time over which a machine's speed is averaged, seconds: some dozens of steps."""

MIN_STEPS = 60
"""A run with fewer steps is predicted with the step times of all runs together."""

SAMPLES = 11
"""Simulations of a prediction, with step times that scatter as much as the profile's errors say.

Two requests of equal worth may change places by a millisecond, live or simulated, and all later steps with them.
So the prediction is the mean of these simulations, and their range shows how much is chance.
"""

SIGMA_OF_MEDIAN = 1.4826
"""Standard deviation of a normal variable over the median of its absolute value."""

MAX_SIGMA = 0.9
"""A simulation takes a noise below 1; a fit with larger errors predicts nothing anyway."""


class LiveBenchStepDrift:
    """How a machine's speed changed during a run: measured step times over fitted ones, in windows.

    It is a factor of step times alone. What waits in queues, and which requests a step has, is left to the simulator.

    Args:
        origin_s: time 0 of the simulation, on the clock of the steps.
    """

    def __init__(self, steps: Sequence[TimedStep], terms: StepTerms, origin_s: float) -> None:
        self._origin_s = origin_s
        fitted_time = StepTime(terms)
        sums_s: dict[int, list[float]] = {}
        for step in steps:
            sum_s = sums_s.setdefault(self._window(step.begin_s), [0.0, 0.0])
            sum_s[0] += step.step_s
            sum_s[1] += fitted_time(*step.counts)
        self.factors = {window: measured_s / fitted_s for window, (measured_s, fitted_s) in sums_s.items()}

    def _window(self, when_s: float) -> int:
        return int((when_s - self._origin_s) // DRIFT_WINDOW_S)

    def __call__(self, now: float) -> float:
        """The factor at a time of the simulation, seconds; 1 where nothing was measured."""
        return self.factors.get(self._window(now + self._origin_s), 1.0)

    def removed_from(self, step: TimedStep) -> TimedStep:
        """The step, as long as it would have been without drift."""
        return replace(step, step_s=step.step_s / self.factors[self._window(step.begin_s)])


class LiveBenchPredictor:
    """Predicts the runs of a folder.

    Args:
        profile_name: of a step-time profile, ``OWN`` or ``DRIFT``.

    Raises:
        InvalidInput: ``OWN`` or ``DRIFT``, and the folder holds no steps, or too few.
    """

    def __init__(self, runs: LiveBenchRuns, profile_name: str) -> None:
        self._runs = runs
        self._own = profile_name in (OWN, DRIFT)
        self._with_drift = profile_name == DRIFT
        self.drifts: list[LiveBenchStepDrift] = []
        """Of the runs predicted so far."""
        self.profile = (
            _fit_live_bench_profile(runs, profile_name) if self._own else load_step_profile(profile_name)
        )
        self.admission_s = _live_bench_idle_admission_s(runs)
        """From a task's arrival to the first step of an idle engine, seconds: the median; 0 without one."""

    def predict(
        self, system: str, workload: str, repetition: int, run: Mapping[str, Any]
    ) -> list[results.Result]:
        """Summaries of ``SAMPLES`` simulations of a run; of one simulation, if its step times do not scatter."""
        settings = self._runs.settings
        tasks = settings.tasks(workload, repetition)
        # vLLM has a slot for each generation, and a parked one keeps it.
        options = replace(
            settings.options(system), admission_s=self.admission_s, max_resident=self.profile.limits.max_batch
        )
        profile, speed, drift = self.profile, LearnedSpeed(), None
        if self._own and run.get("steps"):
            profile, drift = self._fit_run(tasks, run)
            tasks = self._with_admission_times(tasks, run)
            self._learn_before(run, speed)
        else:
            # A warm engine has learned its step times: serve the same tasks once.
            Simulator(options, profile, speed=speed).run(tasks)
        return _simulate_live_bench(tasks, options, profile, speed, drift)

    def offered_load(self, workload: str) -> float:
        """The work that arrives in a second, seconds: what the engine takes for all tasks if they come at once."""
        settings = self._runs.settings
        tasks = [replace(task, arrival_s=0.0) for task in settings.tasks(workload)]
        options = replace(settings.options("vllm-stream"), closed_loop=False)
        run = Simulator(options, self.profile).run(tasks)
        return max(record.last_token_s for record in run.records) / settings.workloads[workload]

    def _with_admission_times(self, tasks: list[PlannedTask], run: Mapping[str, Any]) -> list[PlannedTask]:
        """The tasks, each with the delay before its first step that it had in the run."""
        steps = run["steps"]
        delays_s = step_journal_admission_s(
            self._runs.events_of(run), self.admission_s, steps["since_s"], steps["until_s"]
        )
        by_job = {_live_bench_job_of(name): delay_s for name, delay_s in delays_s.items()}
        return [replace(task, admission_s=by_job.get(str(task.job))) for task in tasks]

    def _fit_run(
        self, tasks: Sequence[PlannedTask], run: Mapping[str, Any]
    ) -> tuple[StepTimeProfile, LiveBenchStepDrift | None]:
        """Step times fitted to one run, because a machine drifts between runs; and the drift in it, if asked for."""
        times, events = run["steps"], self._runs.events_of(run)
        measured_steps = steps_from_events(events, times["since_s"], times["until_s"])
        steps = steps_without_waiting_jobs(measured_steps, self.profile.limits)
        if len(steps) < MIN_STEPS:
            return self.profile, None
        terms, errors = fit_steps(steps)
        drift = None
        if self._with_drift:
            drift = LiveBenchStepDrift(steps, terms, _live_bench_origin_s(tasks, events, times["since_s"]))
            self.drifts.append(drift)
            errors = step_errors(terms, map(drift.removed_from, steps))
        return self.profile.model_copy(update={"step_s": terms, "fit_error": errors}), drift

    def _learn_before(self, run: Mapping[str, Any], speed: LearnedSpeed) -> None:
        """Feed ``speed`` with the steps before a run, as the engine was when the run began."""
        steps, events = run["steps"], self._runs.events_of(run)
        # The run's warm-up counts: the discipline is made anew after it, the learned step times stay.
        switches_s = (event["t_s"] for event in events if event["event"] == "switch")
        in_run_s = (when_s for when_s in switches_s if steps["since_s"] <= when_s <= steps["until_s"])
        begin_s = max(in_run_s, default=steps["since_s"])
        before = (event for event in events if event["event"] == "timed" and event["t_s"] < begin_s)
        learner = StepTimeLearner(speed.observe)
        for event, step_begin_s, after in timed_steps_in_order(before):
            learner.ran(
                event["decodes"] + event["prefills"],
                event["prefill_tokens"],
                event["end_s"] - step_begin_s,
                event["context_tokens"],
                prompts_follow=step_journal_prompts_follow(event, after),
            )


def _live_bench_job_of(request: str) -> str:
    """A request is named after its job, the begin of its run, and a suffix of vLLM's."""
    return request.rsplit("-", 2)[0]


def _live_bench_origin_s(
    tasks: Sequence[PlannedTask], events: Iterable[Mapping[str, Any]], since_s: float
) -> float:
    """When a run's time begins on the clock of its events, by the first of its tasks that arrived."""
    arrivals_s = {str(task.job): task.arrival_s for task in tasks}
    for event in events:
        if (
            event["event"] == "arrive"
            and event["t_s"] >= since_s
            and _live_bench_job_of(event["job"]) in arrivals_s
        ):
            return float(event["t_s"]) - arrivals_s[_live_bench_job_of(event["job"])]
    return since_s


def _fit_live_bench_profile(runs: LiveBenchRuns, name: str) -> StepTimeProfile:
    """A profile fitted to the steps of all runs: the machine as it was while they ran."""
    journals = runs.journals()
    if not journals:
        raise InvalidInput("no steps of its runs were kept", where=str(runs.folder))
    steps = [step for events in journals for step in steps_from_events(events)]
    source = f"{len(steps)} steps of the measured runs"
    return measured_step_profile(name, source, steps, runs.sizes(), step_loop_s(journals))


def _live_bench_idle_admission_s(runs: LiveBenchRuns) -> float:
    delays_s = []
    for events in runs.journals():
        steps = [(event["t_s"], event["end_s"]) for event in events if event["event"] == "timed"]
        begins = [begin for begin, _ in steps]
        for arrival in {event["t_s"] for event in events if event["event"] == "arrive"}:
            after = bisect_left(begins, arrival)
            if after < len(steps) and (not after or steps[after - 1][1] < arrival):
                delays_s.append(begins[after] - arrival)
    return statistics.median(delays_s) if delays_s else 0.0


def _simulate_live_bench(
    tasks: list[PlannedTask],
    options: ReplayOptions,
    profile: StepTimeProfile,
    speed: LearnedSpeed,
    drift: LiveBenchStepDrift | None,
) -> list[results.Result]:
    decode, prompts = live_benchmark_step_noise(profile)
    summaries = []
    for sample in range(SAMPLES if decode or prompts else 1):
        noisy = replace(options, step_noise=decode, prompt_noise=prompts, seed=options.seed + sample)
        outcome = Simulator(noisy, profile, speed=copy.deepcopy(speed), drift=drift).run(tasks)
        summaries.append(results.replay_result_summary(outcome.records, outcome.end_s))
    return summaries


def live_benchmark_step_noise(profile: StepTimeProfile) -> tuple[float, float]:
    """How step times scatter around a profile: sigma of decoding steps, sigma of steps with prompts.

    They follow from the profile's median errors; 0 where it names none.
    The two differ because ``pud`` learns from both kinds of steps.
    """

    def sigma(*kinds: str) -> float:
        medians = [profile.fit_error.get(f"{kind}_median") for kind in kinds]
        errors = [error for error in medians if isinstance(error, float)]
        return min(SIGMA_OF_MEDIAN * statistics.mean(errors), MAX_SIGMA) if errors else 0.0

    return sigma("decode"), sigma("prefill", "mixed")
