"""The live engine: vLLM with our scheduler plugged in, behind the ``Engine`` interface.

vLLM runs unmodified, its engine loop in a process (or several) of its own; this class is its front-end in the
server's event loop. Everything that vLLM's command line takes may be given.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from timely.core.errors import (
    Conflict,
    EngineFailed,
    InvalidInput,
    TimelyError,
    TooLarge,
    UnknownName,
    Unsupported,
)
from timely.core.reports import ExecutionReport
from timely.disciplines import registry
from timely.disciplines.base import DisciplineInfo
from timely.disciplines.requirements import SPECULATION, check_needs, lacks
from timely.engines.base import (
    Engine,
    EngineEvent,
    EngineStats,
    FinishReason,
    GenerationDone,
    GenerationRequest,
    JobView,
    Mode,
    SegmentReady,
)
from timely.engines.vllm.compatibility import SUPPORTED
from timely.engines.vllm.forced_decoding import sampling_keywords
from timely.engines.vllm.model import DEFAULT_MODEL, NO_PLANNER, planner_apart, planner_card, resolve_model
from timely.engines.vllm.name_constraint import names_for
from timely.engines.vllm.params import forced_to_wire, hints_to_wire
from timely.planner.model_card import Card, read_card
from timely.plans import build_prompt, find_skill_set, grammar, skill_set_names

SCHEDULER = "timely.engines.vllm.scheduler.TimelyScheduler"
TEXT_CHARS = 2_000
"""Of a request's words, for predictors."""

CONTROL_DEADLINE_S = 10.0
"""A control event is answered within one engine step; longer means that the engine is gone."""

STOP_S = 12.0
"""Time for the engine's processes to end, seconds. vLLM kills them afterwards, and shared memory is left behind."""


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """How to run vLLM.

    Attributes:
        model: folder, Hugging Face name, or None for the packaged small model.
        planner: folder of an adapter to merge in, "none", or None: the one that comes with the packaged model.
            With ``--enable-lora`` among the arguments it stays apart: only its skill sets' tasks are planned with it.
        arguments: any further arguments of ``vllm serve``, as on its command line.
        journal: file for every event and decision (JSON lines), or None.
    """

    model: str | None = None
    planner: str | None = None
    discipline: str = registry.DEFAULT
    mode: Mode = "segmented"
    predictors: tuple[str, ...] = ()
    """Predictor files for disciplines: each takes the one that is for it, whenever it is switched to."""
    max_batch: int | None = None
    prefill_chunk: int | None = None
    journal: str | None = None
    arguments: tuple[str, ...] = ()
    warm_up: tuple[str, ...] | None = None
    """Skill sets whose fixed prompts and grammars are made ready at start; None: all that are installed."""


@dataclass(frozen=True, slots=True)
class EngineSizes:
    """Blocks of KV cache and tokens in each, most sequences and most tokens in a step; whether it is composed ahead."""

    kv_blocks: int
    block_tokens: int
    max_batch: int
    token_budget: int
    asynchronous: bool = False


