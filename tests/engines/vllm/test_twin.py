"""The twin test: one trace through the simulator and through the real vLLM scheduler on a stub executor.

Both run on the same virtual clock with the same step times. Every decision is compared: the jobs of each step, its
time, and their tokens.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from manual_clock import ManualClock

from timely.core.hints import RequestHints
from timely.core.utility import NORMAL, URGENT
from timely.disciplines.registry import create_discipline
from timely.engines import replay_types
from timely.engines.base import Mode
from timely.engines.replay_estimates import ReplayEstimates
from timely.engines.replay_types import JobRecord, PlannedSegment, PlannedTask, ReplayOptions
from timely.engines.scheduler_core import EngineController
from timely.engines.sim.events import ARRIVAL, REPORT
from timely.engines.sim.robots import SimRobots
from timely.engines.sim.simulator import Simulator
from timely.engines.step_time.profile import StepTime, StepTimeProfile, load_step_profile

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

BLOCK = 32
MAX_BATCH = 8
STOP = 9
"""The token that ends an answer."""
BUDGET = 256


def profile(blocks: int, asynchronous: bool = False) -> StepTimeProfile:
    """A machine like the small CPU one: steps get longer with every sequence and prompt token.

    All times are multiples of a power of two, so that sums and differences are exact. Otherwise the last bit of a
    step's time would decide between equal priorities: the live scheduler measures it, the simulator adds it up.
    """
    data = load_step_profile("unit").model_dump()
    data["step_s"] |= {"base": 2.0**-6, "per_sequence": 2.0**-10, "per_prefill_token": 2.0**-11}
    data["kv"] |= {"blocks": blocks, "block_tokens": BLOCK}
    data["limits"] |= {"max_batch": MAX_BATCH, "token_budget": BUDGET, "asynchronous": asynchronous}
    return StepTimeProfile.model_validate(data)


def exact(seconds: float) -> float:
    """A time near this one that is a multiple of a power of two."""
    return round(seconds * 2.0**20) / 2.0**20


def trace(seed: int, jobs: int, shared: int = 0) -> list[PlannedTask]:
    """Bursts of mixed tasks whose prompts begin with the same ``shared`` tokens."""
    rng = np.random.default_rng(seed)
    tasks: list[PlannedTask] = []
    arrival = 0.0
    while len(tasks) < jobs:
        arrival += exact(float(rng.exponential(0.8)))
        for _ in range(int(rng.integers(1, 6))):
            plan = tuple(
                PlannedSegment("x", int(rng.integers(2, 9)), exact(float(rng.uniform(0.01, 1.5))))
                for _ in range(int(rng.integers(1, 6)))
            )
            tasks.append(
                PlannedTask(
                    job=len(tasks),
                    arrival_s=arrival,
                    plan=plan,
                    prompt_tokens=shared + int(rng.integers(20, 200)),
                    shared_prefix_tokens=shared,
                    prefix="fixed",
                    hints=RequestHints(utility=URGENT if rng.random() < 0.4 else NORMAL, network_s=2.0**-7),
                    segment_bound=max(segment.tokens for segment in plan),  # as the live engine takes it
                )
            )
    return tasks[:jobs]


def mistaken(tasks: list[PlannedTask]) -> list[PlannedTask]:
    """The same tasks of eight robots: of every three one is as fast as expected, one faster, one slower."""
    factors = {0: None, 1: 2.0, 2: 0.5}
    return [
        replace(
            task,
            hints=replace(task.hints, agent=f"robot-{robot}"),
            plan=tuple(
                replace(part, estimate_s=None if factor is None else factor * part.execution_s)
                for part in task.plan
            ),
        )
        for task in tasks
        for robot in [int(task.job) % 8]
        for factor in [factors[robot % 3]]
    ]


def simulated(
    tasks: list[PlannedTask],
    discipline: str,
    blocks: int,
    closed_loop: bool = False,
    asynchronous: bool = False,
    mode: Mode = "segmented",
) -> list[dict[str, Any]]:
    options = ReplayOptions(
        discipline=discipline, closed_loop=closed_loop, journal=False, max_resident=64, mode=mode
    )
    simulator = Simulator(options, profile(blocks, asynchronous), repeat_steps=False)
    journal: list[dict[str, Any]] = []
    simulator.controller.journal = lambda event: journal.append(dict(event))
    run = simulator.run(tasks)
    assert all(record.outcome == "complete" for record in run.records)
    return journal


@pytest.fixture(scope="module")
def vllm_config() -> Any:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    from vllm.engine.arg_utils import EngineArgs

    from timely.engines.vllm.model import default_vllm_model

    return EngineArgs(
        model=str(default_vllm_model()), dtype="float32", enforce_eager=True, block_size=BLOCK, max_model_len=1024,
        max_num_seqs=64, max_num_batched_tokens=BUDGET, enable_prefix_caching=True,
        scheduler_cls="timely.engines.vllm.scheduler.TimelyScheduler",
    ).create_engine_config()  # fmt: skip


class Twin:
    """The real scheduler, a heap of events, an executor that samples a word for whoever may have one, and robots."""

    AT_ONCE = 1
    """Most steps in flight."""

    def __init__(
        self,
        vllm_config: Any,
        tasks: list[PlannedTask],
        discipline: str,
        blocks: int,
        closed_loop: bool = False,
        mode: Mode = "segmented",
    ) -> None:
        import torch
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        from timely.engines.vllm.scheduler import TimelyScheduler

        # One block is vLLM's own null block.
        vllm_config.cache_config.num_gpu_blocks = blocks + 1
        vllm_config.scheduler_config.async_scheduling = self.AT_ONCE > 1
        vllm_config.additional_config = {"timely": {"max_batch": MAX_BATCH, "mode": mode}}
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        cache = KVCacheConfig(
            num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        )
        self.scheduler = TimelyScheduler(
            vllm_config, cache, StructuredOutputManager(vllm_config), block_size=BLOCK, log_stats=False
        )
        from vllm.utils.hashing import sha256

        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(BLOCK, sha256)
        self.clock = ManualClock()
        self.scheduler.clock = self.clock.now
        self.journal: list[dict[str, Any]] = []
        self.scheduler.controller = EngineController(
            create_discipline(discipline), journal=lambda event: self.journal.append(dict(event))
        )
        self.step_time = StepTime(profile(blocks).step_s)
        self.tasks = tasks
        self.left = len(tasks)
        options = ReplayOptions(closed_loop=closed_loop)
        self.robots, self.estimates = SimRobots(options), ReplayEstimates(options)
        self.records = {str(task.job): JobRecord(task) for task in tasks}
        self.heard = 0
        """Entries of the journal that robots have read."""
        self.agenda: list[tuple[float, int, int, Callable[[], object]]] = []
        self.numbers = itertools.count()
        self.queue: list[tuple[Any, float, list[list[int]]]] = []
        """Steps in flight: what was scheduled, when it is over, what it will have sampled."""

    def at(self, when: float, kind: int, what: Callable[[], object]) -> None:
        heapq.heappush(self.agenda, (when, kind, next(self.numbers), what))

    def run(self) -> list[dict[str, Any]]:
        agenda = self.agenda
        for task in self.tasks:
            self.at(task.arrival_s, ARRIVAL, partial(self.add, task))
        for _ in range(100_000):
            if self.left == 0:
                return self.journal
            while agenda and agenda[0][0] <= self.clock.now():
                heapq.heappop(agenda)[-1]()
            if self.queue or self.scheduler.has_requests():
                self.step()
                continue
            wait = self.scheduler.seconds_to_resume()
            resume = math.inf if wait is None else self.clock.now() + wait
            following = agenda[0][0] if agenda else math.inf
            assert min(resume, following) < math.inf, "nothing will ever happen"
            self.clock.advance_to(min(resume, following))
        raise AssertionError("did not end")

    def execute(self) -> None:
        """Robots take the segments that were closed, and will say when they begin and end them."""
        closed = [event for event in self.journal[self.heard :] if event["event"] == "segment"]
        self.heard = len(self.journal)
        for event in closed:
            expected_s = event["execution_s"] * event.get("pace", 1.0)
            record = self.records[event["job"]]
            for when, report in self.robots.receive(record, event["index"], event["t_s"], expected_s):
                message = {"kind": "report", "task_id": event["job"], "report": report.to_dict()}
                self.at(when, REPORT, partial(self.scheduler.control, message))

    def add(self, task: PlannedTask) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        tuf = task.hints.utility
        fields: dict[str, Any] = {
            "task_id": str(task.job),
            "tuf": {"ert_s": tuf.ert_s, "alpha": tuf.alpha, "beta": tuf.beta},
            "network_s": task.hints.network_s,
            "agent": task.hints.agent,
            "text": task.task,
        }
        if not task.plain:
            fields["forced"] = [
                [s.text, s.tokens, self.estimates.estimate_s(task, n)] for n, s in enumerate(task.plan)
            ]
        parameters = SamplingParams(
            temperature=0.0,
            max_tokens=task.limit_tokens,
            ignore_eos=True,
            stop_token_ids=[STOP],
            extra_args={"timely": fields},
        )
        names = [-name for name in task.block_ids for _ in range(NAMED_TOKENS)]
        names = names or [0] * task.shared_prefix_tokens
        names += [int(task.job) + 1] * (task.prompt_tokens - len(names))
        ids = [1000 + (7919 * name + 31 * n) % 40000 for n, name in enumerate(names[: task.prompt_tokens])]
        request = Request(str(task.job), ids, parameters, None, block_hasher=self.hasher)
        self.scheduler.add_request(request)

    def step(self) -> None:
        """Compose until so many steps are in flight as may be, and be through with the oldest."""
        while len(self.queue) < self.AT_ONCE and self.scheduler.has_requests():
            output = self.scheduler.schedule()
            if not output.num_scheduled_tokens:
                # The discipline would rather wait; the engine sleeps until it wants to be asked again.
                assert self.queue or not self.scheduler.has_requests(), "a step of nobody"
                break
            begin = max([self.clock.now(), *(end for _, end, _ in self.queue)])
            self.queue.append((output, *self.launch(output, begin)))
        if self.queue:
            output, end, sampled = self.queue.pop(0)
            self.until(end)
            self.over(output, sampled)

    def launch(self, output: Any, begin: float) -> tuple[float, list[list[int]]]:
        """When a step that begins then is over, and what it will have sampled."""
        scheduled = output.num_scheduled_tokens
        requests = [self.scheduler.requests[name] for name in scheduled]
        before = {r.request_id: r.num_computed_tokens - scheduled[r.request_id] for r in requests}
        prefills = [
            r
            for r in requests
            if before[r.request_id] < r.num_prompt_tokens or before[r.request_id] < r.num_tokens - 1
        ]
        decodes = len(requests) - len(prefills)
        tokens = sum(scheduled[r.request_id] for r in prefills)
        sampled = [[self.sample(r)] if r.num_computed_tokens >= r.num_tokens else [] for r in requests]
        return begin + self.step_time(decodes, len(prefills), tokens, 0.0, 0), sampled

    def sample(self, request: Any) -> int:
        """A word; the last one of an answer ends it."""
        task = self.records[request.request_id].task
        last = request.num_computed_tokens + 1 >= task.prompt_tokens + task.output_tokens
        return STOP if last else 7

    def until(self, end: float) -> None:
        while self.agenda and self.agenda[0][0] < end:
            self.clock.advance_to(self.agenda[0][0])
            heapq.heappop(self.agenda)[-1]()
        self.clock.advance_to(end)

    def over(self, output: Any, sampled: list[list[int]]) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(output.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: n for n, name in enumerate(names)},
            sampled_token_ids=sampled,
        )
        for outputs in self.scheduler.update_from_output(output, result).values():
            self.left -= sum(o.finish_reason is not None for o in outputs.outputs)
        self.execute()


class AsynchronousTwin(Twin):
    """With a step always composed ahead, as vLLM's engine core does on a GPU (``step_with_batch_queue``)."""

    AT_ONCE = 2


