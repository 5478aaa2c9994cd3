"""A live scheduler's journal as the journal of a replay: the same form as the simulator's, so the same explanations."""

from collections.abc import Iterable, Mapping
from typing import Any

DECODE, PREFILL = 0, 1

MAX_CHOICES = 20_000


def engine_replay_journal(
    events: Iterable[Mapping[str, Any]], origin_s: float, jobs: Mapping[str, int | str]
) -> dict[str, Any]:
    """What ``timely.engines.sim.journal.Journal.to_dict`` gives, from the events of the live scheduler.

    Args:
        events: of one engine, in order; only those of steps and evictions count.
        origin_s: the trace's origin on the scheduler's clock; earlier events are left out.
        jobs: request id -> the trace's job, where vLLM may add a suffix to the id. Other requests, such as the
            warm-up's, are left out.
    """

    def job_of(request: str) -> int | str | None:
        return jobs.get(request, jobs.get(request.rpartition("-")[0]))

    begins: list[float] = []
    times: list[float] = []
    runs: dict[str, list[list[int]]] = {}
    evictions: list[list[Any]] = []
    choices: list[dict[str, Any]] = []
    dropped_choices = 0
    ran: dict[float, Mapping[str, int]] = {}
    before: tuple[str, tuple[str, ...]] | None = None
    for event in events:
        if float(event.get("t_s", -1.0)) < origin_s:
            continue
        kind, now = event.get("event"), round(float(event["t_s"]) - origin_s, 9)
        if kind == "step" and event.get("choice"):
            choice = event["choice"]
            this = (choice["held"], tuple(str(job) for job, _ in choice["served"]))
            if this != before and len(choices) < MAX_CHOICES:
                sides = {
                    side: [
                        [request if job_of(str(request)) is None else job_of(str(request)), key]
                        for request, key in choice[side]
                    ]
                    for side in ("served", "out")
                }
                choices.append({"step": len(begins), **choice, **sides})
            dropped_choices += this != before and len(choices) >= MAX_CHOICES
            before = this
        elif kind == "step":
            before = None
        elif kind == "evict" and job_of(str(event["job"])) is not None:
            evictions.append([len(begins), job_of(str(event["job"]))])
        elif kind == "ran":
            ran[now] = event["tokens"]
        elif kind == "timed" and now in ran:
            step = len(begins)
            begins.append(now)
            times.append(round(float(event["end_s"]) - float(event["t_s"]), 9))
            for request, tokens in ran.pop(now).items():
                job = job_of(request)
                if job is not None:
                    _run(runs.setdefault(str(job), []), step, int(tokens))
    return {
        "t_s": begins, "step_s": times, "runs": runs, "evictions": evictions, "choices": choices,
        "choices_missing": dropped_choices,
    }  # fmt: skip


def _run(runs: list[list[int]], step: int, tokens: int) -> None:
    """One more step of a job: several tokens are of its prompt."""
    kind = PREFILL if tokens > 1 else DECODE
    if runs and runs[-1][0] == kind and runs[-1][2] == step - 1 and runs[-1][3] == tokens:
        runs[-1][2] = step
    else:
        runs.append([kind, step, step, tokens])
