"""Random scenes on vLLM's real scheduler: whatever happens, no request is lost and each gets its own tokens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from optional_packages import require_package
from vllm_scheduler import BLOCK_TOKENS, FIRST_TOKEN, Scene, StubConnector

require_package("vllm")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(580)]

BLOCKS = 24
MODELS: tuple[dict[str, Any], ...] = (
    {},
    {"enable_prefix_caching": False},
    {"windows": 1, "window_tokens": 3 * BLOCK_TOKENS, "watermark_blocks": 1},
    {"mamba": "align"},
)
DISCIPLINES = ("timely", "weighted-tardiness", "pud", "fcfs", "justitia")
UTILITIES = (
    None,
    {"ert_s": 0.2, "alpha": -6.67},
    {"alpha": 0.0},
    {"ert_s": 0.0, "cutoff_s": 5e-324, "beta": 1e6},
)
ENDINGS = 4000
"""Most moves of the end, which needs some hundreds."""
MOST_IDLE_STEPS = 3
"""In a row, each without a token, before the loop sleeps."""


class Scenes(RuleBasedStateMachine):
    """Arrivals, sessions, aborts, reports, values, loads, pauses and steps in any order."""

    scene: Scene

    @initialize(
        depth=st.sampled_from([1, 2]),
        pipeline=st.booleans(),
        drafts=st.sampled_from([0, 3]),
        adapters=st.booleans(),
        discipline=st.sampled_from(DISCIPLINES),
        policy=st.sampled_from(["fcfs", "priority"]),
        loads_take_time=st.booleans(),
        model=st.sampled_from(MODELS),
    )
    def begin(
        self,
        depth: int,
        pipeline: bool,
        drafts: int,
        adapters: bool,
        discipline: str,
        policy: str,
        loads_take_time: bool,
        model: dict[str, Any],
    ) -> None:
        self.connector = StubConnector({}, asynchronous=loads_take_time)
        options: dict[str, Any] = {"enable_lora": True, "max_loras": 1} if adapters else {}
        drafts = 0 if "mamba" in model or pipeline else drafts  # with Mamba states refused at start
        # vLLM wants another kind of connector for several groups of blocks.
        connector = None if "windows" in model or "mamba" in model else self.connector
        self.adapters = adapters
        self.scene = Scene(
            blocks=BLOCKS, depth=depth, pipeline=pipeline, drafts=drafts,
            accept=lambda name: len(self.scene.outputs[name]) % 4,
            propose=lambda name: (len(self.scene.outputs[name]) + len(name)) % (drafts + 1),
            budget=64, max_num_seqs=6, policy=policy, connector=connector,
            timely={"discipline": discipline}, **options, **model,
        )  # fmt: skip
        self.discipline = discipline
        self.tokens: dict[str, int] = {}
        self.aborted: set[str] = set()
        self.sessions: list[str] = []
        """With further input; one that waits for it keeps its KV blocks, as in vLLM."""

    @rule(
        prompt=st.integers(1, 90),
        segments=st.lists(st.tuples(st.integers(1, 6), st.floats(0.0, 2.0), st.booleans()), max_size=4),
        loaded=st.booleans(),
        adapter=st.integers(0, 2),
        priority=st.integers(0, 2),
        tuf=st.sampled_from(UTILITIES),
    )
    def arrive(
        self,
        prompt: int,
        segments: list[tuple[int, float, bool]],
        loaded: bool,
        adapter: int,
        priority: int,
        tuf: dict[str, float] | None,
    ) -> None:
        name = f"r{len(self.tokens)}"
        tokens = sum(segment[0] for segment in segments) or 8
        if loaded and prompt > BLOCK_TOKENS:
            self.connector.external_tokens = {
                **self.connector.external_tokens, name: (prompt - 1) // BLOCK_TOKENS * BLOCK_TOKENS,
            }  # fmt: skip
        timely = {"task_id": name, **(self.scene.plan(*segments) if segments else {})}
        if tuf is not None:
            timely["tuf"] = tuf
        self.tokens[name] = tokens
        self.scene.add(
            name, prompt, tokens, timely, adapter=adapter if self.adapters else 0, priority=priority
        )

    @precondition(lambda self: len(self.sessions) < 2)
    @rule(prompt=st.integers(1, 40), tokens=st.integers(1, 6))
    def open_session(self, prompt: int, tokens: int) -> None:
        self.sessions.append(f"s{len(self.sessions)}")
        self.scene.add(self.sessions[-1], prompt, tokens, resumable=True)

    @rule(number=st.integers(0, 1), prompt=st.integers(1, 20), tokens=st.integers(1, 6))
    def go_on_in_session(self, number: int, prompt: int, tokens: int) -> None:
        for name in self.sessions[number : number + 1]:
            if name in self.scene.held:
                self.scene.add(name, prompt, tokens, resumable=True)

    @rule(steps=st.integers(1, 6))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.scene.step()
            self.scene.check()

    @rule(seconds=st.sampled_from([0.01, 0.3, 3.0]))
    def wait(self, seconds: float) -> None:
        self.scene.clock.advance_to(self.scene.clock.now() + seconds)

    @rule(name=st.sampled_from(DISCIPLINES))
    def switch(self, name: str) -> None:
        self.discipline = name
        assert self.scene.scheduler.control({"kind": "discipline", "name": name}) == {"known": True}

    @rule(number=st.integers(0, 30))
    def abort(self, number: int) -> None:
        from vllm.v1.request import RequestStatus

        names = sorted(self.scene.held)
        if names:
            name = names[number % len(names)]
            self.aborted.add(name)
            self.scene.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)

    @rule()
    def give_values(self) -> None:
        for state in list(self.scene.scheduler.live):
            if state.job.awaiting is not None:
                answer = self.scene.report(state.task_id, state.job.awaiting, "value", value="box")
                assert answer == {"known": True}

    @rule()
    def report_done(self) -> None:
        for state in list(self.scene.scheduler.live):
            if state.segments and state.job.awaiting is None:
                index = len(state.segments) - 1
                assert "error" not in self.scene.report(state.task_id, index, "done", elapsed_s=0.1)

    @rule()
    def loads_arrive(self) -> None:
        self.scene.received |= self.connector.loading
        self.connector.loading = set()

    @precondition(lambda self: self.scene.scheduler.connector is not None and not self.connector.asynchronous)
    @rule(number=st.integers(0, 5))
    def load_fails(self, number: int) -> None:
        """Of a request that the oldest step admitted."""
        if not self.scene.in_flight:
            if not self.scene.scheduler.has_requests():
                return
            self.scene.schedule()
        output, sampled = self.scene.in_flight[0]
        admitted = {
            new.req_id for new in output.scheduled_new_reqs
        } | output.scheduled_cached_reqs.resumed_req_ids
        running = {request.request_id for request in self.scene.scheduler.running}
        loaded = sorted(admitted & running & self.connector.external_tokens.keys() & sampled.keys())
        if loaded:
            (blocks,) = self.scene.scheduler.kv_cache_manager.get_block_ids(loaded[0])
            loaded_blocks = self.connector.external_tokens[loaded[0]] // BLOCK_TOKENS
            self.scene.failed_blocks = {blocks[number % loaded_blocks]}

    @rule(state=st.sampled_from(["UNPAUSED", "PAUSED_NEW", "PAUSED_ALL"]))
    def pause(self, state: str) -> None:
        from vllm.v1.core.sched.interface import PauseState

        self.scene.scheduler.set_pause_state(PauseState[state])

    @precondition(
        lambda self: (
            not (self.scene.in_flight or self.connector.loading or self.scene.received or self.sessions)
        )
    )
    @rule()
    def reset_prefix_cache(self) -> None:
        assert self.scene.scheduler.reset_prefix_cache(reset_running_requests=True)

    @invariant()
    def queues_and_blocks_agree(self) -> None:
        if hasattr(self, "scene"):
            self.scene.check()

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            return
        scene = self.scene
        self.pause("UNPAUSED")
        for name in self.sessions:
            if name in scene.held:
                scene.add(name, 1, 1)  # the end of its input
        idle_steps = 0
        for _ in range(ENDINGS):
            if not scene.held and not scene.in_flight and not scene.scheduler.has_requests():
                break
            self.give_values()
            self.loads_arrive()
            scene.check()
            if scene.in_flight or scene.scheduler.has_requests():
                steps, was_in_flight = len(scene.steps), bool(scene.in_flight)
                scene.step()
                idle_steps = 0 if was_in_flight or any(scene.steps[steps:]) else idle_steps + 1
                assert idle_steps <= MOST_IDLE_STEPS, f"an idle engine does not sleep; held: {scene.held}"
                continue
            wait_s = scene.scheduler.seconds_to_resume()
            assert wait_s is not None, f"nothing will happen; held: {scene.held}"
            scene.clock.advance_to(scene.clock.now() + wait_s)
        assert not scene.held, f"requests starve: {scene.held}"
        assert scene.scheduler.controller.discipline.info.name == self.discipline, "it failed"
        for name, tokens in self.tokens.items():
            if name in self.aborted:
                continue
            assert len(scene.outputs[name]) == tokens, name
            places = [token - FIRST_TOKEN for token in scene.outputs[name]]
            assert places == sorted(set(places)), f"{name}: a token is repeated or out of order"
        scene.check_empty()


TestRandomScenes = Scenes.TestCase
TestRandomScenes.settings = settings(
    max_examples=20,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