def steps(journal: list[dict[str, Any]]) -> list[tuple[float, dict[str, int], list[str]]]:
    return [
        (
            round(event["t_s"], 7),
            {str(job): n for job, n in event["tokens"].items()},
            [str(j) for j in event["evict"]],
        )
        for event in journal
        if event["event"] == "step"
    ]


def check_same_steps(live: list[Any], simulation: list[Any], *, more_than: int = 100) -> None:
    for number, (ours, theirs) in enumerate(zip(live, simulation, strict=False)):
        assert ours == theirs, f"step {number}"
    assert len(live) == len(simulation) > more_than


@pytest.mark.parametrize("discipline", ["timely", "pud", "edf", "fcfs"])
def test_the_same_decisions_step_by_step(vllm_config: Any, discipline: str) -> None:
    tasks = trace(seed=5, jobs=40)
    live = steps(Twin(vllm_config, tasks, discipline, blocks=4000).run())
    simulation = steps(simulated(tasks, discipline, blocks=4000))
    check_same_steps(live, simulation)


@pytest.mark.parametrize("discipline", ["timely", "pud", "edf", "fcfs"])
def test_the_same_decisions_composed_ahead(vllm_config: Any, discipline: str) -> None:
    """As on a GPU: a step is composed before the tokens of the one that runs are known."""
    tasks = trace(seed=5, jobs=40)
    live = steps(AsynchronousTwin(vllm_config, tasks, discipline, 4000).run())
    simulation = steps(simulated(tasks, discipline, 4000, asynchronous=True))
    check_same_steps(live, simulation)


