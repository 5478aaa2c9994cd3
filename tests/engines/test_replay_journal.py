"""A live scheduler's journal in the form of a replay's: runs of steps, evictions, choices, and an explanation of it."""

from __future__ import annotations

from typing import Any

import pytest

from timely.engines import replay_journal
from timely.engines.replay_journal import live_replay_journal
from timely.replay.explain import ReplayExplanation, explain_replay_job, replay_explanation_text

JOBS = {"0-9.000": 0, "1-9.000": 1}
A, B = "0-9.000-ab12", "1-9.000"  # vLLM added a suffix to one


def step(
    now: float, end: float, tokens: dict[str, int], held: str = "", out: str = ""
) -> list[dict[str, Any]]:
    decision: dict[str, Any] = {"event": "step", "t_s": now, "tokens": tokens, "evict": []}
    if held:
        served = [[request, 2.0] for request in tokens]
        decision["choice"] = {"held": held, "left": 1, "served": served, "out": [[out, 1.0]]}
    return [
        decision,
        {"event": "ran", "t_s": now, "tokens": tokens},
        {"event": "timed", "t_s": now, "end_s": end},
    ]


EVENTS = [
    *step(8.0, 8.1, {"warm-up": 5}),
    {"event": "arrive", "t_s": 10.0, "job": A},
    *step(10.0, 10.1, {A: 20}, "suspended", B),
    *step(10.1, 10.2, {A: 1}, "suspended", B),
    *step(10.2, 10.3, {A: 1}, "suspended", B),
    {"event": "evict", "t_s": 10.3, "job": A},
    *step(10.3, 10.5, {B: 30, "warm-up": 1}),
    *step(10.5, 10.6, {B: 1}),
]


def test_runs_evictions_and_choices() -> None:
    journal = live_replay_journal(EVENTS, 10.0, JOBS)
    assert journal["t_s"] == [0.0, 0.1, 0.2, 0.3, 0.5]
    assert [round(time, 6) for time in journal["step_s"]] == [0.1, 0.1, 0.1, 0.2, 0.1]
    assert journal["runs"] == {"0": [[1, 0, 0, 20], [0, 1, 2, 1]], "1": [[1, 3, 3, 30], [0, 4, 4, 1]]}
    assert journal["evictions"] == [[3, 0]]
    assert journal["choices"] == [
        {"step": 0, "held": "suspended", "left": 1, "served": [[0, 2.0]], "out": [[1, 1.0]]},
        {"step": 3, "held": "", "left": 0, "served": [], "out": []},
    ]


JOB = {
    "job": 1, "class": "normal", "agent": "", "arrival_s": 0.0, "outcome": "complete", "utility": 1.0,
    "utility_max": 1.0, "response_time_s": 0.6, "waiting_time_s": 0.6, "ert_s": 1.0, "prompt_tokens": 30,
    "cached_tokens": 0, "output_tokens": 2, "recomputed_tokens": 0,
    "segments": [{"index": 0, "ready_s": 0.6, "start_s": 0.6, "end_s": 1.0}],
}  # fmt: skip


def explain(journal: dict[str, Any]) -> ReplayExplanation:
    return explain_replay_job({"jobs": [JOB], "end_s": 1.0, "journal": journal}, "1")


def test_it_explains_a_wait() -> None:
    result = explain(live_replay_journal(EVENTS, 10.0, JOBS))
    wait = result.waits[0]
    assert (wait.queued_steps, wait.prompt_steps, wait.decode_steps) == (3, 1, 1)
    assert wait.instead == [("0", 3)]
    assert wait.reasons == {"suspended": 3}
    assert "served meanwhile: job 0 (3)" in replay_explanation_text(result)


def test_a_reason_ends_with_the_choice() -> None:
    """Job 1 was left out of the first step alone; then its prompt was not ready, and no step had a choice to make."""
    events = [
        *step(10.0, 10.1, {A: 20}, "suspended", B),
        *step(10.1, 10.2, {A: 1}),
        *step(10.2, 10.3, {A: 1}),
        *step(10.3, 10.6, {B: 30}),
    ]
    wait = explain(live_replay_journal(events, 10.0, JOBS)).waits[0]
    assert (wait.queued_steps, wait.reasons) == (3, {"suspended": 1})


def test_choices_that_are_not_kept_give_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_journal, "MAX_CHOICES", 1)
    events = [
        *step(10.0, 10.1, {A: 20}, "suspended", B),
        *step(10.1, 10.2, {A: 1}, "batch", B),
        *step(10.2, 10.3, {A: 1}, "tokens", B),
        *step(10.3, 10.6, {B: 30}),
    ]
    journal = live_replay_journal(events, 10.0, JOBS)
    assert (len(journal["choices"]), journal["choices_missing"]) == (2, 2)
    assert explain(journal).waits[0].reasons == {"suspended": 1}
