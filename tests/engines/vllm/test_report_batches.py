"""Reports to vLLM's engine process: several in one call, in order, each with its own answer."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import pytest

from timely.core.errors import EngineDied, EngineFailed
from timely.engines.vllm.report_batches import Answers, VllmReportBatches

TURNS = 20
"""Turns of the event loop in which all that can go on has gone on."""


class HeldCalls:
    """Calls that two engines answer when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[int], asyncio.Future[Answers]]] = []
        self.batches = VllmReportBatches(self.control)

    async def control(self, event: Mapping[str, Any]) -> Answers:
        assert event["kind"] == "reports"
        answers: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self.calls.append(([report["number"] for report in event["reports"]], answers))
        return await answers

    def send(self, number: int, *, at_once: bool = False) -> asyncio.Task[Answers]:
        return asyncio.create_task(self.batches.send({"number": number}, at_once=at_once))

    def answer(self, place: int) -> None:
        numbers, answers = self.calls[place]
        answers.set_result(
            [{"answers": [{"engine": engine, "number": number} for number in numbers]} for engine in range(2)]
        )

    @property
    def sent(self) -> list[list[int]]:
        return [numbers for numbers, _ in self.calls]


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def test_reports_that_come_during_a_call_leave_together() -> None:
    held = HeldCalls()
    tasks = [held.send(0)]
    await settle()
    tasks += [held.send(number) for number in (1, 2, 3)]
    await settle()
    assert held.sent == [[0]]
    held.answer(0)
    await settle()
    assert held.sent == [[0], [1, 2, 3]]
    held.answer(1)
    for number, answers in enumerate(await asyncio.gather(*tasks)):
        assert answers == [{"engine": engine, "number": number} for engine in range(2)]
    held.send(4)
    await settle()
    assert held.sent[2:] == [[4]]


async def test_a_value_takes_the_reports_before_it_along_and_waits_for_no_answer() -> None:
    held = HeldCalls()
    held.send(0)
    await settle()
    held.send(1)
    value = held.send(2, at_once=True)
    await settle()
    assert held.sent == [[0], [1, 2]]
    held.answer(1)
    assert [answer["number"] for answer in await value] == [2, 2]


async def test_a_call_that_fails_fails_its_reports_alone() -> None:
    held = HeldCalls()
    first = held.send(0)
    await settle()
    tasks = [held.send(1), held.send(2)]
    await settle()
    tasks[0].cancel()
    await settle()
    held.calls[0][1].set_exception(EngineFailed("no answer", where="vllm"))
    with pytest.raises(EngineFailed):
        await first
    await settle()
    assert held.sent == [[0], [1, 2]]
    held.answer(1)
    assert [answer["number"] for answer in await tasks[1]] == [2, 2]


async def test_an_engine_that_answers_nothing_holds_no_report_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("timely.engines.vllm.report_batches.MAX_WAIT_S", 0.0)
    held = HeldCalls()
    held.send(0)
    await settle()
    held.send(1)
    await settle()
    assert held.sent == [[0], [1]]


async def test_a_call_that_fails_after_all_gave_up_is_no_error_of_the_loop() -> None:
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    held = HeldCalls()
    task = held.send(0)
    await settle()
    task.cancel()
    await settle()
    held.calls[0][1].set_exception(EngineFailed("gone", where="engine"))
    await settle()
    del task
    held.calls.clear()
    gc.collect()
    assert problems == []


async def test_an_engine_that_ends_takes_its_calls_along_and_the_next_begins_anew() -> None:
    held = HeldCalls()
    tasks = [held.send(0)]
    await settle()
    tasks.append(held.send(1))
    await settle()
    held.batches.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [EngineDied] * 2, "none of them was cancelled"
    held.send(2)
    await settle()
    assert held.sent == [[0], [2]]


async def test_a_call_names_no_task_in_its_log_lines() -> None:
    name: ContextVar[str] = ContextVar("name", default="")
    seen: list[str] = []

    async def control(event: Mapping[str, Any]) -> Answers:
        seen.append(name.get())
        return [{"answers": [{} for _ in event["reports"]]}]

    batches = VllmReportBatches(control)
    name.set("a task")
    await batches.send({}, at_once=False)
    assert seen == [""]
