"""The planner beside the weights (vLLM's ``--enable-lora``): it plans for its skill sets, all else stays base."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.core.errors import InvalidInput
from timely.engines.base import GenerationDone, GenerationRequest
from timely.engines.vllm import model
from timely.engines.vllm.arguments import VllmOptions
from timely.engines.vllm.engine import VllmEngine
from timely.planner.model_card import SHIPPED
from timely.plans.prompt import build_prompt
from timely.plans.skill_library import find_skill_set


def test_which_adapter_stays_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "check_base", lambda card, base, where: None)
    assert model.vllm_planner_adapter("base", None, packaged=True) == SHIPPED
    assert model.vllm_planner_adapter("base", "default", packaged=False) is None
    assert model.vllm_planner_adapter("base", "none", packaged=True) is None
    assert model.vllm_planner_adapter("base", str(SHIPPED), packaged=False) == SHIPPED
    with pytest.raises(InvalidInput, match="holds no planner"):
        model.vllm_planner_adapter("base", str(tmp_path), packaged=True)


@pytest.mark.engine
@pytest.mark.timeout(300)
async def test_only_its_skill_sets_are_planned_with_it() -> None:
    arguments = ("--enable-lora", "--max-loras", "1", "--max-model-len", "1024")
    engine = VllmEngine(VllmOptions(arguments=arguments, warm_up=()))
    await engine.start()
    try:
        assert engine.planner_skill_sets == {"drone", "arm"}
        prompt = build_prompt(find_skill_set("drone"), "Fly forward 2 metres.", examples=False)
        texts = {}
        for skill_set in ("drone", ""):
            request = GenerationRequest(
                task_id=f"task-{skill_set}", prompt=prompt.user, system=prompt.system, skill_set=skill_set,
                constrained=False, max_tokens=12,
            )  # fmt: skip
            done = [event async for event in engine.generate(request)][-1]
            assert isinstance(done, GenerationDone)
            texts[skill_set] = done.text
    finally:
        await engine.stop()
    assert texts["drone"] == "mf(200);"
    assert texts[""] != texts["drone"]  # the same words to the base model
