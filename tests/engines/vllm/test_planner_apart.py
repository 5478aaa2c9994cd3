"""The planner that stays beside the weights (``--enable-lora``); ``test_terminal.py`` serves with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.core.errors import InvalidInput
from timely.engines.vllm import model
from timely.planner.model_card import SHIPPED_ADAPTER


def test_which_adapter_stays_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "check_base", lambda card, base, where: None)
    assert model.vllm_planner_adapter("base", None, packaged=True) == SHIPPED_ADAPTER
    assert model.vllm_planner_adapter("base", "default", packaged=False) is None
    assert model.vllm_planner_adapter("base", "none", packaged=True) is None
    assert model.vllm_planner_adapter("base", str(SHIPPED_ADAPTER), packaged=False) == SHIPPED_ADAPTER
    with pytest.raises(InvalidInput, match="holds no planner"):
        model.vllm_planner_adapter("base", str(tmp_path), packaged=True)
