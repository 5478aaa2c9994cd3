"""``timely calibrate`` against a fake engine: every kind of step is asked for, the file holds what was measured."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from vllm_scheduler import Scene

from timely.cli.main import run_timely_command as timely
from timely.engines.base import EngineEvent, GenerationDone, GenerationRequest
from timely.engines.step_time.fit import measured_step_profile
from timely.engines.step_time.journal import (
    TimedStep,
    read_step_journal,
    step_journal_admission_s,
    steps_from_events,
)
from timely.engines.step_time.profile import StepTime, StepTimeProfile, load_step_profile
from timely.engines.vllm import calibrate
from timely.engines.vllm.arguments import EngineSizes, VllmOptions

pytestmark = pytest.mark.engine

TRUE = StepTime(load_step_profile("cpu-smollm2").step_s)
SLOW_START = 100.0
"""Seconds of each step of the warm-up."""


class FakeEngine:
    """Computes every request at once, alone, and writes the journal that the scheduler would write."""

    model_name = "made-up-model"
    max_prompt_tokens = 2000
    sizes = EngineSizes(kv_blocks=777, block_tokens=32, max_batch=64, token_budget=1024)
    prompts: list[int]
    waiting: list[bool]

    def __init__(self, options: VllmOptions) -> None:
        assert options.journal is not None
        self._path = Path(options.journal.replace("{pid}", "1"))
        self.running = False
        self._served = 0
        self._now = 0.0
        type(self).prompts, type(self).waiting = [], []

    async def start(self) -> None:
        self.running = True

    async def stop(self) -> None:
        self.running = False

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        assert self.running
        self._served += 1
        assert request.forced is not None
        ids = request.forced.prompt_token_ids
        assert ids is not None
        self.prompts.append(len(ids))
        self.waiting.append(any(segment[3:] == (True,) for segment in request.forced.segments))
        assert len(request.forced.output_token_ids or ()) == request.max_tokens
        prompt, lines = len(ids), []
        self._now = max(self._now, time.monotonic())
        for number in range(request.max_tokens):
            if number == 0:
                step = (0, 1, prompt, prompt * prompt, 0)
            else:
                # As if others decoded beside it, and a prompt came in between.
                batch, chunk = number % 8 + 1, 50 * (number % 3 == 0)
                step = (batch, int(chunk > 0), chunk, chunk * chunk, batch * (prompt + number))
            warm = self._served > 4
            begin = self._now if warm else self._now - SLOW_START
            end = begin + (TRUE(*step) if warm else SLOW_START)
            counts = dict(zip(COUNTS, step, strict=True))
            lines.append({"event": "timed", "t_s": begin, "end_s": end, **counts})
            self._now = end + 1.0 if warm else end
        with self._path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        yield GenerationDone(request.task_id, "complete", "", tokens=request.max_tokens)


COUNTS = ("decodes", "prefills", "prefill_tokens", "prefill_squares", "context_tokens")


def test_a_profile_is_measured_and_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibrate, "VllmEngine", FakeEngine)
    out = tmp_path / "mine.yaml"
    assert timely(["calibrate", "--out", str(out), "--rounds", "1"]) == 0
    printed = capfd.readouterr()
    assert "profile mine" in printed.out
    assert "round 1 of 1" in printed.err
    profile = load_step_profile(out)
    assert (profile.kv.blocks, profile.kv.block_tokens, profile.limits.token_budget) == (777, 32, 1024)
    assert profile.source.startswith("made-up-model, vLLM")
    assert "timed steps" in profile.source
    assert profile.date
    assert {"decode_median", "prefill_median", "mixed_median"} <= set(profile.fit_error)
    fitted = StepTime(profile.step_s)
    for step in ((1, 0, 0, 0, 400), (8, 0, 0, 0, 3200), (0, 1, 300, 90_000, 0), (4, 1, 100, 10_000, 1600)):
        assert fitted(*step) == pytest.approx(TRUE(*step), rel=0.03)  # the slow start is not in it


def test_every_kind_of_step_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "VllmEngine", FakeEngine)
    fitted: list[TimedStep] = []

    def keep_steps(name: str, source: str, steps: list[TimedStep], *rest: Any) -> StepTimeProfile:
        fitted.extend(steps)
        return measured_step_profile(name, source, steps, *rest)

    monkeypatch.setattr(calibrate, "measured_step_profile", keep_steps)
    calibrate.calibrate_vllm_profile("mine", rounds=2)
    assert {min(prompt, 1000) for prompt in calibrate.PROMPTS} <= set(FakeEngine.prompts)
    for context, batch in itertools.product(calibrate.CONTEXTS, calibrate.BATCHES):
        assert FakeEngine.prompts.count(context) >= 2 * batch
    # First many plans wait for a value, beside one sequence to the most at once.
    slots = FakeEngine.sizes.max_batch - calibrate.MOST_BESIDE_WAITING
    assert FakeEngine.waiting[4:].index(False) == FakeEngine.waiting.count(True) == slots
    assert all(step.step_s < 2.0 for step in fitted)
    assert len(fitted) > 500


def test_a_journal_without_details_has_the_same_step_times(tmp_path: Path) -> None:
    measured = {}
    for details in (True, False):
        path = tmp_path / f"{details}.jsonl"
        scene = Scene(depth=2, timely={"journal": str(path), "journal_details": details})
        for number in range(4):
            scene.add(
                f"plan{number}", 60 + number, 12, scene.plan((4, 0.3), (8, 0.1), task_id=f"plan{number}")
            )
        scene.add("chat", 90, 40)
        scene.run()
        events = read_step_journal(path)
        assert details == bool({event["event"] for event in events} - {"arrive", "finish", "step", "timed"})
        measured[details] = steps_from_events(events), step_journal_admission_s(events, 0.01)
    assert measured[False] == measured[True]
    assert len(measured[False][0]) > 20
    assert len(measured[False][1]) == 5
