"""Generated cases: seeded, right by their own trials, held-out apart from training; judges that can say no."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise, product

import pytest

from examples import examples
from lrtrace.compose.tasks import TASKS
from timely.core.errors import UnknownName
from timely.planner.cases.case import PlannerCase, case_failure, case_plan_refuses
from timely.planner.cases.generate import GENERATORS, generate_cases
from timely.planner.cases.vocabulary import PHRASES, WORDS, CaseSplitList, Split, coinable_case_words
from timely.planner.cases.wordings import _CHOICE, _tidy_case_text
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set

MANY = 200 + examples(400)


def made_anew(skill_set: str, split: Split, count: int = MANY, seed: int = 3) -> tuple[PlannerCase, ...]:
    # Each is parsed, checked and carried out as it is generated: a wrong one raises.
    return tuple(islice(generate_cases(skill_set, split, seed), count))


@cache
def stream(skill_set: str, split: Split, seed: int) -> tuple[list[PlannerCase], Iterator[PlannerCase]]:
    """The cases that were taken so far, and those to come."""
    return [], generate_cases(skill_set, split, seed)


def made(skill_set: str, split: Split, count: int = MANY, seed: int = 3) -> list[PlannerCase]:
    cases, more = stream(skill_set, split, seed)
    cases.extend(islice(more, max(0, count - len(cases))))
    return cases[:count]


@pytest.mark.parametrize("skill_set", sorted(GENERATORS))
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_family_is_drawn_and_right(skill_set: str, split: Split) -> None:
    cases = made(skill_set, split)
    families = {case.family for case in cases}
    assert families == {case.family for case in made(skill_set, "train", seed=4)}
    assert 0.08 < sum(case.refusal for case in cases) / MANY < 0.3
    assert all(case_plan_refuses(case.plan) == case.refusal for case in cases)
    assert sum(bool(case.history) for case in cases) > MANY * 0.01


@pytest.mark.parametrize("skill_set", sorted(GENERATORS))
def test_the_same_seed_gives_the_same_cases(skill_set: str) -> None:
    first = [(case.task, case.scene, case.plan) for case in made_anew(skill_set, "train", 50)]
    assert first == [(case.task, case.scene, case.plan) for case in made_anew(skill_set, "train", 50)]
    assert first != [(case.task, case.scene, case.plan) for case in made_anew(skill_set, "train", 50, seed=4)]


PRINT_HASH = """
import hashlib
from itertools import chain, islice
from timely.planner.cases.from_examples import cases_of
from timely.planner.cases.generate import GENERATORS, generate_cases
from timely.plans.skill_library import find_skill_set
sources = [islice(generate_cases(s, "train", 0, coin_share=0.3), 600) for s in GENERATORS]
sources += [islice(cases_of(find_skill_set(s), "train", 0), 200) for s in GENERATORS]
cases = [(c.task, c.scene, c.history, c.plan) for c in chain(*sources)]
print(hashlib.sha256(repr(cases).encode()).hexdigest())
"""


@pytest.mark.process
def test_the_same_seed_gives_the_same_cases_in_every_process() -> None:
    """Texts hash differently in each process, and so the order of sets differs."""
    hashes = {
        subprocess.run(
            [sys.executable, "-c", PRINT_HASH], env={**os.environ, "PYTHONHASHSEED": seed}, timeout=120, check=True,
            capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("skill_set", "seed", "begins"),
    [("drone", 1, "10025f3c"), ("drone", 2, "ccb24565"), ("arm", 1, "54548ea1"), ("arm", 2, "6b7a3aaf")],
)
def test_the_held_out_test_is_still_the_one_scores_were_measured_on(
    skill_set: str, seed: int, begins: str
) -> None:
    """A change to what training draws must not move these hashes. A change of the test needs new measurements."""
    digest = hashlib.sha256()
    for case in made(skill_set, "test", 192, seed):
        digest.update(repr((case.task, case.scene, case.history, case.plan)).encode())
    assert digest.hexdigest().startswith(begins)


@pytest.mark.parametrize("skill_set", sorted(GENERATORS))
def test_coined_names_are_names_of_no_table(skill_set: str) -> None:
    """And the plans that copy them are right; without a share of them nothing is drawn."""
    coined = list(islice(generate_cases(skill_set, "train", 3, coin_share=0.5), 200))
    plain = made(skill_set, "train")[:200]
    assert [case.task for case in coined] != [case.task for case in plain]
    table_words = set(re.findall("[a-z]+", f"{WORDS} {PHRASES}"))

    def unknown(cases: Sequence[PlannerCase]) -> int:
        return sum(bool(set(re.findall(r"'([a-z]+)'", case.plan)) - table_words) for case in cases)

    assert unknown(coined) > unknown(plain) + 20


@pytest.mark.process
@pytest.mark.parametrize("skill_set", sorted(GENERATORS))
def test_no_task_of_the_test_is_one_of_training(skill_set: str) -> None:
    trained = {(case.task, case.scene, case.history) for case in made(skill_set, "train", 3000)}
    assert not any((case.task, case.scene, case.history) in trained for case in made(skill_set, "test"))


@pytest.mark.parametrize(
    "table",
    [
        "adjectives", "animals", "arm_places", "looked_at", "messages", "movers", "needs", "people", "questions",
        "sort_places", "surfaces", "unders",
    ],
)  # fmt: skip
def test_held_out_words_are_none_of_training(table: str) -> None:
    words: CaseSplitList[object] = getattr(WORDS, table)
    assert words.test
    assert not set(words.train) & set(words.test)


def test_things_of_the_test_are_in_no_table_of_training() -> None:
    """An object may stand in several tables: held-out names are in no table of training."""
    tables = [WORDS.drone_objects, WORDS.nouns, WORDS.arm_objects, *WORDS.groups.values()]
    trained = {name for table in tables for name in table.train}
    assert len(trained) > 1500
    assert not trained & {name for table in tables for name in table.test}


def expand_wording(pattern: str) -> tuple[str, ...]:
    """All wordings of a pattern, in order."""
    texts = [pattern]
    # Innermost choices first, so that choices may stand in choices.
    while any("(" in text for text in texts):
        texts = [wording for text in texts for wording in expand_innermost(text)]
    return tuple(dict.fromkeys(_tidy_case_text(text) for text in texts))


def expand_innermost(text: str) -> list[str]:
    parts = _CHOICE.split(text)
    options = [part.split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(choices) for choices in product(*options)]


def test_no_wording_of_the_test_is_one_of_training() -> None:
    def plain(text: str) -> str:
        return text.lower().rstrip(".!?")

    assert PHRASES["train"].keys() == PHRASES["test"].keys()
    count = 0
    for key, held in PHRASES["test"].items():
        trained = {plain(text) for pattern in PHRASES["train"][key] for text in expand_wording(pattern)}
        count += len(trained)
        shared = {plain(text) for text in held} & trained
        # "put the cup there" has one structure, whatever the verb; the verbs are held out.
        assert shared <= ({"{v} {c}"} if key == "arm put one" else set()), key
    assert count > 7000


def test_a_pattern_is_written_out() -> None:
    assert expand_wording("(go|fly) there(| now).") == (
        "go there.",
        "go there now.",
        "fly there.",
        "fly there now.",
    )
    assert expand_wording("(a|b (c|d))") == ("a", "b c", "b d")


@pytest.mark.parametrize("skill_set", sorted(GENERATORS))
def test_another_case_s_plan_is_wrong(skill_set: str) -> None:
    skills = find_skill_set(skill_set)
    cases = made(skill_set, "test")[:150]
    wrong = [bool(case_failure(case, other.plan, skills)) for case, other in pairwise(cases)]
    assert sum(wrong) > 0.9 * len(wrong)


@pytest.mark.parametrize("skill_set", sorted(GENERATORS))
def test_doing_nothing_or_refusing_is_no_way_to_succeed(skill_set: str) -> None:
    skills = find_skill_set(skill_set)
    refusal = next(case.plan for case in made(skill_set, "train") if case.family == "unsafe")
    tasks = [case for case in made(skill_set, "test")[:200] if not case.refusal]
    assert all(case_failure(case, refusal, skills) for case in tasks)


def test_a_plan_in_other_words_that_does_the_same_succeeds() -> None:
    skills = find_skill_set("drone")
    case = next(case for case in made("drone", "train") if case.family == "find")
    name = case.plan.split("'")[1]
    assert case_failure(case, f"?s('{name}'){{o('{name}');g('{name}');}}", skills) == ""
    assert "went to" in case_failure(case, "tp();", skills)
    assert case_failure(case, "?s(", skills)


def test_first_segments_are_short() -> None:
    for skill_set in GENERATORS:
        segments = []
        for case in made(skill_set, "train")[:200]:
            segmenter = Segmenter(find_skill_set(skill_set))
            segments.append([*segmenter.feed(case.plan), *segmenter.close()][0].text)
        assert max(map(len, segments)) <= 60
        assert sum(map(len, segments)) / len(segments) < 30


@pytest.mark.process
def test_the_paper_s_tasks_are_not_in_the_training_set() -> None:
    paper = {task.task for task in TASKS.values()}
    for skill_set in GENERATORS:
        assert not paper & {case.task for case in made(skill_set, "train", 2000)}


def test_a_skill_set_without_a_generator() -> None:
    with pytest.raises(UnknownName, match="arm, drone"):
        next(generate_cases("chat", "train", 0))


def test_words_of_a_vocabulary_that_may_be_names() -> None:
    """None of the wordings', none that is held out, nothing but whole words."""
    mark = "\u0120"
    vocabulary = [
        f"{mark}flamingo",
        f"{mark}turquoise",
        f"{mark}find",
        f"{mark}cathedral",
        f"{mark}Paris",
        "ing",
        f"{mark}x1y2",
    ]
    assert coinable_case_words(vocabulary) == ("cathedral",)
    case = next(
        case
        for case in generate_cases("arm", "train", 0, coin_share=1.0, coinable=("cathedral",))
        if case.family == "put"
    )
    assert "cathedral" in case.plan
