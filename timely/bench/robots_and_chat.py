"""Robots beside chat on a live server: the urgent response and the chat's throughput, together and apart.

The same robots are served without chat, then with it, and the chat without robots.
"""

import asyncio
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from timely.bench.mixed_load import (
    ROBOTS,
    MixedLoadCounts,
    bench_chat_defaults,
    bench_chat_question,
    run_benchmark_robot_client,
)
from timely.client import AsyncTimelyClient
from timely.core.errors import EngineFailed
from timely.core.progress import Say

CHAT_PROMPT = "Explain how a heat pump works, step by step."
CHAT_TOKENS = 48
CHAT_TIMEOUT_S = 300.0
BUSY = re.compile(r"^timely_engine_busy_seconds_total (\S+)$", re.MULTILINE)
LEAST_IDLE_SHARE = 0.001
"""A smaller share of idle time cannot be measured."""


@dataclass(slots=True)
class BenchLoadResult:
    """The clients' measurements.

    Attributes:
        urgent_response_s: of each urgent task, seconds.
        chat_tokens_per_s: of all chats together.
        robot_tokens_per_s: of all plans together.
        busy_share: of the time, the engine spent this in steps.
    """

    urgent_response_s: list[float] = field(default_factory=list)
    chat_tokens_per_s: float = 0.0
    robot_tokens_per_s: float = 0.0
    busy_share: float = 0.0


Load = Callable[[int, int, float], Awaitable[BenchLoadResult]]
"""Serves so many robots and chats for some seconds."""


async def benchmark_robots_and_chat(
    load: Load, *, robots: int, chats: int, seconds: float, repetitions: int, say: Say
) -> dict[str, Any]:
    """The cost of each load to the other.

    The loads take turns in each repetition, so that a machine that drifts hurts all of them.

    Returns ``{"urgent_response_ratio", "chat_throughput_share", "chat_share_of_idle_time", "robots_busy_share",
    "urgent_response_s", "chat_tokens_per_s", "repetitions"}``.
    The ratio is the median urgent response with chat over that without.
    Each load counts with its medians over the repetitions.
    The throughput share is the chat's throughput with robots over its throughput alone without the robots' tokens.
    It prices a robot's token like one of a full batch, though an urgent segment needs steps that are nearly empty.
    The other share compares with the engine time that the robots alone leave idle: 1 is the chat in just that time.
    Steps that serve both can make it larger.
    ``repetitions`` has the ratio and both shares of each.

    Raises:
        EngineFailed: a load failed, or no urgent task of a load was answered.
    """
    counts = {"robots": (robots, 0), "both": (robots, chats), "chat": (0, chats)}
    rounds: list[dict[str, BenchLoadResult]] = []
    for repetition in range(repetitions):
        first = repetition % len(counts)
        names = [*counts][first:] + [*counts][:first]
        results = {}
        for name in names:
            results[name] = await load(*counts[name], seconds)
            if counts[name][0] and not results[name].urgent_response_s:
                raise EngineFailed("no urgent task was answered; measure longer", where="bench mixed")
            say(f"repetition {repetition + 1}, {name}: {results[name].chat_tokens_per_s:.0f} chat tokens/s")
        rounds.append(results)
    medians = {name: _median_bench_load([results[name] for results in rounds]) for name in counts}
    return {
        **_compare_bench_loads(medians),
        "urgent_response_s": {
            name: statistics.median(medians[name].urgent_response_s) for name in ("robots", "both")
        },
        "chat_tokens_per_s": {name: medians[name].chat_tokens_per_s for name in ("both", "chat")},
        "repetitions": [_compare_bench_loads(results) for results in rounds],
    }


def _median_bench_load(results: Sequence[BenchLoadResult]) -> BenchLoadResult:
    """The medians of a load's repetitions; its responses are the median of each."""
    return BenchLoadResult(
        [statistics.median(result.urgent_response_s) for result in results if result.urgent_response_s],
        statistics.median(result.chat_tokens_per_s for result in results),
        statistics.median(result.robot_tokens_per_s for result in results),
        statistics.median(result.busy_share for result in results),
    )


