"""What the engine's own loop takes out of journals: medians, and how it grows with members and waiting jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from timely.engines.step_time.fit import measured_step_profile
from timely.engines.step_time.journal import steps_from_events
from timely.engines.step_time.loop import step_loop_s
from timely.engines.step_time.profile import StepTerms, StepTime

SLOPES = {"loop_member_s": 0.0, "loop_waiting_s": 0.0}

BASE_S, MEMBER_S, WAITING_S, ARRIVAL_S = 0.0008, 15e-6, 4e-6, 200e-6


def event(begin_s: float, end_s: float, **counts: float) -> dict[str, Any]:
    fields = {"decodes": 1, "prefills": 0, "prefill_tokens": 0, "prefill_squares": 0, "context_tokens": 50}
    return {"event": "timed", "t_s": begin_s, "end_s": end_s, **fields, **counts}


def test_how_long_a_launch_keeps_the_engine_busy() -> None:
    """Only the first step after a rest tells it: later ones are composed when one before them is over."""
    ahead = [
        event(0.0, 0.020),
        event(0.005, 0.045),
        event(0.020, 0.060),
        event(0.5, 0.520),
        event(0.507, 0.540),
    ]
    assert step_loop_s([ahead]) == pytest.approx(
        {"launch_s": 0.006, "launch_prompts_s": 0.0, "between_s": 0.0, **SLOPES}
    )


def test_engines_have_journals_of_their_own() -> None:
    """One may have ended before the other began, and be read after it."""
    later, earlier = [event(900.0, 900.020)], [event(0.0, 0.020), event(0.5, 0.520)]
    assert set(step_loop_s([later, earlier]).values()) == {0.0}


def test_what_the_loop_takes_between_two_steps() -> None:
    steps = [
        event(0.0, 0.020),
        event(0.021, 0.040),
        event(0.043, 0.060),
        event(0.062, 0.080),
        event(9.0, 9.1),
    ]
    assert step_loop_s([steps]) == pytest.approx(
        {"launch_s": 0.0, "launch_prompts_s": 0.0, "between_s": 0.002, **SLOPES}
    )


def journal(
    *, ahead: bool = False, steps: int = 600, member_s: float = MEMBER_S, waiting_s: float = WAITING_S,
    arrival_s: float = ARRIVAL_S, most_waiting: int = 800, noise: float = 0.2, seed: int = 5, has_work: bool = False,
) -> list[dict[str, Any]]:  # fmt: skip
    """A scheduler's journal whose loop has known slopes: jobs come in bursts, and the loop takes long by chance.

    A decode step takes 20 ms and 0.1 ms a member; ``ahead``: each step is composed while the one before it runs.
    ``has_work``: its steps have ``loop_s``, which grows twice as fast.
    """
    rng = np.random.default_rng(seed)
    events: list[dict[str, Any]] = []
    live: list[int] = []
    in_flight: list[tuple[float, int, float]] = []
    arrived, members, news, now, begin_s = 0, 1, 0, 0.0, 0.0
    for _ in range(steps):
        events.append({"event": "step", "t_s": now})
        waiting = max(0, len(live) - members)
        work_s = BASE_S + 2 * (member_s * members + waiting_s * waiting) + arrival_s * news
        in_flight.append((now, members, work_s * (rng.lognormal(0.0, noise) if has_work else 1.0)))
        if ahead and len(in_flight) < 2:
            now += 0.001
            continue
        composed_s, ran, work_s = in_flight.pop(0)
        begin_s = now = max(now, max(begin_s, composed_s) + 0.020 + 1e-4 * ran)
        events.append(event(composed_s, now, decodes=ran, **({"loop_s": work_s} if has_work else {})))
        for _ in range(min(len(live), int(rng.poisson(6)))):
            events.append({"event": "finish", "t_s": now, "job": live.pop(0)})
        news = int(rng.poisson(rng.choice([0, 2, 20]))) if len(live) < most_waiting else 0
        for _ in range(news):
            arrived += 1
            live.append(arrived)
            events.append({"event": "arrive", "t_s": now, "job": arrived})
        members = max(1, min(len(live), int(rng.integers(1, 100))))
        gap_s = BASE_S + member_s * ran + waiting_s * max(0, len(live) - members) + arrival_s * news
        now += gap_s * rng.lognormal(0.0, noise) + (0.008 if rng.random() < 0.15 * noise else 0.0)
    return events


@pytest.mark.parametrize("ahead", [False, True])
def test_known_slopes_are_found_again(ahead: bool) -> None:
    """Within 25%, though the loop scatters by a fifth, and 3 gaps in 100 are 8 ms longer."""
    loop_s = step_loop_s([journal(ahead=ahead)])
    assert loop_s["loop_member_s"] == pytest.approx(MEMBER_S, rel=0.25)
    assert loop_s["loop_waiting_s"] == pytest.approx(WAITING_S, rel=0.25)


def test_what_scheduling_takes_is_added_where_it_is_known() -> None:
    """With asynchronous scheduling; otherwise the times of steps contain it."""
    loop_s = step_loop_s([journal(ahead=True, has_work=True)])
    assert loop_s["loop_member_s"] == pytest.approx(3 * MEMBER_S, rel=0.25)
    assert loop_s["loop_waiting_s"] == pytest.approx(3 * WAITING_S, rel=0.25)
    loop_s = step_loop_s([journal(has_work=True)])
    assert loop_s["loop_member_s"] == pytest.approx(MEMBER_S, rel=0.25)
    assert loop_s["loop_waiting_s"] == pytest.approx(WAITING_S, rel=0.25)


def test_a_launch_is_measured_without_the_growth_of_its_step() -> None:
    """The simulator adds that for each step, so the launch of 40 members must not contain it."""
    grown = journal(ahead=True, has_work=True, noise=0.0)
    growth_s = 3 * (40 * MEMBER_S + 500 * WAITING_S)
    begin_s = 1e6
    arrivals = [{"event": "arrive", "t_s": begin_s, "job": -number} for number in range(1, 541)]
    launch = [
        *arrivals,
        {"event": "step", "t_s": begin_s},
        event(begin_s, begin_s + 0.020, decodes=40),
        event(begin_s + 0.002 + growth_s, begin_s + 0.040, decodes=40),
        {"event": "finish", "t_s": begin_s, "job": -1},
    ]
    first_s = step_loop_s([grown])["launch_s"]
    assert first_s == pytest.approx(0.001, abs=0.0001)
    loop_s = step_loop_s([grown, launch, launch])
    assert loop_s["launch_s"] == pytest.approx(0.002, rel=0.05)


def test_slopes_without_noise_are_found_exactly() -> None:
    loop_s = step_loop_s([journal(noise=0.0)])
    assert loop_s["loop_member_s"] == pytest.approx(MEMBER_S, rel=0.01)
    assert loop_s["loop_waiting_s"] == pytest.approx(WAITING_S, rel=0.01)


def test_a_loop_that_does_not_grow_has_no_slopes() -> None:
    """Or nearly none, by chance."""
    loop_s = step_loop_s([journal(member_s=0.0, waiting_s=0.0)])
    assert loop_s["loop_member_s"] < 0.05 * MEMBER_S
    assert loop_s["loop_waiting_s"] < 0.05 * WAITING_S


def test_new_jobs_are_not_taken_for_waiting_ones() -> None:
    """A job that the engine takes up costs the loop much more than one that waits."""
    loop_s = step_loop_s([journal(most_waiting=100, waiting_s=0.0)])
    assert loop_s["loop_waiting_s"] < 0.25 * WAITING_S


def test_a_journal_without_ends_of_jobs_says_nothing_of_waiting_ones() -> None:
    events = [e for e in journal() if e["event"] != "finish"]
    assert step_loop_s([events])["loop_waiting_s"] == 0.0
    assert {step.waiting for step in steps_from_events(events)} == {0}


def test_beside_an_older_journal_waiting_jobs_have_no_slope() -> None:
    """Its steps contain what waiting jobs took, so the simulator must not add that."""
    older = [e for e in journal() if e["event"] != "finish"]
    assert step_loop_s([journal(), older])["loop_waiting_s"] == 0.0
    failed = [{"event": "step", "t_s": 0.0}, event(0.0, 0.02, loop_s=0.001)]
    assert step_loop_s([journal(), failed, []])["loop_waiting_s"] > 0.0, "engines that ended no job"


def test_few_waiting_jobs_have_no_slope() -> None:
    assert step_loop_s([journal(most_waiting=3)])["loop_waiting_s"] == 0.0


def test_step_times_are_those_without_waiting_jobs() -> None:
    """Without asynchronous scheduling a step lasts until the next one is composed."""
    events = journal(noise=0.0, waiting_s=20e-6, most_waiting=400, arrival_s=0.0)
    steps = steps_from_events(events)
    assert max(step.waiting for step in steps) > 300
    sizes = {"kv_blocks": 100, "block_tokens": 16, "max_batch": 64, "token_budget": 512}
    profile = measured_step_profile("p", "made up", steps, sizes, step_loop_s([events]))
    plain = measured_step_profile("p", "made up", steps, sizes, {})
    true = StepTime(StepTerms(base=0.020 + BASE_S, per_sequence=1e-4 + MEMBER_S, per_prefill_token=0.0,
                              per_prefill_token_sq=0.0, per_context_token=0.0))  # fmt: skip
    for members in (1, 40, 90):
        assert StepTime(profile.step_s)(members, 0, 0, 0.0, 50) == pytest.approx(
            true(members, 0, 0, 0.0, 50), rel=0.05
        )
    assert StepTime(plain.step_s)(1, 0, 0, 0.0, 50) > 1.1 * true(1, 0, 0, 0.0, 50)
