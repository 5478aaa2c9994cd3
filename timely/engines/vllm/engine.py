"""The live engine: vLLM with our scheduler plugged in, behind the ``Engine`` interface.

vLLM runs unmodified, its engine loop in one process or several of its own. This class is its front-end in the
server's event loop. It takes every argument of vLLM's command line.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import asdict, astuple, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from timely.core.errors import (
    Conflict,
    EngineDied,
    EngineFailed,
    InvalidInput,
    Overloaded,
    TimelyError,
    TooLarge,
)
from timely.core.hints import RequestHints
from timely.core.reports import ExecutionReport
from timely.core.temporary_folders import temporary_folder
from timely.core.utility import TimeUtility
from timely.disciplines import registry
from timely.disciplines.base import DisciplineInfo
from timely.disciplines.requirements import check_queue_discipline_needs, discipline_lacks
from timely.engines.base import (
    NOTHING_AHEAD,
    Engine,
    EngineEvent,
    EngineStats,
    GenerationRequest,
    Mode,
    PlanHistory,
    ResponsePrediction,
)
from timely.engines.vllm.arguments import (
    EngineSizes,
    VllmOptions,
    parse_vllm_arguments,
    set_vllm_environment,
    vllm_engine_environment,
    vllm_engine_features,
)
from timely.engines.vllm.boundaries import vllm_skill_set
from timely.engines.vllm.engine_choice import VllmEngineChoice
from timely.engines.vllm.engine_events import (
    vllm_engine_stats,
    vllm_error_from_data,
    vllm_error_line,
    vllm_generation_done,
    vllm_merged_segment,
    vllm_segment_ready,
)
from timely.engines.vllm.engine_process import (
    ctrl_c_ends_vllm_start,
    fail_vllm_generations,
    kill_vllm,
    launch_vllm,
    shut_down_vllm,
    vllm_death,
)
from timely.engines.vllm.forced_decoding import vllm_sampling_keywords
from timely.engines.vllm.model import (
    DEFAULT_MODEL,
    vllm_model_identity,
    vllm_planner_adapter,
    vllm_planner_card,
)
from timely.engines.vllm.name_constraint import vllm_prompt_names
from timely.engines.vllm.params import vllm_forced_plan_params, vllm_hint_params, vllm_openai_fields
from timely.engines.vllm.report_batches import VllmReportBatches
from timely.engines.vllm.resumed_plan import vllm_resumed_context, vllm_resumed_end, vllm_tokens_left
from timely.planner.model_card import PlannerCard, read_planner_card
from timely.plans.grammar import plan_grammar
from timely.plans.prompt import build_prompt
from timely.plans.prompt_tokens import PlanPromptEncoder, plan_prompt_encoder
from timely.plans.skill_library import find_skill_set, skill_set_names

TEXT_CHARS = 2_000
"""As much of a task's text as predictors read."""

CONTROL_DEADLINE_S = 10.0
"""A control event is answered within one engine step; longer means that the engine is gone."""

JOIN_POLL_S = 0.01
"""Between two reports of a generation that the engines do not have yet."""

PLANNER_ADAPTER, PLANNER_ADAPTER_ID = "timely-planner", 2**31 - 1
"""vLLM numbers the adapters of ``--lora-modules`` from 1, and takes two of one number for the same."""

LOAD_POLL_S = 0.05
"""Between two questions whether the engines have loaded a discipline."""