@pytest.mark.parametrize("mode", ["stream", "whole"])
@pytest.mark.parametrize("discipline", ["timely", "weighted-tardiness", "pud", "edf"])
def test_the_same_decisions_where_nothing_parks(vllm_config: Any, discipline: str, mode: Mode) -> None:
    """In mode ``whole`` the live scheduler took each segment for sent, and its robot for busy."""
    tasks = trace(seed=19, jobs=40)
    live = Twin(vllm_config, tasks, discipline, blocks=4000, mode=mode).run()
    simulation = simulated(tasks, discipline, blocks=4000, mode=mode)
    check_same_steps(steps(live), steps(simulation), more_than=50)
    closed = [
        sorted((str(e["job"]), e["index"], e["tokens"], e["t_s"]) for e in journal if e["event"] == "segment")
        for journal in (live, simulation)
    ]
    assert closed[0] == closed[1]
    assert len(closed[0]) == (40 if mode == "whole" else sum(len(task.plan) for task in tasks))


def limited(tasks: list[PlannedTask]) -> list[PlannedTask]:
    """The same tasks; every other one names the length of its plan as its limit, so that the engine knows it."""
    return [replace(task, max_tokens=task.output_tokens) if int(task.job) % 2 else task for task in tasks]


@pytest.mark.parametrize("discipline", ["timely", "fcfs"])
def test_the_same_decisions_composed_ahead_where_some_lengths_are_known(
    vllm_config: Any, discipline: str
) -> None:
    tasks = limited(with_chats(trace(seed=17, jobs=40)))
    live = steps(AsynchronousTwin(vllm_config, tasks, discipline, 4000).run())
    simulation = steps(simulated(tasks, discipline, 4000, asynchronous=True))
    check_same_steps(live, simulation)


