"""The mixed load's own account: whoever is never answered is a finding, not the end of a long comparison."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from timely.bench import mixed_load


async def test_what_is_not_answered_in_time_is_noted_and_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    hung_up: list[str] = []

    async def never(*arguments: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            hung_up.append("one")
            raise

    monkeypatch.setattr(mixed_load, "DRAIN_S", 0.05)
    monkeypatch.setattr(mixed_load, "run_benchmark_robot_client", never)
    monkeypatch.setattr(mixed_load, "_run_bench_load_chats", never)
    account = await asyncio.wait_for(mixed_load.run_mixed_benchmark_load("http://127.0.0.1:9", 0.0), 10)
    assert account.failures == ["not all was answered 0.05 s after the last request"]
    assert len(hung_up) == len(mixed_load.ROBOTS) + 1
