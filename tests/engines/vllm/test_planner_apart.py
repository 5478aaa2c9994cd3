"""The planner that stays beside the weights (``--enable-lora``); ``test_terminal.py`` serves with one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from timely.core.errors import InvalidInput
from timely.engines.vllm import engine, model
from timely.engines.vllm.engine import VllmEngine
from timely.planner.model_card import SHIPPED_ADAPTER


def test_which_adapter_stays_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "check_planner_base", lambda card, base, where: None)
    assert model.vllm_planner_adapter("base", None, packaged=True) == SHIPPED_ADAPTER
    assert model.vllm_planner_adapter("base", "default", packaged=False) is None
    assert model.vllm_planner_adapter("base", "none", packaged=True) is None
    assert model.vllm_planner_adapter("base", str(SHIPPED_ADAPTER), packaged=False) == SHIPPED_ADAPTER
    with pytest.raises(InvalidInput, match="holds no planner"):
        model.vllm_planner_adapter("base", str(tmp_path), packaged=True)


@pytest.mark.engine
def test_the_planner_has_neither_number_nor_name_of_another_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM takes an adapter for loaded whose number it knows: plans would be written by that of a chat."""
    pytest.importorskip("vllm", reason="needs vLLM")
    from vllm.utils.counter import AtomicCounter

    monkeypatch.setattr(engine, "vllm_planner_adapter", lambda *_, **__: SHIPPED_ADAPTER)
    served = VllmEngine()
    served._args = SimpleNamespace(enable_lora=True, model="base")
    assert served._planner_card() is not None
    modules = AtomicCounter(0)
    assert served._lora.lora_int_id not in {modules.inc(1) for _ in range(10_000)}
    assert served._lora.lora_name == "timely-planner"
