"""Drafts on the real engine: the same text with fewer steps.

LAPS-SD with n-gram drafts also reads the acceptance from the scheduler and keeps its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from optional_packages import require_package
from tiny_models import write_tiny_model

from timely.core.job import Job
from timely.disciplines.laps_sd.discipline import LapsSd
from timely.engines.vllm.forced_drafts import SPECULATIVE_CONFIG

require_package("vllm")

pytestmark = pytest.mark.engine

DRAFTS = 4
TOKENS = 48
PROMPTS = {
    "counting": "one two three four one two three four one two three four one two three four one two",
    "story": "Tell me a story about a robot and a lake.",
    "list": "red, green, blue, red, green, blue, red, green, blue, red, green, blue, red,",
}


def served(engine: Any) -> dict[str, list[int]]:
    for name, prompt in PROMPTS.items():
        engine.add(name, prompt, TOKENS)
    done = engine.run()
    return {name: list(output.outputs[0].token_ids) for name, output in done.items()}


@pytest.fixture(scope="session")
def reciting_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model whose text repeats itself, as n-grams need it."""
    return str(write_tiny_model(tmp_path_factory.mktemp("reciting") / "model", "reciting"))


BIAS_TOKEN = 70
CHATS: dict[str, dict[str, Any]] = {
    "seeded": {"temperature": 1.0, "seed": 1, "top_p": 0.9},
    "min_p": {"temperature": 1.0, "min_p": 1.0},  # leaves the likeliest token alone
    "biased": {"temperature": 0.0, "logit_bias": {BIAS_TOKEN: 100.0}},
    "greedy": {"temperature": 0.0, "logprobs": 2},
}
"""Sampling parameters of ordinary requests whose tokens do not depend on draws without a seed."""


def planned(
    engine: Any, chats: dict[str, dict[str, Any]] | None = None, **sampling: Any
) -> tuple[dict[str, list[int]], int]:
    """Tokens of a plan under a grammar with the names of a scene, and of chats beside it; and the plan's steps.

    Args:
        sampling: parameters of the plan, which is greedy otherwise.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    rules = StructuredOutputsParams(
        grammar="""root ::= call call call call\ncall ::= ("pick" | "place") "('" [a-z ]{1,20} "');\""""
    )
    timely = {"skill_set": "arm", "robot": "sim-arm", "names": ["tin of paint", "kettle"]}
    engine.add(
        "plan", "pick('tin of paint');place('tray');", 80, timely, structured_outputs=rules, **sampling
    )
    for name, parameters in (chats or {}).items():
        chat = SamplingParams(max_tokens=TOKENS, ignore_eos=True, **parameters)
        engine.llm.llm_engine.add_request(name, "Once upon a time", chat)
    # The robot is done with each segment at once.
    controller, steps = engine.scheduler.controller, []
    with pytest.MonkeyPatch.context() as patch:
        close, compose = controller.close_segment, engine.scheduler.schedule
        patch.setattr(
            controller,
            "close_segment",
            lambda job, text, execution_s, now, **more: close(job, text, 0.0, now, **more),
        )

        def counted(*args: Any, **kwargs: Any) -> Any:
            output = compose(*args, **kwargs)
            steps.append(any(name.startswith("plan") for name in output.num_scheduled_tokens))
            return output

        patch.setattr(engine.scheduler, "schedule", counted)
        done = engine.run()
    return {name: list(output.outputs[0].token_ids) for name, output in done.items()}, sum(steps)


def repeated(engine: Any, *, beside: bool = False) -> list[int]:
    """Tokens of a greedy request whose prompt is cached but for its last token, where vLLM pads it with placeholders.

    Args:
        beside: a request that samples runs with it.
    """
    from vllm import SamplingParams

    prompt: Any = {"prompt_token_ids": [65 + place % 26 for place in range(2 * 32 + 1)]}
    engine.add("first", prompt, 1)
    engine.run()
    if beside:
        sampling = SamplingParams(temperature=1.0, seed=1, max_tokens=12, ignore_eos=True)
        engine.llm.llm_engine.add_request("chat", "Once upon a time", sampling)
        engine.llm.llm_engine.step()
    engine.add("again", prompt, 8)
    return list(engine.run()["again"].outputs[0].token_ids)


@pytest.fixture(scope="session")
def plain_plan(sync_engine: Any) -> tuple[dict[str, list[int]], int]:
    """A plan and chats without drafts, from the shared engine."""
    return planned(sync_engine, CHATS)


