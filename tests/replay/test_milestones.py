"""What a time-utility function of a trace is about: the first token, the first segment, or the last token."""

from __future__ import annotations

from typing import Any

import pytest
from sim_cases import Recording

from lrtrace.job import TraceJob
from timely.core.errors import InvalidInput
from timely.engines.replay_types import PLAIN_MAX_TOKENS, ReplayOptions
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import load_step_profile
from timely.replay.explain import explain_replay_job, replay_explanation_text
from timely.replay.results import Result
from timely.replay.run import replay_through_engine
from timely.replay.trace import replay_task_from_job

NETWORK_S = 0.25


def chat(tokens: int = 40, **fields: Any) -> TraceJob:
    tuf = {"ert_s": 0.3, "alpha": -1.0, "beta": 1.0, **fields.pop("tuf", {})}
    plan = [{"text": "", "tokens": tokens}]
    return TraceJob.from_dict(
        {"job": 0, "arrival_s": 0.0, "prompt_tokens": 20, "plan": plan, "tuf": tuf, **fields}
    )


def replay(job: TraceJob, mode: Any = "segmented") -> Result:
    task = replay_task_from_job(job, NETWORK_S)
    result = replay_through_engine([task], ReplayOptions(profile="unit", mode=mode))
    entry: Result = result["jobs"][0]
    assert entry["outcome"] == "complete"
    assert (entry["first_token_s"], entry["last_token_s"]) == (pytest.approx(0.01), pytest.approx(0.4))
    return entry


@pytest.mark.parametrize(
    ("fields", "mode", "response_s"),
    [
        ({}, "segmented", 0.4),
        ({"tuf": {"milestone": "first_token"}}, "segmented", 0.01),
        ({"tuf": {"milestone": "first_token"}}, "stream", 0.01),
        ({"tuf": {"milestone": "first_token"}}, "whole", 0.4),
        ({"tuf": {"milestone": "first_segment"}}, "segmented", 0.4),
        ({"tuf": {"milestone": "last_token"}}, "segmented", 0.4),
        ({"pace_s": 0.1}, "segmented", 0.01),
    ],
)
def test_a_chat_is_judged_by_what_its_utility_is_about(
    fields: dict[str, Any], mode: str, response_s: float
) -> None:
    entry = replay(chat(**fields), mode)
    assert entry["response_time_s"] == pytest.approx(response_s + NETWORK_S)
    assert entry["utility"] == pytest.approx(min(1.0, 1.3 - response_s - NETWORK_S))


def test_a_chat_without_a_token_counts_with_its_age() -> None:
    task = replay_task_from_job(chat(tuf={"milestone": "first_token"}))
    result = replay_through_engine([task], ReplayOptions(profile="unit", until_s=0.005))
    assert result["jobs"][0]["utility"] == 1.0
    assert result["jobs"][0]["response_time_s"] is None


def test_a_chat_that_is_cut_off_behind_its_first_token_is_explained() -> None:
    task = replay_task_from_job(chat(tuf={"milestone": "first_token"}))
    result = replay_through_engine([task], ReplayOptions(profile="unit", until_s=0.1))
    text = replay_explanation_text(explain_replay_job(result, "0"))
    assert "response 0.010 s (in time)" in text
    assert "in all" not in text


@pytest.mark.parametrize("tokens", [40, PLAIN_MAX_TOKENS + 1])
def test_the_discipline_knows_that_the_last_token_counts_and_not_the_length(tokens: int) -> None:
    discipline = Recording()
    tasks = [replay_task_from_job(chat(tokens, tuf={"milestone": "last_token"}))]
    Simulator(ReplayOptions(until_s=0.1), load_step_profile("unit"), discipline=discipline).run(tasks)
    (spec,) = discipline.specs
    assert (spec.plain, spec.whole_answer) == (False, True)
    limit_tokens = PLAIN_MAX_TOKENS if tokens == 40 else 2 * PLAIN_MAX_TOKENS
    assert spec.max_tokens == spec.segment_tokens == limit_tokens


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"tuf": {"milestone": "soon"}},
            "tuf.milestone must be one of first_token, first_segment, last_token",
        ),
        ({"tuf": {"milestone": 1}}, "tuf.milestone must be one of"),
        ({"tuf": {"milestone": "last_token"}, "skill_set": "drone"}, "that of a plan is its first_segment"),
        ({"pace_s": 0.1, "skill_set": "drone"}, "that of a plan is its first_segment"),
        ({"tuf": {"milestone": "last_token"}, "pace_s": 0.1}, "pace_s goes with tuf.milestone first_token"),
        ({"pace_s": 0}, "pace_s must be a number over 0"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        replay_task_from_job(chat(**fields))
    assert caught.value.where == "job 0"


def test_a_plan_may_say_that_it_is_about_its_first_segment() -> None:
    task = replay_task_from_job(chat(tuf={"milestone": "first_segment"}, skill_set="drone"))
    assert [task.plain, task.by_first_token, task.whole_answer] == [False, False, False]