def with_chats(tasks: list[PlannedTask]) -> list[PlannedTask]:
    """The same tasks; every fourth is a chat with an answer of up to a hundred tokens, whose length nothing tells."""
    return [
        replace(
            task,
            plan=(PlannedSegment("", 10 + (37 * int(task.job)) % 90, 0.0),),
            task=f"question {int(task.job) % 3}",
            plain=True,
            max_tokens=400,
            segment_bound=None,
        )
        if int(task.job) % 4 == 0
        else task
        for task in tasks
    ]


@pytest.mark.parametrize("discipline", ["timely", "weighted-tardiness", "pud", "edf", "fcfs"])
def test_the_same_decisions_with_plain_requests(vllm_config: Any, discipline: str) -> None:
    tasks = with_chats(trace(seed=15, jobs=40))
    live = steps(Twin(vllm_config, tasks, discipline, blocks=4000).run())
    simulation = steps(simulated(tasks, discipline, blocks=4000))
    check_same_steps(live, simulation)


@pytest.mark.parametrize("discipline", ["timely", "pud"])
def test_the_same_decisions_with_a_cached_prefix(vllm_config: Any, discipline: str) -> None:
    """What the prefix cache holds of a prompt is known before it is admitted: its cost, and so its place."""
    tasks = trace(seed=7, jobs=40, shared=320)
    live = steps(Twin(vllm_config, tasks, discipline, blocks=4000).run())
    simulation = steps(simulated(tasks, discipline, blocks=4000))
    check_same_steps(live, simulation)


