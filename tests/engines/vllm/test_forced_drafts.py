"""Tokens that grammar and names leave no choice about: where they begin and end, and how they are spelled."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from timely.engines.vllm.forced_drafts import ForcedDrafts, NoDrafts
from timely.engines.vllm.name_constraint import VllmPromptNames
from timely.engines.vllm.params import TimelyParams
from timely.plans.forced_text import MOST_DRAFTS
from timely.plans.grammar import plan_grammar
from timely.plans.skill_library import find_skill_set

WORDS = ["pick", "place", "home", "('", "')", "();", "');", "red", " box", "cup", "ho", "me"]
VOCABULARY = ["</s>", *(chr(code) for code in range(32, 127)), *WORDS]


class LongestFirst:
    """A tokenizer that takes the longest token of the vocabulary; ``before`` is a text that it adds."""

    def __init__(self, before: str = "") -> None:
        self.before = before

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        text, ids = self.before + text, []
        while text:
            token = max((word for word in VOCABULARY[1:] if text.startswith(word)), key=len)
            ids.append(VOCABULARY.index(token))
            text = text[len(token) :]
        return ids


@pytest.fixture(scope="module")
def compiler() -> Any:
    """xgrammar's, as vLLM keeps it, and a way to begin a plan."""
    xgrammar = pytest.importorskip("xgrammar")
    info = xgrammar.TokenizerInfo(VOCABULARY, stop_token_ids=[0])
    grammars = xgrammar.GrammarCompiler(info, max_threads=1)
    return SimpleNamespace(
        tokenizer_info=info, begin=lambda rules: xgrammar.GrammarMatcher(grammars.compile_grammar(rules))
    )


NO_SAMPLING = {"seed": None, "temperature": 0.0, "min_p": 0.0, "logit_bias": None}


def drafted(
    compiler: Any,
    plan: str,
    names: list[str] | None = None,
    *,
    rules: str = "",
    tokenizer: Any = None,
    own: list[int] | None = None,
    awaits_value: bool = False,
    sampling: Mapping[str, Any] = NO_SAMPLING,
) -> list[str]:
    """The drafts of a request that has written ``plan``, token by token."""
    skill_set = find_skill_set("arm").model_copy(update={"max_statements": 2})
    matcher = compiler.begin(rules or plan_grammar(skill_set))
    assert matcher.accept_string(plan)
    request = SimpleNamespace(
        request_id="r", spec_token_ids=own or [], is_prefill_chunk=False, is_finished=lambda: False,
        structured_output_request=SimpleNamespace(grammar=SimpleNamespace(matcher=matcher, ctx=compiler)),
        sampling_params=SimpleNamespace(**{**NO_SAMPLING, **sampling}),
    )  # fmt: skip
    manager = SimpleNamespace(validate_tokens=lambda request, token_ids: token_ids)
    scheduler: Any = SimpleNamespace(
        structured_output_manager=manager, num_spec_tokens=MOST_DRAFTS, requests={"r": request}
    )
    written = VllmPromptNames(scheduler)
    written.begin("r", TimelyParams.model_validate({"skill_set": "arm", "names": names}))
    written.wrote("r", LongestFirst().encode(plan, add_special_tokens=False))
    live: Any = SimpleNamespace(
        with_boundaries={"r": SimpleNamespace(request=request, awaits_value=awaits_value)}
    )
    drafts = ForcedDrafts(scheduler, live, written, lambda: tokenizer or LongestFirst(), on_cpu=True)
    drafts.propose(["r", "a chat"])
    return [VOCABULARY[token] for token in request.spec_token_ids]


def step_of(
    drafts: dict[str, list[int]], *, on_cpu: bool = True
) -> tuple[dict[str, list[int]], dict[str, int], int]:
    """Drafts, tokens by request and all tokens of a step with a plan, a request and a chat."""
    tokens = {name: 1 + len(drafts.get(name, ())) for name in ("plan", "request", "chat")}
    step: Any = SimpleNamespace(
        scheduled_spec_decode_tokens=dict(drafts), num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
    )  # fmt: skip
    nothing: Any = None
    ForcedDrafts(nothing, nothing, nothing, nothing, on_cpu=on_cpu).take_out(step)
    return step.scheduled_spec_decode_tokens, step.num_scheduled_tokens, step.total_num_scheduled_tokens


@pytest.mark.process
@pytest.mark.parametrize(
    ("plan", "names", "drafts"),
    [
        ("pi", ["cup"], ["c", "k", "('", "cup"]),
        ("pick", ["cup"], ["('", "cup", "');"]),
        ("pick", None, ["('"]),
        ("pick('", ["red box", "red cup"], ["red", " "]),
        ("pick('red", ["red", "red box"], []),
        ("pick('red", ["red box", "cup"], [" box", "');"]),
        ("pick('x", ["cup"], []),
        ("p", ["cup"], []),
        ("say('cup", ["cup"], []),
        ("home();open();", ["cup"], []),
    ],
)
def test_what_grammar_and_names_force(
    compiler: Any, plan: str, names: list[str] | None, drafts: list[str]
) -> None:
    assert drafted(compiler, plan, names) == drafts


@pytest.mark.process
def test_drafts_end_where_a_segment_may_end(compiler: Any) -> None:
    assert drafted(compiler, "ho", rules='root ::= "home();home();"') == ["me", "();"]


@pytest.mark.process
def test_a_tokenizer_that_spells_another_text_drafts_nothing(compiler: Any) -> None:
    assert drafted(compiler, "pick", ["cup"], tokenizer=LongestFirst(before=" ")) == []


@pytest.mark.process
def test_nothing_is_drafted_behind_a_blocking_skill(compiler: Any) -> None:
    assert drafted(compiler, "pick", ["cup"], awaits_value=True) == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("sampling", "drafts"),
    [
        ({"seed": 7, "temperature": 1.0}, []),
        ({"seed": 7}, ["('"]),
        ({"temperature": 1.0}, ["('"]),
        ({"temperature": 1.0, "min_p": 0.1}, []),
        ({"logit_bias": {3: 1.0}}, []),
    ],
)
def test_draws_by_a_seed_and_changed_logits_take_no_drafts(
    compiler: Any, sampling: dict[str, Any], drafts: list[str]
) -> None:
    assert drafted(compiler, "pick", sampling=sampling) == drafts


@pytest.mark.process
def test_drafts_of_the_engine_stay_where_nothing_else_is_forced(compiler: Any) -> None:
    place, longer = VOCABULARY.index("place"), [VOCABULARY.index(word) for word in ("('", "red")]
    assert drafted(compiler, "p", own=[place]) == ["place"]
    assert drafted(compiler, "pick", own=longer) == ["('", "red"], "it goes on behind the forced token"
    assert drafted(compiler, "pick", ["cup"], own=longer) == ["('", "cup", "');"]


def test_on_a_cpu_no_placeholder_is_computed() -> None:
    drafts = {"plan": [3, 4], "request": [-1, -1, -1, -1]}
    assert step_of(drafts) == ({"plan": [3, 4]}, {"plan": 3, "request": 1, "chat": 1}, 5)
    assert step_of(drafts, on_cpu=False)[0] == drafts


def test_the_workers_draft_nothing() -> None:
    drafter = NoDrafts(None)
    drafter.load_model(None)
    assert drafter.propose([[1], [], [2, 3]], None, slot_mappings=None) == [[], [], []]
