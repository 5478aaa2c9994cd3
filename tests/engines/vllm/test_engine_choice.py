"""Which of several engines a task gets from what they reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from timely.core.errors import EngineFailed
from timely.core.hints import NO_HINTS, RequestHints
from timely.core.job import JobSpec, JobTable
from timely.core.utility import URGENT
from timely.engines.base import ForcedPlan, GenerationRequest, Mode
from timely.engines.step_time.learned import FixedSpeed
from timely.engines.vllm.engine_choice import REPORT_S, VllmEngineChoice
from timely.routing.reported_load import report_routing_load

PROMPT = list(range(400))


def report(*parked: bool, slowness: float = 1.0) -> dict[str, Any]:
    """Of an engine with these plans."""
    table = JobTable()
    for number, is_parked in enumerate(parked):
        job = table.add(JobSpec(number, 0.0, prompt_tokens=400))
        if is_parked:
            table.resume_s[job.row] = 60.0
    return report_routing_load(table, FixedSpeed(0.02 * slowness, 0.001 * slowness, 0.0005 * slowness), None)


def choice(*reports: dict[str, Any]) -> VllmEngineChoice:
    async def ask() -> Sequence[dict[str, Any]]:
        return reports

    chosen = VllmEngineChoice(len(reports), ask)
    chosen.update(0.0, reports)
    return chosen


def task(name: str, skill_set: str = "drone") -> GenerationRequest:
    return GenerationRequest(name, "", skill_set=skill_set, hints=RequestHints(utility=URGENT))


def test_parked_plans_do_not_count_as_load() -> None:
    engines = choice(report(*[True] * 9), report(*[False] * 3))
    assert engines.choose(task("new"), PROMPT, "segmented", 1.0) == 0


def test_a_burst_between_two_reports_is_spread() -> None:
    engines = choice(report(), report())
    chosen = [engines.choose(task(str(n)), [n, *PROMPT], "segmented", 1.0) for n in range(6)]
    assert Counter(chosen) == {0: 3, 1: 3}
    engines.update(1.0 - REPORT_S / 2, [report(), report(*[False] * 3)])
    # The six may not be in the reports yet, so they still count.
    assert engines.choose(task("7"), [7, *PROMPT], "segmented", 1.0) == 0
    engines.update(1.0 + 2 * REPORT_S, [report(False), report()])
    assert engines.choose(task("8"), [8, *PROMPT], "segmented", 2.0) == 1


def test_a_slow_engine_gets_less() -> None:
    engines = choice(report(slowness=2.0), report())
    chosen = [engines.choose(task(str(n)), [n, *PROMPT], "segmented", 1.0) for n in range(12)]
    assert chosen.count(1) > chosen.count(0) > 0


def test_a_prompt_goes_where_its_beginning_is_cached() -> None:
    engines = choice(report(), report())
    engines.note_prompt(1, "drone", PROMPT)
    assert engines.choose(task("new"), [*PROMPT[:390], 1, 2, 3], "segmented", 1.0) == 1
    assert engines.choose(task("other", "arm"), [9, *PROMPT], "segmented", 1.0) == 0


def test_vllm_chooses_before_the_first_report() -> None:
    async def ask() -> Sequence[dict[str, Any]]:
        return []

    assert VllmEngineChoice(2, ask).choose(task("new"), PROMPT, "segmented", 1.0) is None


async def test_following_ends_with_the_last_task_or_the_engines() -> None:
    answers: list[Any] = [[report(), report(False)]]

    async def ask() -> Sequence[dict[str, Any]]:
        if not answers:
            raise EngineFailed("gone")
        return answers.pop()  # type: ignore[no-any-return]

    engines = VllmEngineChoice(2, ask)
    await engines.follow(set())
    assert engines.choose(task("new"), PROMPT, "segmented", 1.0) == 0
    await engines.follow({"live"})
    assert engines.choose(task("next"), PROMPT, "segmented", 1.0) is None


@pytest.mark.parametrize(("mode", "engine"), [("whole", 1), ("segmented", 0)])
def test_in_mode_whole_a_plan_occupies_its_engine_until_its_limit(mode: Mode, engine: int) -> None:
    engines = choice(report(), report())
    sent = [replace(task(str(limit)), max_tokens=limit) for limit in (1000, 10)]
    assert [engines.choose(plan, [plan.max_tokens, *PROMPT], mode, 1.0) for plan in sent] == [0, 1]
    assert engines.choose(task("new"), [9, *PROMPT], mode, 1.0) == engine


def test_an_ordinary_request_counts_as_one() -> None:
    """A robot's task does not wait for its prompt."""
    engines = choice(report(), report(slowness=1.2))
    ordinary = GenerationRequest("chat", "", forced=ForcedPlan(()))
    plan = replace(task("new"), hints=NO_HINTS)
    chosen = [
        engines.choose(request, [number, *PROMPT], "segmented", 1.0)
        for number, request in enumerate((ordinary, plan))
    ]
    assert chosen == [0, 0]
