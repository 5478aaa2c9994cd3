"""Mixed load on a live server over HTTP: robots that execute their plans, and ordinary requests in bursts.

Robots submit a task, execute each segment for at most ``MAX_EXECUTION_S``, report, and submit the next task.
Some ordinary requests belong to applications of several requests.
Each ordinary answer has a fixed length, so that a lost or repeated token shows.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from timely.client import AsyncTimelyClient
from timely.core.errors import TimelyError

MAX_EXECUTION_S = 1.5
"""Longest execution of a segment, seconds."""

DRAIN_S = 120.0
"""Longest wait for the remaining answers at the end, seconds."""

ROBOTS: tuple[tuple[str, str, Literal["normal", "urgent"], tuple[str, ...]], ...] = (
    ("drone-1", "drone", "urgent", ("Find the scissors.", "Look for the dog.", "Find a shoe under the table.")),
    ("drone-2", "drone", "normal", ("Check the vase on the shelf.", "Find a tool for writing.", "Fly a square.")),
    ("arm-1", "arm", "normal", ("Put the apple on the plate.", "Clean the desk.", "Show me the bottle.")),
)  # fmt: skip
"""Agent, skill set, time-utility and tasks."""

QUESTIONS = (
    "My father collapsed and does not answer me.",
    "There is smoke in the corridor, where do I go?",
    "My ankle hurts since yesterday, shall I see somebody?",
    "Summarise this page for me, please.",
    "What is the capital of Peru?",
    "Write a limerick about a lazy robot.",
    "List all planets with their moons.",
    "Explain how a heat pump works, step by step.",
)
"""Ordinary questions, from the most to the least urgent."""

BURST_REQUESTS, BURST_EVERY_S = 10, 4.0
"""Ordinary requests at once, and time between such bursts, seconds."""

LENGTHS = (6, 12, 16, 24, 40, 64)


@dataclass(slots=True)
class MixedLoadCounts:
    """The clients' measurements.

    Attributes:
        plans, requests: submitted; ``_answered`` counts those with a complete answer.
        segments: received by robots.
        tokens: received in ordinary answers.
        plan_tokens: received in segments before the load ended.
        failures: problems, in words.
    """

    plans: int = 0
    plans_answered: int = 0
    segments: int = 0
    requests: int = 0
    requests_answered: int = 0
    tokens: int = 0
    plan_tokens: int = 0
    response_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


async def run_mixed_benchmark_load(url: str, seconds: float, *, seed: int = 1) -> MixedLoadCounts:
    """Load the server for some seconds, then wait for the remaining answers."""
    account = MixedLoadCounts()
    end_s = time.monotonic() + seconds
    async with AsyncTimelyClient(url) as client:
        robots = [
            asyncio.create_task(
                run_benchmark_robot_client(client, agent, skill_set, utility, tasks, end_s, account)
            )
            for agent, skill_set, utility, tasks in ROBOTS
        ]
        load = [*robots, asyncio.create_task(_run_bench_load_chats(url, seed, end_s, account))]
        try:
            async with asyncio.timeout(seconds + DRAIN_S):
                await asyncio.gather(*load)
        except TimeoutError:
            # This is a finding about the discipline and does not end the comparison.
            account.failures.append(f"not all was answered {DRAIN_S:g} s after the last request")
        finally:
            # Cancelled while the client is open, also when the comparison is interrupted.
            await _end_bench_load_tasks(load)
    return account


async def _end_bench_load_tasks(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_benchmark_robot_client(
    client: AsyncTimelyClient,
    agent: str,
    skill_set: str,
    utility: Literal["normal", "urgent"],
    tasks: Sequence[str],
    end_s: float,
    account: MixedLoadCounts,
) -> None:
    """A robot that submits its tasks in turn until ``end_s`` and executes their segments."""
    number = 0
    while time.monotonic() < end_s:
        task = tasks[number % len(tasks)]
        number += 1
        account.plans += 1
        next_index = 0
        try:
            async with await client.submit(
                task, skill_set=skill_set, utility=utility, agent=agent, max_tokens=96
            ) as stream:
                async for segment in stream:
                    if segment.index != next_index:
                        account.failures.append(f"{agent}: segment {segment.index} instead of {next_index}")
                    next_index += 1
                    account.segments += 1
                    if time.monotonic() < end_s:
                        account.plan_tokens += segment.tokens
                    await stream.report_started(segment.index)
                    await asyncio.sleep(min(segment.execution_s, MAX_EXECUTION_S))
                    if segment.blocking:
                        await stream.report_value(segment.index, "True")
                    else:
                        await stream.report_done(segment.index)
                account.plans_answered += 1
                if stream.result.response_time_s is not None:
                    account.response_s.append(stream.result.response_time_s)
        except TimelyError as error:
            # A plan that is truncated or refused as unsafe is an answer too; other errors are failures.
            if error.code in ("truncated", "unsafe_segment"):
                account.plans_answered += 1
            else:
                account.failures.append(f"{agent}: {error.code}: {error}")
        await asyncio.sleep(0.2)


async def bench_chat_defaults(http: Any) -> dict[str, Any]:
    """Fields of a chat completion of exactly ``max_tokens`` tokens by the server's model."""
    return {"model": (await http.get("/v1/models")).json()["data"][0]["id"], "ignore_eos": True}


def bench_chat_question(text: str, tokens: int) -> dict[str, Any]:
    """Fields of a chat completion that answers a text with so many tokens."""
    return {"messages": [{"role": "user", "content": text}], "max_tokens": tokens}


async def _run_bench_load_chats(url: str, seed: int, end_s: float, account: MixedLoadCounts) -> None:
    import httpx

    rng = random.Random(seed)
    limits = httpx.Limits(max_connections=256)
    async with httpx.AsyncClient(base_url=url, timeout=DRAIN_S, limits=limits) as http:
        defaults = {**await bench_chat_defaults(http), "temperature": 0.0}
        requests: list[asyncio.Task[None]] = []
        wave = 0
        try:
            while time.monotonic() < end_s:
                for number in range(BURST_REQUESTS):
                    place = rng.randrange(len(QUESTIONS))
                    tokens = rng.choice(LENGTHS)
                    timely: dict[str, Any] = {"expected_tokens": tokens}
                    # Some requests carry their urgency; it is predicted for the others.
                    if rng.random() < 0.7:
                        timely["urgency"] = min(4, place // 2)
                    if number < 6:
                        timely |= {"app": f"{('merge', 'check')[number // 3]}/{wave}", "app_requests": 3}
                    body = defaults | bench_chat_question(QUESTIONS[place], tokens) | {"timely": timely}
                    requests.append(asyncio.create_task(_run_bench_load_chat(http, body, tokens, account)))
                wave += 1
                await asyncio.sleep(BURST_EVERY_S)
            await asyncio.gather(*requests)
        finally:
            await _end_bench_load_tasks(requests)


async def _run_bench_load_chat(
    http: Any, body: dict[str, Any], tokens: int, account: MixedLoadCounts
) -> None:
    begin_s = time.monotonic()
    account.requests += 1
    answer = await http.post("/v1/chat/completions", json=body)
    if answer.status_code != 200:
        account.failures.append(f"chat: {answer.status_code} {answer.text[:200]}")
        return
    got = answer.json()["usage"]["completion_tokens"]
    account.tokens += got
    account.latency_s.append(time.monotonic() - begin_s)
    if got != tokens:
        account.failures.append(f"chat: {got} tokens instead of {tokens}")
        return
    account.requests_answered += 1
