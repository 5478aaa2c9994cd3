"""What disciplines learn from requests that the real engine finished, also from those that came without words."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def switch(engine: Any, name: str) -> Any:
    assert engine.scheduler.control({"kind": "discipline", "name": name}) == {"known": True}
    return engine.scheduler.controller.discipline


def job_of(engine: Any, name: str) -> Any:
    """vLLM adds a few letters of its own to a request's name."""
    table = engine.scheduler.controller.table
    return next(job for job in table if str(job.job_id).startswith(name))


def test_a_history_is_fed_by_finished_requests_and_outlives_a_switch(sync_engine: Any) -> None:
    history = switch(sync_engine, "sagesched").predictor
    before = len(history)
    for number in range(3):
        sync_engine.add(f"said{number}", "Name one planet.", 4, {"text": "name one planet"})
    sync_engine.run()
    assert len(history) == before + 3
    ssjf = switch(sync_engine, "ssjf")
    assert ssjf.predictor is history
    sync_engine.add("again", "Name one planet.", 4, {"text": "name one planet"})
    sync_engine.llm.llm_engine.step()
    assert ssjf._predictions[job_of(sync_engine, "again").job_id][2].similar >= 3
    sync_engine.run()
    switch(sync_engine, "timely")


def test_a_request_without_words_is_known_by_the_end_of_its_prompt(sync_engine: Any) -> None:
    switch(sync_engine, "sagesched")
    sync_engine.add("mute", "Tell me about the moons of Jupiter.", 3)
    sync_engine.llm.llm_engine.step()
    assert "moons of Jupiter" in job_of(sync_engine, "mute").spec.words
    sync_engine.run()
    # A replay makes its prompts up, and the simulator has none.
    sync_engine.add("replayed", "Tell me about the moons of Jupiter.", 3, {"forced_ids": [7, 8, 9]})
    sync_engine.llm.llm_engine.step()
    assert job_of(sync_engine, "replayed").spec.words == ""
    sync_engine.run()
    switch(sync_engine, "timely")


def test_an_application_is_learned_from_when_all_its_requests_are_over(sync_engine: Any) -> None:
    justitia = switch(sync_engine, "justitia")
    for number in range(2):
        timely = {"app": "merge/1", "app_requests": 2, "text": "merge"}
        sync_engine.add(f"part{number}", "Merge these pages.", 5, timely)
    sync_engine.run()
    assert "merge" in justitia.costs._means
    assert len(justitia.accounts) == 0
    switch(sync_engine, "timely")