@pytest.mark.parametrize("discipline", ["las", "priority"])
def test_the_same_decisions_where_a_shared_prefix_fits_and_whole_prompts_do_not(
    vllm_config: Any, discipline: str
) -> None:
    """Newcomers bring few blocks of their own. Taken for whole prompts they evicted parked plans for nothing."""
    tasks = trace(seed=1110, jobs=50, shared=320)
    live = steps(Twin(vllm_config, tasks, discipline, blocks=60).run())
    simulation = steps(simulated(tasks, discipline, blocks=60))
    check_same_steps(live, simulation)


@pytest.mark.parametrize("shared", [64, 320])
def test_the_same_decisions_where_parked_plans_decode_early_for_want_of_memory(
    vllm_config: Any, shared: int
) -> None:
    """A prefix that all share takes its blocks once. The live scheduler took memory for short too soon."""
    discipline = {64: "weighted-tardiness", 320: "timely"}[shared]
    tasks = {64: with_chats(trace(1047, 50, 64)), 320: trace(1119, 50, 320)}[shared]
    blocks = {64: 111, 320: 187}[shared]
    live = steps(Twin(vllm_config, tasks, discipline, blocks).run())
    check_same_steps(live, steps(simulated(tasks, discipline, blocks)))


@pytest.mark.parametrize(("discipline", "blocks", "shared"), [("las", 109, 0), ("priority", 67, 320)])
def test_the_same_decisions_where_an_evicted_request_has_a_token_in_flight(
    vllm_config: Any, discipline: str, blocks: int, shared: int
) -> None:
    """vLLM keeps that token, and admits the request once it is there. The simulator took the token for lost."""
    tasks = trace(1036, 50, shared) if shared else with_chats(trace(1011, 50))
    live = AsynchronousTwin(vllm_config, tasks, discipline, blocks).run()
    simulation = simulated(tasks, discipline, blocks, asynchronous=True)
    assert any(event["event"] == "evict" for event in live)
    check_same_steps(steps(live), steps(simulation))


