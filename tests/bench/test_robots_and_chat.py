"""Robots beside chat: the ratios, on a fake load and over HTTP on an engine without a model."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from timely.bench import chat_and_first_segment
from timely.bench.chat_and_first_segment import benchmark_first_segments
from timely.bench.robots_and_chat import (
    BenchHttpLoad,
    BenchLoadResult,
    bench_tokens_until,
    benchmark_robots_and_chat,
)
from timely.core.errors import EngineFailed
from timely.engines.scripted import ScriptedEngine
from timely.server.app import create_app
from timely.server.server_thread import ServerThread
from timely.server.settings import ServerSettings


class FakeLoad:
    """An engine of 100 tokens a second, of which robots take ten; chat delays them by a half."""

    async def run(self, robots: int, chats: int, seconds: float) -> BenchLoadResult:
        responses_s = [0.2, 0.3 if chats else 0.2, 0.9] if robots else []
        robot_tokens = 10.0 if robots else 0.0
        busy_share = 1.0 if chats else 0.2
        return BenchLoadResult(
            responses_s, 100.0 - 2.8 * robot_tokens if chats else 0.0, robot_tokens, busy_share
        )


async def test_ratios_are_over_each_load_alone() -> None:
    lines: list[str] = []
    result = await benchmark_robots_and_chat(
        FakeLoad().run, robots=8, chats=24, seconds=1.0, repetitions=1, say=lines.append
    )
    assert result["urgent_response_ratio"] == pytest.approx(1.5)
    assert result["chat_throughput_share"] == pytest.approx(72.0 / 90.0)
    assert result["chat_share_of_idle_time"] == pytest.approx(72.0 / 80.0)
    assert result["robots_busy_share"] == 0.2
    assert [line.split(":")[0] for line in lines] == [
        f"repetition 1, {name}" for name in ("robots", "both", "chat")
    ]


async def test_loads_take_turns_and_a_slow_repetition_does_not_decide() -> None:
    class SlowSecond(FakeLoad):
        """The machine is at half of its speed for the three loads of the second repetition."""

        loads = 0

        async def run(self, robots: int, chats: int, seconds: float) -> BenchLoadResult:
            result = await super().run(robots, chats, seconds)
            self.loads += 1
            if 3 < self.loads <= 6:
                return BenchLoadResult(
                    [2.0 * response_s for response_s in result.urgent_response_s],
                    result.chat_tokens_per_s / 2.0,
                    result.robot_tokens_per_s / 2.0,
                    result.busy_share / 2.0,
                )
            return result

    lines: list[str] = []
    result = await benchmark_robots_and_chat(
        SlowSecond().run, robots=8, chats=24, seconds=1.0, repetitions=3, say=lines.append
    )
    assert result["urgent_response_ratio"] == pytest.approx(1.5)
    assert result["chat_tokens_per_s"] == {"both": 72.0, "chat": 100.0}
    assert result["robots_busy_share"] == 0.2
    assert [row["robots_busy_share"] for row in result["repetitions"]] == [0.2, 0.1, 0.2]
    order = [line.partition(", ")[2].split(":")[0] for line in lines]
    assert order == ["robots", "both", "chat", "both", "chat", "robots", "chat", "robots", "both"]


async def test_without_an_urgent_answer_there_is_no_ratio() -> None:
    loads: list[tuple[int, int]] = []

    class NoAnswers(FakeLoad):
        async def run(self, robots: int, chats: int, seconds: float) -> BenchLoadResult:
            loads.append((robots, chats))
            return BenchLoadResult()

    with pytest.raises(EngineFailed, match="no urgent task"):
        await benchmark_robots_and_chat(
            NoAnswers().run, robots=8, chats=24, seconds=1.0, repetitions=3, say=lambda line: None
        )
    assert loads == [(8, 0)], "and no more is measured"


@pytest.mark.parametrize(("finish_s", "tokens"), [(3.0, 48.0), (6.0, 48.0), (8.0, 36.0), (18.0, 16.0)])
def test_an_answer_that_is_unfinished_at_the_end_counts_in_part(finish_s: float, tokens: float) -> None:
    assert bench_tokens_until(6.0, 0.0, finish_s, 48) == pytest.approx(tokens)


@pytest.mark.process
async def test_robots_are_served_over_http() -> None:
    with ServerThread(create_app(ScriptedEngine(), ServerSettings())) as server:
        result = await BenchHttpLoad(server.url).run(3, 0, 2.0)
    assert result.urgent_response_s
    assert result.robot_tokens_per_s > 0.0
    assert 0.0 < result.busy_share <= 1.0
    assert result.chat_tokens_per_s == 0.0


@pytest.mark.process
async def test_first_segments_alone_and_beside_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    # An engine without a model serves no chat.
    monkeypatch.setattr(chat_and_first_segment, "_streaming_bench_chat", lambda url: nullcontext())
    lines: list[str] = []
    with ServerThread(create_app(ScriptedEngine(), ServerSettings())) as server:
        result = await benchmark_first_segments(server.url, 1, lines.append)
    assert result["first_segment_s"].keys() == {"alone", "beside_chat"}
    assert result["first_segment_ratio"].keys() == {"normal", "urgent"}
    assert len(lines) == 2