class VllmEngine(Engine):
    """Timely on vLLM."""

    name = "vllm"

    def __init__(self, options: VllmOptions | None = None) -> None:
        self.options = options or VllmOptions()
        registry.load(self.options.discipline)  # an unknown name fails here, not in the engine process
        self.openai_app: Any = None
        self._llm: Any = None
        self._lora: Any = None
        self._args: Any = None
        self._tokenizer: Any = None
        self._grammars: dict[str, str] = {}
        self._brought: dict[str, list[str]] = {}
        """By skill set of a planner that takes names from the prompt: those its plans bring along."""
        self._live: set[str] = set()

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Load the model and start vLLM's engine process; about half a minute for the small model."""
        _environment(self.options)
        # Imported late: it takes seconds, and the command line must not wait for it.
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from timely.engines.vllm.plugin import register

        register()
        self._args = parse_arguments(self.options)
        card = self._planner_card()
        self.planner_skill_sets = frozenset(card.skill_sets if card else ())
        self._brought = dict((card.names if card else None) or {})
        engine_args = AsyncEngineArgs.from_cli_args(self._args)

        def launch() -> Any:
            config = engine_args.create_engine_config()
            with _children_ignore_ctrl_c():
                return AsyncLLM.from_vllm_config(
                    vllm_config=config,
                    enable_log_requests=engine_args.enable_log_requests,
                    disable_log_stats=engine_args.disable_log_stats,
                )

        others = set(multiprocessing.active_children())
        try:
            # In a thread: half a minute in which the event loop must still hear a signal.
            self._llm = await asyncio.get_running_loop().run_in_executor(None, launch)
        except asyncio.CancelledError:
            # The thread waits for the engine's process, and whoever interrupts would wait for the thread.
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise
        except (ValueError, RuntimeError, OSError) as error:
            raise EngineFailed(f"vLLM did not start: {_first_line(error)}", where="vllm") from error
        self._tokenizer = self._llm.get_tokenizer()
        from timely.engines.vllm.openai import build_openai_app

        self.openai_app = await build_openai_app(self._llm, self._args)
        await self._warm_up()

    def _planner_card(self) -> Card | None:
        """Of the planner in the weights, or of the one beside them, which then goes along with its requests."""
        if not self._args.enable_lora:
            return planner_card(self._args.model)
        options = self.options
        packaged = options.model in (None, DEFAULT_MODEL)
        adapter = planner_apart(self._args.model, options.planner, packaged=packaged)
        if adapter is None:
            return None
        from vllm.lora.request import LoRARequest

        self._lora = LoRARequest("planner", 1, str(adapter))
        return read_card(adapter)

    async def _warm_up(self) -> None:
        """Pre-stored prompts (TimelyLLM section 4.1): the fixed part of every skill set goes into the prefix cache
        and its grammar is compiled, so that the first robot does not pay for either."""
        for name in self.options.warm_up if self.options.warm_up is not None else skill_set_names():
            prompt = build_prompt(find_skill_set(name), "Get ready.")
            request = GenerationRequest(
                task_id=f"warm-up-{name}",
                prompt=prompt.user,
                system=prompt.system,
                skill_set=name,
                max_tokens=2,
            )
            if len(self._templated(request)) > self.max_prompt_tokens:
                continue  # a small context: this skill set's tasks will be refused with the reason
            async for _ in self.generate(request):
                pass
        # A new one: what it is to learn from requests (how long they are, say) is not to begin with these.
        await self.set_discipline(self.options.discipline)

    async def stop(self) -> None:
        """End the engine process; safe to call twice."""
        llm, self._llm, self.openai_app = self._llm, None, None
        if llm is not None:
            await asyncio.get_running_loop().run_in_executor(None, llm.shutdown, STOP_S)

    # ------------------------------------------------------------------ generating

    async def generate(self, request: GenerationRequest) -> AsyncIterator[EngineEvent]:
        """See ``Engine.generate``."""
        from vllm.inputs.engine import tokens_input

        llm = self._running()
        if request.task_id in self._live:
            raise Conflict(f"task {request.task_id!r} is already being served", where="task_id")
        token_ids = self._prompt_ids(request)
        parameters = self._sampling_parameters(request)
        whole = self.options.mode == "whole"
        sent = 0
        account: dict[str, Any] = {"segments": []}
        last: Any = None
        self._live.add(request.task_id)
        stream = llm.generate(
            tokens_input(token_ids),
            parameters,
            request_id=request.task_id,
            priority=int(request.hints.priority) if self._args.scheduling_policy == "priority" else 0,
            lora_request=self._lora if request.skill_set in self.planner_skill_sets else None,
        )
        try:
            # Closed by name: a reader that leaves must free its KV cache now, not when garbage is collected.
            async with contextlib.aclosing(stream):
                async for output in stream:
                    last = output
                    timely = (output.kv_transfer_params or {}).get("timely")
                    if timely is None:
                        continue
                    account = timely
                    for segment in account["segments"][sent:] if not whole else ():
                        yield _segment(request.task_id, segment)
                        sent += 1
        except (InvalidInput, GeneratorExit, asyncio.CancelledError):
            raise
        except ValueError as error:
            raise InvalidInput(_first_line(error), where="request") from error
        except Exception as error:
            # vLLM raises EngineDeadError and kin from many places: all mean that the engine is gone.
            raise EngineFailed(_first_line(error), where="vllm") from error
        finally:
            self._live.discard(request.task_id)
        text = last.outputs[0].text if last is not None and last.outputs else ""
        if whole and account["segments"]:
            yield _merged(request.task_id, account["segments"], text)
        yield _done(request, last, account, text)

    def _prompt_ids(self, request: GenerationRequest) -> list[int]:
        forced = request.forced
        if forced is None or forced.prompt_token_ids is None:
            return self._fitting(self._templated(request))
        return self._fitting(list(forced.prompt_token_ids))

    def _templated(self, request: GenerationRequest) -> list[int]:
        messages = []
        if request.system:
            messages.append({"role": "system", "content": request.system})
        messages.append({"role": "user", "content": request.prompt})
        if getattr(self._tokenizer, "chat_template", None):
            text = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        else:
            text = "\n\n".join(message["content"] for message in messages)
        # A chat template writes its own special tokens.
        templated = bool(getattr(self._tokenizer, "chat_template", None))
        return list(self._tokenizer.encode(text, add_special_tokens=not templated))

    def _fitting(self, token_ids: list[int]) -> list[int]:
        limit = self.max_prompt_tokens
        if len(token_ids) > limit:
            raise TooLarge(f"the prompt has {len(token_ids)} tokens; at most {limit} fit", where="task")
        return token_ids

    def _sampling_parameters(self, request: GenerationRequest) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        rules = self._grammar(request.skill_set) if request.constrained and not request.forced else ""
        timely: dict[str, Any] = {
            **hints_to_wire(request.hints),
            "task_id": request.task_id,
            "skill_set": request.skill_set,
            "robot": request.robot,
            # The task's own words: predictors were trained on these, not on the scene around them.
            "text": request.words[:TEXT_CHARS],
        }
        if rules and request.skill_set in self._brought:
            timely["names"] = names_for(request.prompt, self._brought[request.skill_set])
        if request.forced:
            timely |= forced_to_wire(request.forced)
        return SamplingParams(
            temperature=request.temperature,
            max_tokens=request.max_tokens,
            seed=request.seed,
            ignore_eos=bool(request.forced),
            structured_outputs=StructuredOutputsParams(grammar=rules) if rules else None,
            extra_args={"timely": timely},
            output_kind=RequestOutputKind.CUMULATIVE,
            **sampling_keywords(timely, trace_replay=self._args.enable_trace_replay),
        )

    def _grammar(self, skill_set: str) -> str:
        if not skill_set:
            return ""
        if skill_set not in self._grammars:
            self._grammars[skill_set] = grammar(find_skill_set(skill_set))
        return self._grammars[skill_set]

    # ------------------------------------------------------------------ control

    async def report(self, task_id: str, report: ExecutionReport) -> None:
        """See ``Engine.report``; with several engines it reaches the one that holds the task."""
        # It waits in the engine's queue until a step is over; what it says was true before that.
        event = {"kind": "report", "task_id": task_id, "report": report.to_dict(), "sent_s": time.monotonic()}
        await self._control(event)

    async def cancel(self, task_id: str) -> bool:
        """See ``Engine.cancel``."""
        answers = await self._control({"kind": "cancel", "task_id": task_id})
        return any(answer.get("known") for answer in answers)

    async def set_urgency(self, task_id: str, urgency: int) -> bool:
        """See ``Engine.set_urgency``; for all sequences of an ordinary request."""
        answers = await self._control({"kind": "urgency", "task_id": task_id, "urgency": urgency})
        return any(answer.get("known") for answer in answers)

    async def set_discipline(self, name: str) -> None:
        """See ``Engine.set_discipline``; all engines switch.

        Raises:
            Unsupported: it needs speculation, and this engine was started without; the current one stays.
        """
        check_needs(registry.load(name).info, _offered(self._args))
        await self._control({"kind": "discipline", "name": name})

    async def set_mode(self, mode: Mode) -> None:
        """Serve in another mode from now on; only while nothing is being served.

        Raises:
            Conflict: a generation is live.
        """
        await self._control({"kind": "mode", "name": mode})
        self.options = replace(self.options, mode=mode)

    async def stats(self) -> EngineStats:
        """Sums over all engines; step and decision times are the largest."""
        answers = await self._control({"kind": "stats"})
        first = answers[0]
        total = {
            key: sum(answer[key] for answer in answers)
            for key in (
                "waiting", "running", "parked", "blocked", "steps", "tokens", "segments", "evictions",
                "recomputed_tokens",
            )
        }  # fmt: skip
        return EngineStats(
            engine=self.name,
            discipline=first["discipline"],
            mode=first["mode"],
            now_s=max(answer["now_s"] for answer in answers),
            kv_usage=max(answer["kv_usage"] for answer in answers),
            step_s=max(answer["step_s"] for answer in answers),
            decide_s=max(answer["decide_s"] for answer in answers),
            jobs=tuple(JobView(**job) for answer in answers for job in answer["jobs"]),
            paces=_fastest(answer["paces"] for answer in answers),
            **total,
        )

    async def _control(self, event: Mapping[str, Any]) -> list[dict[str, Any]]:
        llm = self._running()
        try:
            answers: list[dict[str, Any]] = await asyncio.wait_for(
                llm.engine_core.call_utility_all_async("timely_control", dict(event)), CONTROL_DEADLINE_S
            )
        except TimeoutError:
            raise EngineFailed(f"no answer within {CONTROL_DEADLINE_S:.0f} s", where="vllm") from None
        except TimelyError:
            raise
        except Exception as error:
            raise EngineFailed(_first_line(error), where="vllm") from error
        for answer in answers:
            if "error" in answer:
                raise _rebuilt(answer["error"])
        return answers

    # ------------------------------------------------------------------ facts

    def disciplines(self) -> tuple[DisciplineInfo, ...]:
        """See ``Engine.disciplines``: without those that need speculation where it was not asked for at start."""
        offered = _offered(self._args)
        return tuple(info for info in super().disciplines() if not lacks(info, offered))

    async def tokenize(self, text: str) -> list[int]:
        """Token ids under the model's tokenizer, no special tokens."""
        self._running()
        return list(self._tokenizer.encode(text, add_special_tokens=False))

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


