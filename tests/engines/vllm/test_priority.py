"""vLLM's own ``priority``, without any time-utility: a waiting request displaces a less important running one.

vLLM itself preempts running requests only for want of memory, not because all slots are taken (its issue 40004).
The same scene runs under its stock scheduler and under ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


def scene(engine: Any) -> tuple[list[str], dict[str, Any]]:
    """Two slots, two long unimportant requests in them, then a short important one; the order of their ends."""
    for name in ("low-0", "low-1"):
        engine.add(name, f"Count slowly, {name}.", 20, priority=5)
    for _ in range(6):
        engine.llm.llm_engine.step()
    engine.add("high", "Quick!", 8, priority=0)
    order: list[str] = []
    outputs: dict[str, Any] = {}
    while engine.llm.llm_engine.has_unfinished_requests():
        for output in engine.llm.llm_engine.step():
            if output.finished:
                order.append(output.request_id)
                outputs[output.request_id] = output
    return order, outputs


OURS = "timely.engines.vllm.scheduler.TimelyScheduler"


def test_displaces_a_running_request_when_all_slots_are_taken(
    tiny_model: str, new_engine: Callable[..., Any]
) -> None:
    results = {}
    for scheduler in (OURS, None):
        engine = new_engine(
            model=tiny_model, max_num_seqs=2, scheduling_policy="priority", scheduler_cls=scheduler
        )
        results[scheduler] = scene(engine)
    ours, stock = results[OURS], results[None]
    assert ours[0][0] == "high"
    assert stock[0][0] != "high"
    for name, output in ours[1].items():
        assert list(output.outputs[0].token_ids) == list(stock[1][name].outputs[0].token_ids)