@pytest.mark.parametrize("discipline", ["fcfs", "timely"])
def test_a_whole_prompt_stays_whole_where_its_step_takes_blocks_that_it_would_have_read(
    vllm_config: Any, discipline: str
) -> None:
    """Its share was what was not cached. A prompt before it takes such blocks, and its first token came a step late."""
    prompts = [(0.0, 320, 10), (1.0, 0, 200), (2.0, 0, 100), (2.0, 320, 10)]
    tasks = [
        PlannedTask(
            job=job,
            arrival_s=arrival_s,
            plan=(PlannedSegment("x", 4, 0.25),),
            prompt_tokens=shared_tokens + own_tokens,
            shared_prefix_tokens=shared_tokens,
            prefix="fixed",
            hints=RequestHints(utility=NORMAL, network_s=2.0**-7),
            segment_bound=4,
        )
        for job, (arrival_s, shared_tokens, own_tokens) in enumerate(prompts)
    ]
    live = steps(Twin(vllm_config, tasks, discipline, blocks=17).run())
    check_same_steps(live, steps(simulated(tasks, discipline, blocks=17)), more_than=10)
    together = next(number for number, (_, tokens, _) in enumerate(live) if "2" in tokens)
    assert live[together][1] == {"2": 100, "3": 10}
    assert live[together + 1][1] == {"2": 1, "3": 1}


NAMED_TOKENS = 80
"""Tokens of a block that a trace names; short ones, since prompts are short here, and no multiple of ``BLOCK``."""


def conversations(tasks: list[PlannedTask]) -> list[PlannedTask]:
    """The same tasks; each chat takes up some blocks of an earlier chat's prompt and goes on by itself."""
    draw = random.Random(5)
    prompts: list[tuple[int, ...]] = [(1,)]
    for task in tasks:
        if task.plain:
            stem = draw.choice(prompts)[: draw.randrange(7)]
            prompts.append((*stem, *(10 * int(task.job) + 2 + n for n in range(draw.randrange(1, 4)))))
    names = iter(prompts[1:])
    return [
        replace(
            task,
            prompt_tokens=NAMED_TOKENS * len(block_ids) - draw.randrange(NAMED_TOKENS),
            shared_prefix_tokens=0,
            block_ids=block_ids,
        )
        if task.plain and (block_ids := next(names))
        else task
        for task in tasks
    ]