def parse_arguments(options: VllmOptions) -> Any:
    """vLLM's own argument parser over our defaults and then the caller's arguments.

    Raises:
        InvalidInput: vLLM does not know an argument; its message says which.
        Unsupported: the discipline needs what these arguments do not give.
    """
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    make_arg_parser = _argument_parser()

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> Any:
            raise InvalidInput(message, where="vllm arguments")

    given = list(options.arguments)
    apart = "--enable-lora" in given
    model = str(resolve_model(options.model, planner=NO_PLANNER if apart else options.planner))
    arguments = [*_defaults(given, model), *given, "--model", model, "--scheduler-cls", SCHEDULER]
    parsed = make_arg_parser(Parser()).parse_args(arguments)
    check_needs(registry.load(options.discipline).info, _offered(parsed))
    extra = dict(parsed.additional_config or {})
    extra["timely"] = {
        **dict(extra.get("timely") or {}),
        "discipline": options.discipline,
        "mode": options.mode,
        **({"journal": options.journal} if options.journal else {}),
        **({"predictors": list(options.predictors)} if options.predictors else {}),
        **({"max_batch": options.max_batch} if options.max_batch else {}),
        **({"prefill_chunk": options.prefill_chunk} if options.prefill_chunk else {}),
    }
    parsed.additional_config = extra
    return parsed