class VllmEngine(Engine):
    """Timely on vLLM."""

    name = "vllm"

    def __init__(self, options: VllmOptions | None = None) -> None:
        self.options = options or VllmOptions()
        registry.load_discipline(
            self.options.discipline
        )  # an unknown name fails here, not in the engine process
        self.openai_app: Any = None
        self._llm: Any = None
        self._lora: Any = None
        self._args: Any = None
        self._tokenizer: Any = None
        # One thread keeps the order of requests and the event loop free.
        self._tokenizing = ThreadPoolExecutor(1, "tokenize")
        self._grammars: dict[str, Any] = {}
        """vLLM's ``StructuredOutputsParams`` by the fingerprint of the skill set."""
        self._planner_names: dict[str, list[str]] = {}
        """By skill set: names that a planner may write although the prompt does not have them."""
        self._identity = self.name
        self._live: dict[str, int | None] = {}
        """Engine of each task; None: not chosen yet, or by vLLM."""
        self._joining: set[str] = set()
        """Resumed plans without an output yet, which the engines may not have yet: reports on them wait."""
        self._switching = asyncio.Lock()
        self._reports = VllmReportBatches(self._control)
        self._choice: VllmEngineChoice | None = None
        """With several engines."""
        self._following: asyncio.Task[None] | None = None
        self._files = contextlib.ExitStack()
        """The folder of the engine's sockets, removed with it."""

    @property
    def identity(self) -> str:
        return self._identity

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Load the model and start vLLM's engine process; about half a minute for the small model."""
        set_vllm_environment(self.options)
        await asyncio.sleep(0)  # a cancellation that came before ends here, not after the import
        # Imported late: it takes seconds, and the command line must not wait for it.
        with ctrl_c_ends_vllm_start():
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            from timely.engines.vllm.plugin import register_vllm_plugin

            register_vllm_plugin()
            self._args = parse_vllm_arguments(self.options)
        card = self._planner_card()
        self._identity = await asyncio.to_thread(self._identify)
        self.planner_skill_sets = frozenset(card.skill_sets if card else ())
        self._planner_names = dict((card.names if card else None) or {})
        with contextlib.ExitStack() as files:
            sockets = files.enter_context(temporary_folder("timely-vllm-"))
            with vllm_engine_environment(self._args, sockets):
                engine_args = partial(AsyncEngineArgs.from_cli_args, self._args)
                self._llm = await launch_vllm(AsyncLLM, engine_args, self._args.model)
            self._files = files.pop_all()
        self._tokenizer = self._llm.get_tokenizer()
        from timely.engines.vllm.openai import build_vllm_openai_app

        self.openai_app = await build_vllm_openai_app(self._llm, self._args)
        engines = len(self._llm.engine_core.core_engines)
        if engines > 1:
            self._choice = VllmEngineChoice(engines, partial(self._control, {"kind": "load"}))
        await self._warm_up(engines)

    def _identify(self) -> str:
        adapter = Path(self._lora.lora_path) if self._lora is not None else None
        return " ".join(
            [
                self.name,
                vllm_model_identity(self._args.model),
                vllm_model_identity(adapter) if adapter else "",
            ]
        )

    def _planner_card(self) -> PlannerCard | None:
        """The card of the planner in the weights, or of the adapter beside them, which its requests then name."""
        if not self._args.enable_lora:
            return vllm_planner_card(self._args.model)
        options = self.options
        is_packaged = options.model in (None, DEFAULT_MODEL)
        adapter = vllm_planner_adapter(self._args.model, options.planner, packaged=is_packaged)
        if adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        self._lora = LoRARequest(PLANNER_ADAPTER, PLANNER_ADAPTER_ID, str(adapter))
        return read_planner_card(adapter)

    async def _warm_up(self, engines: int) -> None:
        """Pre-stored prompts (TimelyLLM section 4.1).

        The fixed part of every skill set's prompt enters each prefix cache, to stay, and its grammar is compiled.
        As in served tasks, it has no examples where the model was trained for the skill set.
        """
        for name in self.options.warm_up if self.options.warm_up is not None else skill_set_names():
            prompt = build_prompt(
                find_skill_set(name), "Get ready.", examples=name not in self.planner_skill_sets
            )
            request = GenerationRequest(
                task_id=f"warm-up-{name}",
                prompt=prompt.user,
                system=prompt.system,
                skill_set=name,
                max_tokens=2,
                keep_prompt=True,
            )
            prompt_ids = self._encode(request)
            if len(prompt_ids) > self.max_prompt_tokens:
                continue  # a small context: this skill set's tasks will be refused with the reason
            for engine in range(engines):
                async for _ in self._stream(request, prompt_ids, 0, engine if engines > 1 else None):
                    pass
                if self._choice is not None:
                    self._choice.note_prompt(engine, name, prompt_ids)
        # A fresh discipline has not learned lengths from these requests.
        await self.set_discipline(self.options.discipline)

    async def stop(self) -> None:
        """End the engine process; safe to call twice."""
        llm, self._llm, self.openai_app = self._llm, None, None
        if self._following is not None:
            self._following.cancel()
        self._reports.close()
        with self._files:
            if llm is not None:
                await shut_down_vllm(llm)

    def end_answers(self) -> None:
        if self._llm is not None:
            fail_vllm_generations(self._llm)

    async def wait_dead(self) -> EngineFailed:
        return await vllm_death(self._running())

    @property
    def dead(self) -> bool:
        return self._llm is not None and self._llm.errored

    async def answer(self) -> None:
        await self._control({"kind": "ping"}, limit_s=None)

    async def kill(self) -> None:
        kill_vllm(self._running())

    @staticmethod
    def _failure(llm: Any, error: Exception) -> TimelyError:
        """vLLM raises ``EngineDeadError`` and others from many places."""
        from vllm.exceptions import GracefulHTTPError

        if isinstance(error, GracefulHTTPError) and error.http_status == 503:  # a limit of vLLM's own queue
            return Overloaded(error.message, where="vllm")
        kind = EngineDied if llm.errored else EngineFailed
        return kind(vllm_error_line(error), where="vllm")

    # ------------------------------------------------------------------ generating

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[EngineEvent, None]:
        llm = self._running()
        if request.task_id in self._live:
            raise Conflict(f"task {request.task_id!r} is already being served", where="task_id")
        history = request.history
        if history is not None and (end := vllm_resumed_end(request, history)) is not None:
            yield end
            return
        whole = self.options.mode == "whole"
        sent_count = 0
        account: dict[str, Any] = {"segments": []}
        last: Any = None
        self._live[request.task_id] = None
        if history is not None:
            self._joining.add(request.task_id)
        try:
            context = await self._on_tokenizer(self._resumed_context, history) if history else []
            token_ids = await self._on_tokenizer(self._prompt_ids, request) + context
            room_tokens = llm.model_config.max_model_len - len(token_ids)
            if history is not None and (end := vllm_resumed_end(request, history, room_tokens)) is not None:
                yield end
                return
            engine = self._live[request.task_id] = self._choose_engine(request, token_ids)
            stream = self._stream(request, token_ids, len(context), engine)
            # Closed here: a reader that leaves must free its KV cache now, not at garbage collection.
            async with contextlib.aclosing(stream):
                async for output in stream:
                    last = output
                    self._joining.discard(request.task_id)
                    timely = (output.kv_transfer_params or {}).get("timely")
                    if timely is None:
                        continue
                    account = timely
                    for segment in account["segments"][sent_count:] if not whole else ():
                        yield vllm_segment_ready(request.task_id, segment)
                        sent_count += 1
        except (Conflict, InvalidInput, GeneratorExit, asyncio.CancelledError):
            raise
        except ValueError as error:
            raise InvalidInput(vllm_error_line(error), where="request") from error
        except Exception as error:
            raise self._failure(llm, error) from error
        finally:
            del self._live[request.task_id]
            self._joining.discard(request.task_id)
        if "error" in account:
            raise vllm_error_from_data(account["error"])
        text = last.outputs[0].text if last is not None and last.outputs else ""
        if history is not None:
            segments = account["segments"]
            text = "".join([history.text, *(part["text"] for part in segments), account.get("tail", "")])
        done = vllm_generation_done(request, last, account, text)
        if whole and account["segments"]:
            yield vllm_merged_segment(account, done, history.text if history is not None else "")
        yield done

    def _stream(
        self, request: GenerationRequest, token_ids: list[int], resumed_tokens: int, engine: int | None
    ) -> AsyncGenerator[Any]:
        """vLLM's outputs of a request; ``engine`` None: vLLM chooses the engine."""
        from vllm.inputs.engine import tokens_input

        stream: AsyncGenerator[Any] = self._running().generate(
            tokens_input(token_ids),
            self._sampling_parameters(request, resumed_tokens),
            request_id=request.task_id,
            priority=int(request.hints.priority) if self._args.scheduling_policy == "priority" else 0,
            lora_request=self._lora if request.skill_set in self.planner_skill_sets else None,
            data_parallel_rank=engine,
            # Otherwise a reasoning parser keeps the grammar off until the model's thoughts end.
            reasoning_ended=True,
        )
        return stream

    def _choose_engine(self, request: GenerationRequest, token_ids: list[int]) -> int | None:
        if self._choice is None:
            return None
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._choice.follow(self._live), context=Context())
        return self._choice.choose(request, token_ids, self.options.mode, time.monotonic())

    def _prompt_ids(self, request: GenerationRequest) -> list[int]:
        forced_plan = request.forced
        if forced_plan is None or forced_plan.prompt_token_ids is None:
            return self._fitting(self._encode(request))
        return self._fitting(list(forced_plan.prompt_token_ids))

    def _resumed_context(self, history: PlanHistory) -> list[int]:
        return vllm_resumed_context(history, self.options.mode, self.prompt_encoder.encode_text)

    @property
    def prompt_encoder(self) -> PlanPromptEncoder:
        """Encodes prompts so that text of users never becomes a special token."""
        return plan_prompt_encoder(self._tokenizer)

    def _encode(self, request: GenerationRequest) -> list[int]:
        return self.prompt_encoder.encode(request.system, request.prompt)

    def _fitting(self, token_ids: list[int]) -> list[int]:
        limit = self.max_prompt_tokens
        if len(token_ids) > limit:
            raise TooLarge(f"the prompt has {len(token_ids)} tokens; at most {limit} fit", where="task")
        return token_ids

    def _sampling_parameters(self, request: GenerationRequest, resumed_tokens: int) -> Any:
        from vllm.sampling_params import RequestOutputKind

        from timely.engines.vllm.plan_sampling import PlanSamplingParams

        rules = self._grammar(request) if request.constrained and not request.forced else None
        timely: dict[str, Any] = {
            **vllm_hint_params(request.hints),
            "task_id": request.task_id,
            "skill_set": request.skill_set,
            "skill_set_fingerprint": request.skill_set_fingerprint,
            "robot": request.robot,
            # The task's own words: predictors were trained on these, not on the scene around them.
            "text": request.words[:TEXT_CHARS],
            "keep_prompt": request.keep_prompt,
            "arrival_s": request.arrival_s,
        }
        if rules and request.skill_set in self._planner_names:
            timely["names"] = vllm_prompt_names(request.prompt, self._planner_names[request.skill_set])
        stop_token_ids = []
        if request.forced:
            timely |= vllm_forced_plan_params(request.forced)
            if request.forced.stop_token_id is not None:
                stop_token_ids = [request.forced.stop_token_id]
        if request.history is not None:
            timely |= {"history": asdict(request.history), "resumed_tokens": resumed_tokens}
        return PlanSamplingParams(
            temperature=request.temperature,
            max_tokens=vllm_tokens_left(request),
            seed=request.seed,
            ignore_eos=bool(request.forced),
            stop_token_ids=stop_token_ids,
            structured_outputs=rules,
            extra_args={"timely": timely},
            output_kind=RequestOutputKind.CUMULATIVE,
            **vllm_sampling_keywords(timely, trace_replay=self._args.enable_trace_replay),
        )

    def _grammar(self, request: GenerationRequest) -> Any:
        """The ``StructuredOutputsParams`` of its skill set; None without a grammar."""
        if not request.skill_set:
            return None
        from vllm.sampling_params import StructuredOutputsParams

        skill_set = vllm_skill_set(request.skill_set, request.skill_set_fingerprint)
        if skill_set.fingerprint not in self._grammars:
            rules = plan_grammar(skill_set)
            self._grammars[skill_set.fingerprint] = StructuredOutputsParams(grammar=rules) if rules else None
        return self._grammars[skill_set.fingerprint]

    # ------------------------------------------------------------------ control

    async def report(self, task_id: str, report: ExecutionReport) -> None:
        """With several engines the report reaches all, and the one that holds the task takes it."""
        # A report waits in the engine's queue until a step ends; its times hold for the moment it was sent.
        event = {"kind": "report", "task_id": task_id, "report": report.to_dict(), "sent_s": time.monotonic()}
        while not any(answer["known"] for answer in await self._send_report(event)):
            if task_id not in self._joining:
                return
            await asyncio.sleep(JOIN_POLL_S)

    async def _send_report(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        answers = await self._reports.send(event, at_once=event["report"]["kind"] == "value")
        _raise_vllm_errors(answers)
        return answers

    async def cancel(self, task_id: str) -> bool:
        answers = await self._control({"kind": "cancel", "task_id": task_id})
        return any(answer.get("known") for answer in answers)

    async def set_urgency(self, task_id: str, urgency: int) -> bool:
        """For all sequences of an ordinary request."""
        answers = await self._control({"kind": "urgency", "task_id": task_id, "urgency": urgency})
        return any(answer.get("known") for answer in answers)

    async def set_discipline(self, name: str) -> None:
        """All engines switch.

        Raises:
            Unsupported: it needs speculation, which this engine does not have; the current discipline stays.
        """
        discipline = await asyncio.to_thread(registry.load_discipline, name)
        check_queue_discipline_needs(discipline.info, vllm_engine_features(self._args))
        load = {"kind": "load_discipline", "name": name}
        async with self._switching:  # a slow load must not overtake a later switch
            while not all(answer["loaded"] for answer in await self._control(load)):  # noqa: ASYNC110 - of other processes
                await asyncio.sleep(LOAD_POLL_S)
            await self._control({"kind": "discipline", "name": name})

    async def set_mode(self, mode: Mode) -> None:
        """Serve in another mode from now on; only while nothing is being served.

        Raises:
            Conflict: a generation is live.
        """
        await self._control({"kind": "mode", "name": mode})
        self.options = replace(self.options, mode=mode)

    async def stats(self) -> EngineStats:
        return vllm_engine_stats(await self._control({"kind": "stats"}))

    async def predict_response(
        self, utility: TimeUtility, ahead: Mapping[str, RequestHints] = NOTHING_AHEAD
    ) -> ResponsePrediction | None:
        """Of the engine that would respond first.

        Tasks whose engine is not chosen yet are expected to be spread evenly.
        """
        coming: list[list[Any]] = [[] for _ in self._running().engine_core.core_engines]
        turns = cycle(coming)
        for task_id, hints in ahead.items():
            engine = self._live.get(task_id)
            tasks = next(turns) if engine is None else coming[engine]
            tasks.append([task_id, astuple(hints.utility), hints.network_s, hints.promised])
        event = {"kind": "eta", "tuf": astuple(utility), "ahead": coming}
        answer = min(await self._control(event), key=lambda answer: float(answer["eta_s"]))
        return ResponsePrediction(answer["eta_s"], answer["upper_s"])

    async def _control(
        self, event: Mapping[str, Any], limit_s: float | None = CONTROL_DEADLINE_S
    ) -> list[dict[str, Any]]:
        llm = self._running()
        try:
            async with asyncio.timeout(limit_s):
                answers: list[dict[str, Any]] = await llm.engine_core.call_utility_all_async(
                    "timely_control", dict(event)
                )
        except TimeoutError:
            raise EngineFailed(f"no answer within {limit_s} s", where="vllm") from None
        except TimelyError:
            raise
        except Exception as error:
            raise self._failure(llm, error) from error
        _raise_vllm_errors(answers)
        return answers

    # ------------------------------------------------------------------ facts

    def disciplines(self) -> tuple[DisciplineInfo, ...]:
        """Without those that need speculation, if this engine runs without it."""
        features = vllm_engine_features(self._args)
        return tuple(info for info in super().disciplines() if not discipline_lacks(info, features))

    def openai_fields(self, hints: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
        return vllm_openai_fields(hints, body)

    async def tokenize(self, text: str) -> list[int]:
        """Token ids under the model's tokenizer, no special tokens."""
        self._running()
        return await self._on_tokenizer(self.prompt_encoder.encode_text, text)

    async def _on_tokenizer(self, function: Callable[[Any], list[int]], argument: object) -> list[int]:
        return await asyncio.get_running_loop().run_in_executor(self._tokenizing, function, argument)

    def metrics_page(self) -> bytes:
        """What ``vllm serve`` has at ``/metrics``."""
        from prometheus_client import generate_latest
        from vllm.v1.metrics.prometheus import get_prometheus_registry

        return generate_latest(get_prometheus_registry())

    @property
    def special_texts(self) -> frozenset[str]:
        return self.prompt_encoder.special_texts if self._tokenizer is not None else frozenset()

    @property
    def max_prompt_tokens(self) -> int:
        """The model's context less room for a short plan."""
        if self._llm is None:
            return super().max_prompt_tokens
        return int(self._llm.model_config.max_model_len) - 64

    @property
    def model_name(self) -> str:
        """The running model's name, or its folder's."""
        return Path(str(self._running().model_config.model)).name

    @property
    def sizes(self) -> EngineSizes:
        """Sizes of the running engine (of one, with several)."""
        config = self._running().vllm_config
        return EngineSizes(
            kv_blocks=int(config.cache_config.num_gpu_blocks),
            block_tokens=int(config.cache_config.block_size),
            max_batch=int(config.scheduler_config.max_num_seqs),
            token_budget=int(config.scheduler_config.max_num_batched_tokens),
            asynchronous=bool(config.scheduler_config.async_scheduling),
        )

    def _running(self) -> Any:
        if self._llm is None:
            raise EngineFailed("the engine is not running", where="vllm")
        return self._llm


def _raise_vllm_errors(answers: Iterable[Mapping[str, Any]]) -> None:
    """Raise the first error that came back as data."""
    for answer in answers:
        if "error" in answer:
            raise vllm_error_from_data(answer["error"])
