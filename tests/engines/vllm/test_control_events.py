"""Control events of the scheduler inside vLLM, without a model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from timely.disciplines import registry
from timely.disciplines.base import Discipline
from timely.engines import active_discipline
from timely.engines.scheduler_core import Controller

pytestmark = pytest.mark.engine

WAIT_S = 10.0


def test_a_discipline_loads_beside_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    from timely.engines.vllm.control import ControlEvents
    from timely.engines.vllm.request_state import LiveRequests
    from timely.engines.vllm.settings import SchedulerSettings

    create = registry.create_discipline
    controller = Controller(create("timely"))
    events = ControlEvents(
        lambda: controller, LiveRequests(), SchedulerSettings.model_validate({}), set(), lambda *_: None, dict
    )
    loading, loaded, created = threading.Event(), threading.Event(), list[Discipline]()

    def slow(name: str, files: Sequence[Path] = ()) -> Discipline:
        loading.set()
        assert loaded.wait(WAIT_S)
        created.append(create(name, files))
        return created[-1]

    monkeypatch.setattr(active_discipline, "create_discipline", slow)
    load, switch = {"kind": "load_discipline", "name": "fcfs"}, {"kind": "discipline", "name": "fcfs"}
    assert events.answer(load, 1.0) == {"known": True, "loaded": False}
    assert loading.wait(WAIT_S)
    assert controller.discipline.info.name == "timely"
    loaded.set()
    assert events.answer(switch, 2.0) == {"known": True}
    assert [controller.discipline] == created
