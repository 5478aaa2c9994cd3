"""What prompts beside decoding sequences cost a step: the first of them is charged with it, in both disciplines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from utility_scene import PROMPT_S, STEP_S, dated, join, limits, make_resident, ordinary

from timely.core.job import JobSpec, JobTable
from timely.core.utility import NORMAL, URGENT
from timely.disciplines.base import Discipline
from timely.disciplines.tardiness.discipline import WeightedTardiness
from timely.disciplines.timely.discipline import Timely
from timely.engines.step_time.learned import FixedSpeed

MIXING_TOKEN_S = 0.00001


class MixingSpeed(FixedSpeed):
    """A step that mixes prompts and decoding takes 10 µs longer for each token attended to."""

    def mixing_s(self, context_tokens: float) -> float:
        return MIXING_TOKEN_S * context_tokens


def compose(
    kind: type[WeightedTardiness],
    decoding: list[JobSpec],
    prompts: list[JobSpec],
    *,
    mixing: bool,
    now: float = 0.0,
) -> dict[object, int]:
    """The tokens of a step; the decoding jobs attend to their prompts."""
    table = JobTable()
    discipline: Discipline = type("Variant", (kind,), {"EARLY_SHARE": 0.0})()
    for job in join(table, discipline, *decoding):
        make_resident(job)
    join(table, discipline, *prompts)
    speed = (MixingSpeed if mixing else FixedSpeed)(STEP_S, 0.0, PROMPT_S)
    return dict(discipline.compose(table, replace(limits(now, max_batch=64), speed=speed)).tokens)


@pytest.fixture(params=[WeightedTardiness, Timely], ids=lambda kind: kind.info.name)
def kind(request: pytest.FixtureRequest) -> type[WeightedTardiness]:
    result: type[WeightedTardiness] = request.param
    return result


def test_the_first_prompt_beside_many_sequences_is_charged_with_mixing(kind: type[WeightedTardiness]) -> None:
    # 140 ms of slack: two tokens expected, and a step of caution before 0.2 s.
    decoding = [dated(f"urgent {number}", URGENT) for number in range(40)]
    prompts = [dated("normal", NORMAL, prompt=3000)]
    assert compose(kind, decoding, prompts, mixing=False)["normal"] == pytest.approx(1400, abs=2)
    # 4000 tokens attended to take 40 ms of it.
    assert compose(kind, decoding, prompts, mixing=True)["normal"] == pytest.approx(1000, abs=2)


def test_later_prompts_of_the_step_are_not(kind: type[WeightedTardiness]) -> None:
    decoding = [dated(f"urgent {number}", URGENT) for number in range(40)]
    prompts = [dated(f"normal {number}", NORMAL, prompt=300) for number in range(2)]
    prompts.append(dated("last", NORMAL, prompt=3000))
    tokens = compose(kind, decoding, prompts, mixing=True)
    assert sum(tokens.values()) - 40 == pytest.approx(1000, abs=2)


def test_prompts_alone_are_not(kind: type[WeightedTardiness]) -> None:
    prompts = [dated("urgent", URGENT), dated("normal", NORMAL, prompt=3000)]
    assert compose(kind, [], prompts, mixing=True) == compose(kind, [], prompts, mixing=False)


@pytest.mark.parametrize(
    ("count", "mixing", "joining"), [(1, False, 1), (1, True, 0), (20, False, 20), (20, True, 5)]
)
def test_decoding_sequences_that_join_prompts_are_charged_with_it(
    kind: type[WeightedTardiness], count: int, joining: int, *, mixing: bool
) -> None:
    # 5.5 ms of slack, and mixing costs 1 ms for each of twenty, or 20 ms for a long one.
    prompts = [dated("urgent", URGENT)]
    decoding = [dated(f"normal {number}", NORMAL, prompt=2000 // count) for number in range(count)]
    tokens = compose(kind, decoding, prompts, mixing=mixing, now=0.1245)
    assert tokens["urgent"] == 100
    assert len(tokens) == 1 + joining


@pytest.mark.parametrize(("mixing", "joining"), [(False, 20), (True, 0)])
def test_so_are_answers_in_progress(joining: int, *, mixing: bool) -> None:
    # Each of them would make the urgent task late.
    decoding = [ordinary(f"chat {number}", prompt=1000) for number in range(20)]
    tokens = compose(Timely, decoding, [dated("urgent", URGENT)], mixing=mixing, now=0.1245)
    assert tokens["urgent"] == 100
    assert len(tokens) == 1 + joining