def test_without_drafts_each_token_of_a_plan_takes_a_step(
    plain_plan: tuple[dict[str, list[int]], int],
) -> None:
    tokens, steps = plain_plan
    assert steps == len(tokens["plan"])
    assert set(tokens["biased"]) == {BIAS_TOKEN}
    assert tokens["min_p"] == tokens["greedy"] != tokens["seeded"]


def test_forced_tokens_of_a_plan_take_no_step(
    plain_plan: tuple[dict[str, list[int]], int],
    tiny_model: str,
    sync_engine: Any,
    new_engine: Callable[..., Any],
) -> None:
    """Nor do they change what requests beside it get, with any parameters of sampling."""
    engine = new_engine(model=tiny_model, speculative_config=dict(SPECULATIVE_CONFIG))
    tokens, steps = planned(engine, CHATS)
    assert tokens == plain_plan[0]
    assert steps <= 0.6 * len(tokens["plan"]), f"{steps} steps for {len(tokens['plan'])} tokens"
    likeliest, drawn_steps = planned(engine, CHATS, temperature=1.0, top_p=1e-6)
    assert likeliest == tokens, "drawn from the likeliest token alone"
    assert drawn_steps == steps
    assert repeated(engine, beside=True) == repeated(engine) == repeated(sync_engine)


def test_laps_sd_with_ngram_drafts(reciting_model: str, new_engine: Callable[..., Any]) -> None:
    import torch

    threads = torch.get_num_threads()
    plain = served(new_engine(model=reciting_model))
    engine = new_engine(
        model=reciting_model,
        speculative_config={
            "method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_max": 3, "prompt_lookup_min": 1,
        },
        additional_config={"timely": {"discipline": "laps-sd", "max_batch": 2}},
    )  # fmt: skip
    scheduler = engine.scheduler
    laps = scheduler.controller.discipline
    assert isinstance(laps, LapsSd)

    heard: list[tuple[str, int, int]] = []
    perceptible: set[object] = set()
    hear = laps.accepted

    def counted(job: Job, draft_tokens: int, right_tokens: int, now: float) -> None:
        hear(job, draft_tokens, right_tokens, now)
        heard.append((str(job.job_id), draft_tokens, right_tokens))

    laps.accepted = counted  # type: ignore[method-assign]
    cut: list[str] = []
    update = scheduler.update_from_output

    def counting(step: Any, result: Any) -> Any:
        """The model runner's counts of drafts and tokens against those of the discipline."""
        verified = {
            name: (len(drafts), len(result.sampled_token_ids[result.req_id_to_index[name]]) - 1)
            for name, drafts in step.scheduled_spec_decode_tokens.items()
        }
        before = len(heard)
        outputs = update(step, result)
        reported = {name: (drafted_tokens, right) for name, drafted_tokens, right in heard[before:]}
        assert set(reported) == set(verified)
        cut.extend(name for name in reported if reported[name] != verified[name])
        perceptible.update(laps._perceptible)
        return outputs

    scheduler.update_from_output = counting
    plans: list[dict[str, Any]] = []
    ran: list[dict[str, int]] = []
    scheduler.controller.journal = lambda event: (
        plans.append(dict(event)) if event["event"] == "step" else None
    )
    schedule = scheduler.schedule

    def noting(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        ran.append(dict(output.num_scheduled_tokens))
        return output

    scheduler.schedule = noting
    drafted = served(engine)

    # Numba's threads would be torch's, and those of all later tests of this worker.
    assert torch.get_num_threads() == threads
    assert drafted == plain, "drafts change when tokens come, not which"
    assert all(len(tokens) == TOKENS for tokens in drafted.values())
    rounds = {name: [(d, a) for who, d, a in heard if who.startswith(name)] for name in PROMPTS}
    assert all(0 <= right <= drafted_tokens <= DRAFTS for _, drafted_tokens, right in heard)
    assert sum(right for _, _, right in heard) > TOKENS, "repetitions are what n-grams foresee"
    assert rounds["counting"]
    # The last round of a request may be cut off at its length; all others are reported as they were.
    assert len(cut) == len(set(cut)) <= len(PROMPTS)
    assert perceptible, "acceptance that holds still makes a request perceptible"

    # What it planned for is what happened: at most two at a time, and only those of the plan.
    steps = [step for step in ran if step]
    assert all(len(step) <= 2 for step in steps)
    planned = [set(plan["tokens"]) for plan in plans if plan["tokens"]]
    assert len(planned) >= len(steps)
    assert all(
        any(set(step) <= plan for plan in planned[place : place + 1]) for place, step in enumerate(steps)
    )
    # Fewer steps than tokens: several came at once.
    assert len(steps) < sum(len(tokens) for tokens in plain.values()) / 2 + len(PROMPTS) * 4