def _offered(parsed: Any) -> set[str]:
    """What a discipline may need and an engine with these arguments has; nothing before there are any."""
    return {SPECULATION} if getattr(parsed, "speculative_config", None) else set()


def _argument_parser() -> Any:
    """vLLM's builder of its own argument parser: 0.33 keeps it elsewhere than 0.32."""
    for module in ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.common.cli_args"):
        try:
            return import_module(module).make_arg_parser
        except ModuleNotFoundError:
            continue
    raise EngineFailed(f"this vLLM has no make_arg_parser; supported: {SUPPORTED}", where="vllm")


def _defaults(given: Sequence[str], model: str) -> list[str]:
    """Our defaults where the caller says nothing: a small machine without a GPU, robots' short plans.

    On a GPU vLLM's own: fewer slots there would also mean CUDA graphs for fewer tokens, and slower prompts.
    """
    from vllm.platforms import current_platform

    defaults: dict[str, str | None] = {"--disable-uvicorn-access-log": None}
    if Path(model).is_dir():
        defaults["--served-model-name"] = Path(model).name
    if current_platform.is_cpu():
        # Blocks of 32 are the finest the CPU backend takes: finer prefix reuse and eviction.
        defaults |= {
            "--block-size": "32", "--enforce-eager": None, "--max-model-len": "4096", "--max-num-seqs": "64",
            "--max-num-batched-tokens": "1024", "--dtype": "bfloat16",
        }  # fmt: skip
    present = {argument.split("=", 1)[0] for argument in given}
    result: list[str] = []
    for flag, value in defaults.items():
        if flag not in present and f"--no-{flag[2:]}" not in present:
            result.append(flag)
            if value is not None:
                result.append(value)
    return result


