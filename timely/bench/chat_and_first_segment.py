"""Time to the first segment of a task, on an idle server and beside one streaming chat."""

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

from timely.bench.mixed_load import QUESTIONS, bench_chat_defaults, bench_chat_question
from timely.client import AsyncTimelyClient
from timely.core.errors import EngineFailed
from timely.core.progress import Say

SCENE_ITEMS = 25
"""Objects in a task's scene; their positions are drawn anew, so that no prefix of the scene is cached."""

CHAT_CHUNKS = 16
"""Chunks that the chat has received when the task is submitted."""

CHAT_TOKENS = 1500
"""More than a task takes until its first segment."""

FIRST_SEGMENT_TIMEOUT_S = 120.0

LOADS = ("alone", "beside_chat")
UTILITIES: tuple[Literal["normal", "urgent"], ...] = ("normal", "urgent")


async def benchmark_first_segments(url: str, repetitions: int, say: Say, seed: int = 1) -> dict[str, Any]:
    """Both loads and utilities take turns in each repetition, after one that does not count.

    Returns ``{"first_segment_ratio": {utility: ratio}, "first_segment_s": {load: {utility: median}}}``.
    The ratio is the median time beside the chat over that alone.

    Raises:
        EngineFailed: a task or the chat ended early.
    """
    rng = random.Random(seed)
    times_s: dict[tuple[str, str], list[float]] = {(load, name): [] for load in LOADS for name in UTILITIES}
    async with AsyncTimelyClient(url) as client:
        for repetition in range(repetitions + 1):
            for utility in UTILITIES:
                alone_s = await _measure_bench_first_segment_s(client, utility, rng)
                async with _streaming_bench_chat(url):
                    beside_s = await _measure_bench_first_segment_s(client, utility, rng)
                if repetition:
                    times_s["alone", utility].append(alone_s)
                    times_s["beside_chat", utility].append(beside_s)
                    say(f"first segment, {utility}: {alone_s:.2f} s alone, {beside_s:.2f} s beside a chat")
    medians = {
        load: {utility: statistics.median(times_s[load, utility]) for utility in UTILITIES} for load in LOADS
    }
    ratios = {name: medians["beside_chat"][name] / medians["alone"][name] for name in UTILITIES}
    return {"first_segment_ratio": ratios, "first_segment_s": medians}


async def _measure_bench_first_segment_s(
    client: AsyncTimelyClient, utility: Literal["normal", "urgent"], rng: random.Random
) -> float:
    """Submit a task and cancel it after its first segment; the time between, seconds."""
    scene = ", ".join(
        f"box {number} ({rng.randrange(1000)}, {rng.randrange(1000)})" for number in range(SCENE_ITEMS)
    )
    begin_s = time.monotonic()
    async with asyncio.timeout(FIRST_SEGMENT_TIMEOUT_S):
        async with await client.submit(
            "Find a shoe.", skill_set="drone", scene=scene, utility=utility, agent="first-segment"
        ) as stream:
            async for _ in stream:
                elapsed_s = time.monotonic() - begin_s
                await client.cancel(stream.task_id)
                return elapsed_s
    raise EngineFailed("the task ended without a segment", where="bench mixed")


@asynccontextmanager
async def _streaming_bench_chat(url: str) -> AsyncIterator[None]:
    """Inside this context one chat streams; it is cancelled at the end."""
    streaming = asyncio.Event()
    chat = asyncio.create_task(_stream_bench_chat(url, streaming))
    started = asyncio.create_task(streaming.wait())
    try:
        await asyncio.wait({chat, started}, timeout=FIRST_SEGMENT_TIMEOUT_S, return_when="FIRST_COMPLETED")
        if not streaming.is_set():
            raise EngineFailed("the chat did not stream", where="bench mixed")
        yield
        if chat.done():
            raise EngineFailed("the chat ended before the task's first segment", where="bench mixed")
    finally:
        started.cancel()
        chat.cancel()
        with suppress(asyncio.CancelledError):
            await chat


async def _stream_bench_chat(url: str, streaming: asyncio.Event) -> None:
    import httpx

    async with httpx.AsyncClient(base_url=url, timeout=FIRST_SEGMENT_TIMEOUT_S) as http:
        body = (
            await bench_chat_defaults(http)
            | bench_chat_question(QUESTIONS[-1], CHAT_TOKENS)
            | {"stream": True}
        )
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            chunks = 0
            async for line in answer.aiter_lines():
                chunks += line.startswith("data:")
                if chunks == CHAT_CHUNKS:
                    streaming.set()
