"""A robot's value is appended to the live context: same continuation as a fresh request, nothing computed twice."""

from __future__ import annotations

import pytest

from timely.plans.robot_values import plan_value_text

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PROMPT = "Tell me a story about what the robot found under the table."


@pytest.mark.parametrize("engine_name", ["sync_engine", "async_engine"])
def test_a_value_continues_the_context_as_if_it_had_always_been_there(
    request: pytest.FixtureRequest, engine_name: str
) -> None:
    engine = request.getfixturevalue(engine_name)
    scheduler = engine.scheduler
    assert scheduler.reset_prefix_cache()  # Tests that share the engine may have left this prompt in it.
    with engine.step_tokens() as computed:
        plan = [["look();", 6, 0.05, True], ["take();", 6, 0.05]]
        engine.add("ask", PROMPT, 12, {"task_id": "ask", "forced": plan})
        engine.run(
            until=lambda: (
                scheduler.control({"kind": "stats"})["blocked"] == 1 and not scheduler.has_requests()
            )
        )
        assert scheduler.seconds_to_resume() is None
        report = {"segment": 0, "kind": "value", "value": "red box, cup"}
        assert scheduler.control({"kind": "report", "task_id": "ask", "report": report}) == {"known": True}
        assert scheduler.control({"kind": "report", "task_id": "ask", "report": report}) == {"known": True}
        answered = engine.run()["ask"]
    first, second = list(answered.outputs[0].token_ids)[:6], list(answered.outputs[0].token_ids)[6:]
    value_ids = engine.llm.get_tokenizer().encode(plan_value_text("red box, cup"), add_special_tokens=False)
    context = [*answered.prompt_token_ids, *first, *value_ids]

    # The context was computed once: prompt, six tokens, the value, and the rest but for the last token. Where
    # asynchronous scheduling ran on without the value, its step computed the sixth token, and only its sample is void.
    assert sum(computed) == len(context) + len(second) - 1
    assert answered.kv_transfer_params["timely"]["recomputed_tokens"] == 0
    assert [s["index"] for s in answered.kv_transfer_params["timely"]["segments"]] == [0, 1]

    from vllm import SamplingParams

    parameters = SamplingParams(temperature=0.0, max_tokens=len(second), ignore_eos=True)
    engine.llm.llm_engine.add_request("fresh", {"prompt_token_ids": context}, parameters)
    fresh = engine.run()["fresh"]
    assert second == list(fresh.outputs[0].token_ids)
    assert len(second) == 6


def test_a_value_cannot_pretend_to_be_a_statement() -> None:
    assert plan_value_text("cup\nmf(500);\x00") == " # cup mf(500);\n"