@pytest.mark.parametrize("blocks", [4000, 100])
@pytest.mark.parametrize("discipline", ["timely", "fcfs"])
def test_the_same_decisions_with_conversations_that_branch(
    vllm_config: Any, discipline: str, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt finds what an earlier one with the same first blocks left, in both engines."""
    monkeypatch.setattr(replay_types, "BLOCK_ID_TOKENS", NAMED_TOKENS)
    tasks = conversations(with_chats(trace(seed=21, jobs=80, shared=64)))
    live = steps(Twin(vllm_config, tasks, discipline, blocks=blocks).run())
    simulation = steps(simulated(tasks, discipline, blocks=blocks))
    check_same_steps(live, simulation)


def test_the_same_decisions_where_a_waiting_plan_loses_what_it_left(
    vllm_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that it would have found again are reused meanwhile. Neither engine counted that."""
    monkeypatch.setattr(replay_types, "BLOCK_ID_TOKENS", NAMED_TOKENS)
    tasks = conversations(with_chats(trace(1102, 50, 320)))
    live = steps(Twin(vllm_config, tasks, "las", 78).run())
    check_same_steps(live, steps(simulated(tasks, "las", 78)))


@pytest.mark.parametrize("discipline", ["timely", "pud"])
def test_the_same_decisions_with_robots_that_report(vllm_config: Any, discipline: str) -> None:
    """Estimates are wrong, reports replace them, and what they say of a robot's pace is in its next plans."""
    tasks = mistaken(trace(seed=9, jobs=60))
    twin = Twin(vllm_config, tasks, discipline, blocks=4000, closed_loop=True)
    live = twin.run()
    simulation = simulated(tasks, discipline, blocks=4000, closed_loop=True)
    check_same_steps(steps(live), steps(simulation))
    paces = [
        [event.get("pace", 1.0) for event in journal if event["event"] == "segment"]
        for journal in (live, simulation)
    ]
    assert paces[0] == paces[1]
    assert min(paces[0]) < (0.6 if discipline == "timely" else 0.7)
    # Literal `pud` resumes a plan at once, so some plans end before the first report and teach nothing.
    learned = {
        int(name.removeprefix("robot-")): pace
        for name, pace in twin.scheduler.controller.paces.robots().items()
    }
    fast = [pace for robot, pace in learned.items() if robot % 3 == 1]
    slow = [pace for robot, pace in learned.items() if robot % 3 == 2]
    assert fast
    assert max(fast) < 1.0
    assert slow
    assert set(slow) == {1.0}
    if discipline == "timely":
        assert learned[1] < 1.0
        assert learned[2] == 1.0


def test_blocks_that_others_hold_are_told_apart(vllm_config: Any) -> None:
    tasks = [replace(task, arrival_s=0.0) for task in trace(seed=8, jobs=3, shared=4 * BLOCK)]
    tasks[2] = replace(tasks[2], arrival_s=1.0)
    twin = Twin(vllm_config, tasks, "fcfs", blocks=24)  # so few that it matters
    twin.add(tasks[0])
    twin.step()
    twin.add(tasks[1])
    twin.step()
    twin.add(tasks[2])
    scheduler, table = twin.scheduler, twin.scheduler.controller.table
    assert int(table.prefill_left[2]) == tasks[2].prompt_tokens - 4 * BLOCK
    scheduler.blocks.look_up_prefixes(free_blocks=1)
    assert table.resident.tolist() == [True, True, False]
    assert table.shared_blocks.tolist() == [4, 4, 4]


def test_under_memory_pressure_they_differ_little(vllm_config: Any) -> None:
    """vLLM's prefix cache keeps evicted blocks that the simulator counts differently; the outcome stays close."""
    tasks = trace(seed=6, jobs=40)
    live = Twin(vllm_config, tasks, "timely", blocks=18).run()
    simulation = simulated(tasks, "timely", blocks=18)

    def first_segments(journal: list[dict[str, Any]]) -> np.ndarray:
        ready = {str(e["job"]): e["t_s"] for e in journal if e["event"] == "segment" and e["index"] == 0}
        return np.array([ready[str(task.job)] - task.arrival_s for task in tasks])

    assert sum(e["event"] == "evict" for e in live) > 0
    ours, theirs = first_segments(live), first_segments(simulation)
    assert abs(np.median(ours) - np.median(theirs)) <= 0.05 * np.median(theirs)


@pytest.mark.parametrize("discipline", ["timely", "pud"])
def test_composed_ahead_with_robots_that_report(vllm_config: Any, discipline: str) -> None:
    """Prefixes that are cached, estimates that are wrong: all at once, a step ahead."""
    tasks = mistaken(trace(seed=11, jobs=60, shared=320))
    live = steps(AsynchronousTwin(vllm_config, tasks, discipline, 4000, True).run())
    simulation = steps(simulated(tasks, discipline, 4000, closed_loop=True, asynchronous=True))
    check_same_steps(live, simulation)


def test_composed_ahead_under_memory_pressure(vllm_config: Any) -> None:
    """A request evicted while its token is in flight keeps that token: none is served twice or lost."""
    tasks = trace(seed=6, jobs=40)
    live = AsynchronousTwin(vllm_config, tasks, "timely", 18).run()
    simulation = simulated(tasks, "timely", 18, asynchronous=True)
    for journal in (live, simulation):
        assert sum(event["event"] == "evict" for event in journal) > 0
        closed = [(str(e["job"]), e["index"], e["tokens"]) for e in journal if e["event"] == "segment"]
        planned = [(str(t.job), n, s.tokens) for t in tasks for n, s in enumerate(t.plan)]
        assert sorted(closed) == sorted(planned)
