"""Control events of the scheduler inside vLLM, without a model."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from timely.core.hints import RequestHints
from timely.core.utility import NORMAL, TimeUtility
from timely.disciplines import registry
from timely.disciplines.base import Discipline
from timely.engines import active_discipline
from timely.engines.base import ResponsePrediction
from timely.engines.scheduler_core import EngineController

pytestmark = pytest.mark.engine

WAIT_S = 10.0


def control_events(controller: EngineController, engine: int = 0) -> Any:
    pytest.importorskip("vllm", reason="needs vLLM")
    from timely.engines.vllm.control import VllmControlEvents
    from timely.engines.vllm.request_state import VllmLiveRequests
    from timely.engines.vllm.settings import SchedulerSettings

    settings = SchedulerSettings.model_validate({})
    return VllmControlEvents(
        lambda: controller, VllmLiveRequests(), settings, set(), lambda *_: None, dict, engine
    )


async def test_a_task_on_its_way_counts_for_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm", reason="needs vLLM")
    from timely.engines.vllm.arguments import VllmOptions
    from timely.engines.vllm.engine import VllmEngine

    networks_s: list[list[float]] = [[], []]

    def new_engine(number: int) -> Any:
        controller = EngineController(registry.create_discipline("timely"))

        def predict(utility: TimeUtility, now: float, ahead: Sequence[RequestHints]) -> ResponsePrediction:
            networks_s[number] = [hints.network_s for hints in ahead]
            return ResponsePrediction(1.0 - number / 2.0, 1.0)

        monkeypatch.setattr(controller, "predict_response", predict)
        return control_events(controller, number)

    engines = [new_engine(0), new_engine(1)]

    async def ask(method: str, event: dict[str, Any]) -> list[dict[str, Any]]:
        return [engine.answer(event, 1.0) for engine in engines]

    front = VllmEngine(VllmOptions())
    core = SimpleNamespace(core_engines=[b"0", b"1"], call_utility_all_async=ask)
    front._llm = SimpleNamespace(engine_core=core)
    front._live = {"sent": 1, "being sent": None}
    names = ("sent", "being sent", "new", "newer", "newest")
    ahead = {name: RequestHints(network_s=float(place)) for place, name in enumerate(names)}
    prediction = await front.predict_response(NORMAL, ahead)
    assert prediction == ResponsePrediction(0.5, 1.0)
    assert networks_s == [[1.0, 3.0], [0.0, 2.0, 4.0]]


def test_a_discipline_loads_beside_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    create = registry.create_discipline
    controller = EngineController(create("timely"))
    events = control_events(controller)
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


def test_each_of_several_reports_has_its_own_answer() -> None:
    controller = EngineController(registry.create_discipline("timely"))
    events = control_events(controller)
    report = {"kind": "report", "task_id": "nobody", "report": {"segment": 0, "kind": "done"}}
    wrong = {**report, "report": {"segment": -1, "kind": "done"}}
    unexpected = {**report, "report": {"no such field": 1}}
    answer = events.answer({"kind": "reports", "reports": [report, wrong, unexpected, report]}, 1.0)
    assert answer["answers"][0] == answer["answers"][3] == {"known": False}
    assert answer["answers"][1]["error"]["code"] == "invalid_input"
    assert answer["answers"][2]["error"]["code"] == "engine_failed"