def _environment(options: VllmOptions) -> None:
    """Settings vLLM takes from the environment only; the caller's own always win."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if options.model is None or Path(options.model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


@contextlib.contextmanager
def _children_ignore_ctrl_c() -> Iterator[None]:
    """Processes that this thread starts meanwhile never receive SIGINT, nor do their children.

    A terminal sends Ctrl-C to the whole process group, and this process ends the engine's processes in order.
    """
    # Its start unblocks SIGINT in the calling thread, so it must be over.
    resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _segment(task_id: str, data: Mapping[str, Any]) -> SegmentReady:
    return SegmentReady(
        task_id=task_id,
        index=data["index"],
        text=data["text"],
        tokens=data["tokens"],
        ready_s=data["ready_s"],
        execution_s=data["execution_s"],
        due_s=data["due_s"],
        blocking=data["blocking"],
        pace=data["pace"],
    )


def _fastest(of_each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """One pace a robot: with several engines, each knows what was reported of the plans that it wrote."""
    paces: dict[str, float] = {}
    for known in of_each:
        for agent, pace in known.items():
            paces[agent] = min(pace, paces.get(agent, pace))
    return paces


def _merged(task_id: str, segments: Sequence[Mapping[str, Any]], text: str) -> SegmentReady:
    """Mode ``whole``: the finished plan as one segment."""
    return SegmentReady(
        task_id=task_id,
        index=0,
        text=text,
        tokens=sum(segment["tokens"] for segment in segments),
        ready_s=segments[-1]["ready_s"],
        execution_s=sum(segment["execution_s"] for segment in segments),
        due_s=segments[-1]["due_s"],
    )


def _done(request: GenerationRequest, last: Any, account: Mapping[str, Any], text: str) -> GenerationDone:
    finish = last.outputs[0].finish_reason if last is not None and last.outputs else "abort"
    reasons: dict[str, FinishReason] = {"stop": "complete", "length": "length", "abort": "cancelled"}
    reason = reasons.get(str(finish), "failed")
    if request.forced and finish == "length":
        reason = "complete"
    return GenerationDone(
        task_id=request.task_id,
        reason=reason,
        text=text,
        tail=account.get("tail", ""),
        tokens=account.get("tokens", 0),
        prompt_tokens=account.get("prompt_tokens", 0),
        cached_tokens=int(getattr(last, "num_cached_tokens", 0) or 0),
        recomputed_tokens=account.get("recomputed_tokens", 0),
        preemptions=account.get("preemptions", 0),
        suspensions=account.get("suspensions", 0),
        first_token_s=account.get("first_token_s"),
        last_token_s=account.get("last_token_s"),
        error="the engine failed this request" if reason == "failed" else "",
    )


def _rebuilt(error: Mapping[str, str]) -> TimelyError:
    kinds: dict[str, type[TimelyError]] = {kind.code: kind for kind in (Conflict, EngineFailed, Unsupported)}
    if error["code"] == UnknownName.code:
        return InvalidInput(error["message"], where=error["where"])
    return kinds.get(error["code"], InvalidInput)(error["message"], where=error["where"])


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:500]


def dump_arguments(options: VllmOptions) -> str:
    """The arguments as ``vllm serve`` would take them, for reports and the documentation."""
    return json.dumps({"model": options.model, "arguments": list(options.arguments)})
