"""Explains why a robot waited: the time from its request to each segment, split by the engine's work meanwhile."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from timely.core.errors import InvalidInput, UnknownName

LIMIT_TEXTS = {
    "admission": "admission was closed: the most urgent generation in the pool would have missed its deadline",
    "batch": "the step had its most sequences",
    "tokens": "the step's token budget was spent",
    "memory": "not enough free KV blocks",
    "suspended": "suspended for the sake of a more urgent first segment",
    "stage": "the most important job was decoding, and prompts wait meanwhile",
}
"""Reasons for leaving runnable jobs out of a step (``StepPlan.limited_by``), in words."""

MAX_NAMED = 5
"""Largest number of jobs named as served instead."""

MIN_WAIT_S = 1e-6
"""Shorter waits are not counted."""


@dataclass(slots=True)
class ExplainedWait:
    """One wait of the robot, from being free (or submitting) to the start of a segment, in seconds.

    Attributes:
        queued_s: while steps ran without the job.
        idle_s: while no step ran.
        prompt_s, decode_s: in steps with the job.
        network_s: on the way to the robot.
        instead: steps of each other job while this one was queued.
        reasons: number of steps by the reason that left the job out.
        choices: up to three of these decisions, with keys.
    """

    segment: int
    begin_s: float
    end_s: float
    queued_s: float = 0.0
    idle_s: float = 0.0
    prompt_s: float = 0.0
    decode_s: float = 0.0
    network_s: float = 0.0
    prompt_steps: int = 0
    decode_steps: int = 0
    queued_steps: int = 0
    instead: list[tuple[str, int]] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    choices: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class ReplayExplanation:
    job: dict[str, Any]
    waits: list[ExplainedWait]
    evictions_s: list[float]
    journal: bool


def explain_replay_job(result: Mapping[str, Any], job_name: str) -> ReplayExplanation:
    """Explain one job of a result; raises UnknownName if the result has no such job."""
    jobs = {str(job["job"]): job for job in result["jobs"]}
    if job_name not in jobs:
        names = (
            list(jobs) if len(jobs) <= 20 else [f"{len(jobs)} jobs, {next(iter(jobs))} to {list(jobs)[-1]}"]
        )
        raise UnknownName("job", job_name, names, where="job")
    job = jobs[job_name]
    gaps = _job_waits(job, result["end_s"])
    journal = result.get("journal")
    if not journal:
        # The network's share is all that can be told apart.
        waits = [
            ExplainedWait(segment, begin, end, network_s=end - ready) for segment, begin, ready, end in gaps
        ]
        return ReplayExplanation(_job_facts(job), waits, [], False)
    try:
        steps = _ExplainedSteps(journal)
        waits = [steps.wait(job_name, segment, begin, ready, end) for segment, begin, ready, end in gaps]
        evictions = [journal["t_s"][step] for step, name in journal["evictions"] if str(name) == job_name]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidInput(f"the journal is broken: {error!r}", where="journal") from error
    return ReplayExplanation(_job_facts(job), waits, evictions, True)


def _job_facts(job: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name != "segments"}


def _job_waits(job: Mapping[str, Any], end_s: float) -> list[tuple[int, float, float, float]]:
    """Every wait: its segment, and when the robot was free, the segment ready, and the segment started, seconds."""
    waits, free_s = [], job["arrival_s"]
    for segment in job["segments"]:
        if segment["start_s"] - free_s > MIN_WAIT_S:
            waits.append((segment["index"], free_s, max(free_s, segment["ready_s"]), segment["start_s"]))
        free_s = segment["end_s"]
    if job["outcome"] == "unfinished" and end_s > free_s:
        waits.append((len(job["segments"]), free_s, end_s, end_s))
    return waits


class _ExplainedSteps:
    """The journal, searchable by time."""

    def __init__(self, journal: Mapping[str, Any]) -> None:
        self._journal = journal
        self._t: list[float] = journal["t_s"]
        self._s: list[float] = journal["step_s"]
        self._choices: list[dict[str, Any]] = journal["choices"]

    def wait(self, name: str, segment: int, begin: float, ready: float, end: float) -> ExplainedWait:
        """Split the wait of ``begin`` to ``end`` of a segment that was ready at ``ready``."""
        wait = ExplainedWait(segment, begin, end, network_s=end - ready)
        first, last = self._between(begin, ready)
        kinds: dict[int, int] = {}
        for kind, run_first, run_last, _ in self._journal["runs"].get(name, []):
            for step in range(max(first, run_first), min(last, run_last + 1)):
                kinds[step] = kind
        covered_s = 0.0
        others = []
        for step in range(first, last):
            inside = min(ready, self._t[step] + self._s[step]) - max(begin, self._t[step])
            if inside <= 0.0:
                continue
            covered_s += inside
            if step not in kinds:
                wait.queued_s += inside
                wait.queued_steps += 1
                others.append(step)
            elif kinds[step]:
                wait.prompt_s += inside
                wait.prompt_steps += 1
            else:
                wait.decode_s += inside
                wait.decode_steps += 1
        wait.idle_s = max(0.0, ready - begin - covered_s)
        if others:
            wait.instead = self._served_meanwhile(name, others)
            self._reasons(name, others, wait)
        return wait

    def _between(self, begin: float, end: float) -> tuple[int, int]:
        first = max(0, bisect_right(self._t, begin) - 1)
        return first, bisect_left(self._t, end)

    def _served_meanwhile(self, name: str, steps: list[int]) -> list[tuple[str, int]]:
        counts: Counter[str] = Counter()
        wait_steps = set(steps)
        low, high = steps[0], steps[-1]
        for other, runs in self._journal["runs"].items():
            if other == name:
                continue
            for _, first, last, _ in runs:
                if first <= high and last >= low:
                    counts[other] += sum(
                        step in wait_steps for step in range(max(first, low), min(last, high) + 1)
                    )
        return sorted(((o, n) for o, n in counts.items() if n), key=lambda pair: (-pair[1], pair[0]))

    def _reasons(self, name: str, steps: list[int], wait: ExplainedWait) -> None:
        """Count the steps of each reason; a choice holds from its step until the next choice."""
        reasons: Counter[str] = Counter()
        index = 0
        current: dict[str, Any] | None = None
        for step in steps:
            while index < len(self._choices) and self._choices[index]["step"] <= step:
                current = self._choices[index]
                index += 1
            if current is None or not current["held"]:
                continue
            reasons[current["held"]] += 1
            is_left_out = any(str(job) == name for job, _ in current["out"])
            if is_left_out and current not in wait.choices and len(wait.choices) < 3:
                wait.choices.append(current)
        wait.reasons = dict(sorted(reasons.items()))


def replay_explanation_text(explanation: ReplayExplanation) -> str:
    job = explanation.job
    lines = [f"job {job['job']}, {job['class']}" + (f", {job['agent']}" if job["agent"] else "")]
    if job.get("task"):
        lines.append(f"  {job['task']}")
    lines.append(
        f"  arrived at {job['arrival_s']:.3f} s; {job['outcome']}"
        + (f" ({job['note']})" if job.get("note") else "")
        + f"; utility {job['utility']:.3f} of {job['utility_max']:g}"
    )
    if job["response_time_s"] is not None:
        late = job["response_time_s"] - job.get("ert_s", 0.0)
        verdict = f"{late:.3g} s late" if late > 0 else "in time"
        waiting_s = job["waiting_time_s"]  # none of a chat whose first token came, and its last one did not
        lines.append(
            f"  response {job['response_time_s']:.3f} s ({verdict})"
            + ("" if waiting_s is None else f", waiting {waiting_s:.3f} s in all")
        )
    lines.append(
        f"  prompt {job['prompt_tokens']} tokens, {job['cached_tokens']} of them cached;"
        f" {job['output_tokens']} tokens of output"
    )
    for when in explanation.evictions_s:
        lines.append(f"  lost its KV cache at {when:.3f} s")
    if job["recomputed_tokens"]:
        lines.append(f"  {job['recomputed_tokens']} tokens were computed again")
    if not explanation.waits:
        lines.append("  the robot never waited" if job["outcome"] == "complete" else "  nothing to explain")
    for wait in explanation.waits:
        lines += _explained_wait_text(wait, explanation.journal)
    if not explanation.journal and explanation.waits:
        lines.append("  no journal in this result, so the engine's work meanwhile is unknown")
    return "\n".join(lines)


def _explained_wait_text(wait: ExplainedWait, journal: bool) -> list[str]:
    title = "before its first action" if wait.segment == 0 else f"before segment {wait.segment}"
    lines = [f"  {title}: {wait.end_s - wait.begin_s:.3f} s"]
    if journal:
        if wait.queued_s > MIN_WAIT_S:
            lines.append(
                f"    {wait.queued_s:7.3f} s  not in the step, {_explained_steps_text(wait.queued_steps)} of others"
            )
            jobs_text = ", ".join(f"job {name} ({count})" for name, count in wait.instead[:MAX_NAMED])
            more = len(wait.instead) - MAX_NAMED
            lines.append(
                f"               served meanwhile: {jobs_text}" + (f" and {more} more" if more > 0 else "")
            )
            for reason, count in wait.reasons.items():
                lines.append(
                    f"               {_explained_steps_text(count)}: {LIMIT_TEXTS.get(reason, reason)}"
                )
            lines += [f"               {_explained_choice_text(choice)}" for choice in wait.choices]
        if wait.idle_s > MIN_WAIT_S:
            lines.append(f"    {wait.idle_s:7.3f} s  no step ran")
        if wait.prompt_s > MIN_WAIT_S:
            lines.append(
                f"    {wait.prompt_s:7.3f} s  computing its prompt, {_explained_steps_text(wait.prompt_steps)}"
            )
        if wait.decode_s > MIN_WAIT_S:
            lines.append(f"    {wait.decode_s:7.3f} s  decoding, {_explained_steps_text(wait.decode_steps)}")
    if wait.network_s > MIN_WAIT_S:
        lines.append(f"    {wait.network_s:7.3f} s  network")
    return lines


def _explained_steps_text(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _explained_choice_text(choice: Mapping[str, Any]) -> str:
    def pairs(entries: list[list[Any]]) -> str:
        return ", ".join(
            f"{name}" + ("" if key is None else f" ({key:.4g})") for name, key in entries[:MAX_NAMED]
        )

    served, out = choice["served"], choice["out"]
    named = "chosen" if all(key is None for _, key in served) else "chosen, with keys"
    return f"step {choice['step']}: {named}: {pairs(served)}; left out: {pairs(out)}"