def _compare_bench_loads(results: Mapping[str, BenchLoadResult]) -> dict[str, float]:
    alone, both, chat = results["robots"], results["both"], results["chat"]
    idle_share = max(LEAST_IDLE_SHARE, 1.0 - alone.busy_share)
    return {
        "urgent_response_ratio": statistics.median(both.urgent_response_s)
        / statistics.median(alone.urgent_response_s),
        "chat_throughput_share": both.chat_tokens_per_s / (chat.chat_tokens_per_s - both.robot_tokens_per_s),
        "chat_share_of_idle_time": both.chat_tokens_per_s / (chat.chat_tokens_per_s * idle_share),
        "robots_busy_share": alone.busy_share,
    }


class BenchHttpLoad:
    """Loads the server at ``url`` over HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def run(self, robots: int, chats: int, seconds: float) -> BenchLoadResult:
        end_s = time.monotonic() + seconds
        busy_before_s = await self._busy_s(0.0)
        urgent, others = MixedLoadCounts(), MixedLoadCounts()
        async with AsyncTimelyClient(self._url) as client:
            chat = asyncio.create_task(self._chats(chats, end_s))
            busy = asyncio.create_task(self._busy_s(end_s))
            tasks = []
            for number in range(robots):
                agent, skill_set, utility, texts = ROBOTS[number % len(ROBOTS)]
                account = urgent if utility == "urgent" else others
                name = f"{agent}-{number}"
                tasks.append(
                    run_benchmark_robot_client(client, name, skill_set, utility, texts, end_s, account)
                )
            await asyncio.gather(*tasks)
            chat_tokens, busy_s = await chat, await busy - busy_before_s
        failures = urgent.failures + others.failures
        if failures:
            raise EngineFailed(failures[0], where="bench mixed")
        robot_tokens = urgent.plan_tokens + others.plan_tokens
        return BenchLoadResult(
            urgent.response_s, chat_tokens / seconds, robot_tokens / seconds, busy_s / seconds
        )

    async def _busy_s(self, when_s: float) -> float:
        """Time of all engine steps until then, seconds."""
        import httpx

        await asyncio.sleep(when_s - time.monotonic())
        async with httpx.AsyncClient(base_url=self._url, timeout=CHAT_TIMEOUT_S) as http:
            metrics = (await http.get("/metrics")).text
        match = BUSY.search(metrics)
        if match is None:
            raise EngineFailed("the server's metrics lack the engine's busy time", where="bench mixed")
        return float(match[1])

    async def _chats(self, chats: int, end_s: float) -> float:
        """Tokens of all chats by ``end_s``, those of unfinished answers included."""
        import httpx

        token_count = 0.0
        if not chats:
            return token_count
        async with httpx.AsyncClient(base_url=self._url, timeout=CHAT_TIMEOUT_S) as http:
            body = await bench_chat_defaults(http) | bench_chat_question(CHAT_PROMPT, CHAT_TOKENS)

            async def chat() -> None:
                nonlocal token_count
                while (begin_s := time.monotonic()) < end_s:
                    answer = await http.post("/v1/chat/completions", json=body)
                    answer.raise_for_status()
                    tokens = answer.json()["usage"]["completion_tokens"]
                    token_count += bench_tokens_until(end_s, begin_s, time.monotonic(), tokens)

            await asyncio.gather(*(chat() for _ in range(chats)))
        return token_count


def bench_tokens_until(end_s: float, begin_s: float, finish_s: float, tokens: int) -> float:
    """The part of an answer's tokens that came by ``end_s``, if they came at an even rate.

    Chats that begin together also end together. Counting finished answers only would make the throughput depend on
    where ``end_s`` falls between two such waves.
    """
    if finish_s <= end_s:
        return float(tokens)
    return tokens * (end_s - begin_s) / (finish_s - begin_s)
