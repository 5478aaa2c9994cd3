"""What vLLM loads at start in every process (entry point ``vllm.general_plugins``): a few small additions.

* ``EngineCore.timely_control``: control events (report, value, cancel, discipline, stats) reach the scheduler
  through vLLM's own utility calls, which also wake an idle engine.
* The engine loop's wait for input ends when a parked generation is due, so vLLM sleeps while all are parked.
* A drain, a pause and a sleep wait for parked generations, too.
* Every output of a plan carries its segments, also where vLLM merges outputs or a stop string ends the plan.
* Beam search with our parameters is refused: vLLM drops them there.
* Options of our scheduler are checked before the model loads.
* Seeded plans draw by position in vLLM's older model runner (``seeded_draws.py``).
* On CPUs drafts are verified with the right sampling parameters (``cpu_sampling.py``).
* Where the options say so, eager engines on CPUs use vLLM's fused kernels (``fused_kernels.py``).
* ``/metrics`` of ``vllm serve`` has the load of the engines (``load_gauges.py``).

All do nothing unless the scheduler is ours.
"""

import contextlib
import functools
import logging
import queue
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

log = logging.getLogger("vllm.timely")
"""Below vLLM's own logger, so that its handlers show the lines."""

SCHEDULER = "timely.engines.vllm.scheduler.TimelyScheduler"

TOKEN_ENDPOINT = "generate-tokens-"
"""Request ids of vLLM's endpoint that takes whole sampling parameters (``--enable-scale-out``) begin so."""

LONGEST_DRAIN_WAIT_S = 1.0
"""While draining, the loop looks again after this time at the latest."""


def register_vllm_plugin() -> None:
    """Install the additions; safe to call more than once.

    A vLLM that lacks one of the parts stays as it is: it has to start for users of its own scheduler.
    """
    try:
        additions = _vllm_additions()
    except (ImportError, AttributeError) as error:
        log.warning(
            "vLLM stays without the additions of Timely, and Timely's scheduler does not start: %s", error
        )
        return
    for owner, name, addition in additions:
        setattr(owner, name, addition)


def _vllm_additions() -> list[tuple[Any, str, Callable[..., Any]]]:
    """(class, name of the method, addition); none where they are installed."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import core
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.engine.output_processor import RequestState
    from vllm.v1.metrics.loggers import PrometheusStatLogger
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if hasattr(core.EngineCore, "timely_control"):
        return []
    engine = core.EngineCoreProc
    loops = [owner for owner in (engine, core.DPEngineCoreProc) if "run_busy_loop" in vars(owner)]
    return [
        (core.EngineCore, "timely_control", _handle_vllm_control),
        *((owner, "run_busy_loop", _vllm_run_with_timed_wait(owner.run_busy_loop)) for owner in loops),
        (engine, "_handle_shutdown", _vllm_draining_with_parked(engine._handle_shutdown)),
        (
            engine,
            "_notify_idle_state_callbacks",
            _when_vllm_holds_nothing(engine._notify_idle_state_callbacks),
        ),
        (engine, "_pause_complete", _complete_when_vllm_holds_nothing(engine._pause_complete)),
        (RequestState, "make_request_output", _attach_vllm_account(RequestState.make_request_output)),
        (InputProcessor, "__init__", _before_vllm_requests(InputProcessor.__init__)),
        (InputProcessor, "process_inputs", _validating_vllm_parameters(InputProcessor.process_inputs)),
        (
            SamplingParams,
            "_validate_spec_decode",
            _accepting_beside_forced_drafts(SamplingParams._validate_spec_decode),
        ),
        (WorkerWrapperBase, "init_device", _with_own_computing(WorkerWrapperBase.init_device)),
        (PrometheusStatLogger, "record", _showing_vllm_load(PrometheusStatLogger.record)),
    ]


def _handle_vllm_control(self: Any, event: Mapping[str, Any]) -> dict[str, Any]:
    """Added to ``EngineCore``: hand a control event to the scheduler."""
    control = getattr(self.scheduler, "control", None)
    if control is None:
        return {
            "known": False,
            "error": {"code": "unsupported", "message": "not a Timely scheduler", "where": ""},
        }
    if event.get("kind") == "cancel":
        return _cancel_vllm_task(self, str(event["task_id"]))
    result: dict[str, Any] = control(event)
    return result


def _cancel_vllm_task(self: Any, task_id: str) -> dict[str, Any]:
    from vllm.v1.request import RequestStatus

    requests = self.scheduler.control({"kind": "requests", "task_id": task_id})["requests"]
    if not requests:
        return {"known": False}
    aborts = self.scheduler.finish_requests(requests, RequestStatus.FINISHED_ABORTED)
    # Without this the client would wait for ever.
    send = getattr(self, "_send_abort_outputs", None)
    if send is not None:
        send(aborts)
    return {"known": bool(aborts)}


# ---------------------------------------------------------------------- the engine loop


def _vllm_run_with_timed_wait(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_busy_loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        seconds = getattr(self.scheduler, "seconds_to_resume", None)
        if seconds is not None:
            wait = self.input_queue.get

            def get(block: bool = True, timeout: float | None = None) -> Any:
                # queue.Empty at the time-out makes vLLM's loop look again: the parked one is then runnable.
                return wait(block, seconds() if block and timeout is None else timeout)

            self.input_queue.get = get
        return run(self, *args, **kwargs)

    return run_busy_loop


def _holds_vllm_requests(engine: Any) -> bool:
    """Whether our scheduler holds unfinished requests, parked ones included; False for vLLM's own scheduler."""
    holds = getattr(engine.scheduler, "holds_requests", None)
    return holds is not None and bool(holds())


def _vllm_draining_with_parked(handle: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(handle)
    def _handle_shutdown(self: Any) -> bool:
        """vLLM ends its loop when nothing can be stepped; parked requests keep a drain going."""
        if handle(self):
            return True
        if not _holds_vllm_requests(self):
            return False
        # vLLM's own wait for input is off during a shutdown.
        wait_s = self.scheduler.seconds_to_resume()
        wait_s = LONGEST_DRAIN_WAIT_S if wait_s is None else min(wait_s, LONGEST_DRAIN_WAIT_S)
        with contextlib.suppress(queue.Empty):
            self._handle_client_request(*self.input_queue.get(True, wait_s))
        return True

    return _handle_shutdown


def _when_vllm_holds_nothing(notify: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(notify)
    def _notify_idle_state_callbacks(self: Any) -> None:
        """A pause or a sleep that waits for requests is complete when the parked ones are done, too."""
        if not _holds_vllm_requests(self):
            notify(self)

    return _notify_idle_state_callbacks


def _complete_when_vllm_holds_nothing(complete: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(complete)
    def _pause_complete(self: Any) -> bool:
        return complete(self) and not _holds_vllm_requests(self)

    return _pause_complete


# ---------------------------------------------------------------------- a worker


def _with_own_computing(init: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(init)
    def init_device(self: Any) -> None:
        """The model is loaded after this."""
        from timely.engines.vllm.forced_drafts import drafts_forced_tokens_only

        config = self.vllm_config
        is_ours = config.scheduler_config.scheduler_cls == SCHEDULER
        if is_ours:
            from timely.engines.vllm.settings import SchedulerSettings

            settings = SchedulerSettings.from_vllm(config)
            if settings.draws_by_inversion:
                from timely.engines.vllm.cpu_draws import draw_cpu_tokens_by_inversion

                draw_cpu_tokens_by_inversion()
        if is_ours or drafts_forced_tokens_only(config.speculative_config):
            from timely.engines.vllm.cpu_sampling import mend_cpu_sampling

            mend_cpu_sampling()
        init(self)
        if is_ours:
            from timely.engines.vllm.seeded_draws import draw_by_position

            draw_by_position(getattr(self.worker, "model_runner", None))
            if settings.fused_kernels:
                from timely.engines.vllm.fused_kernels import use_fused_cpu_kernels

                use_fused_cpu_kernels(config)

    return init_device


# ---------------------------------------------------------------------- the front-end


def _attach_vllm_account(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def make_request_output(
        self: Any,
        new_token_ids: Any,
        pooling_output: Any,
        finish_reason: Any,
        stop_reason: Any,
        kv_transfer_params: dict[str, Any] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """The engine sends segments when one closes; vLLM may merge that output away, or make none of it."""
        if kv_transfer_params and "timely" in kv_transfer_params:
            self.timely_account = kv_transfer_params["timely"]
        elif (account := getattr(self, "timely_account", None)) is not None:
            kv_transfer_params = {**(kv_transfer_params or {}), "timely": account}
        return make(
            self,
            new_token_ids,
            pooling_output,
            finish_reason,
            stop_reason,
            kv_transfer_params,
            *args,
            **kwargs,
        )

    return make_request_output


def _showing_vllm_load(record: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(record)
    def recording(self: Any, scheduler_stats: Any, *args: Any, **kwargs: Any) -> None:
        if scheduler_stats is not None:
            from timely.engines.vllm.load_gauges import show_vllm_load

            show_vllm_load(scheduler_stats, self.per_engine_labelvalues[kwargs.get("engine_idx", 0)])
        record(self, scheduler_stats, *args, **kwargs)

    return recording


BEAM_REQUESTS = {
    "vllm.entrypoints.openai.chat_completion.protocol": "ChatCompletionRequest",
    "vllm.entrypoints.openai.completion.protocol": "CompletionRequest",
}
"""vLLM's requests that beam search may serve, by module."""


def _before_vllm_requests(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        """Only a front-end has an input processor, and it has one before it loads the model."""
        init(self, *args, **kwargs)
        _check_vllm_settings(self.vllm_config)
        for module, name in BEAM_REQUESTS.items():
            request = getattr(import_module(module), name)
            if not hasattr(request.to_beam_search_params, "__wrapped__"):
                request.to_beam_search_params = _refusing_vllm_parameters(request.to_beam_search_params)

    return __init__


def _check_vllm_settings(vllm_config: Any) -> None:
    """Refuse wrong options of our scheduler before a model loads, which takes minutes."""
    from timely.engines.vllm.settings import SchedulerSettings

    if vllm_config.scheduler_config.scheduler_cls == SCHEDULER:
        SchedulerSettings.from_vllm(vllm_config)


def _refusing_vllm_parameters(to_params: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(to_params)
    def to_beam_search_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        from vllm.exceptions import VLLMValidationError

        from timely.engines.vllm.params import FLAT_PREFIX

        if any(key.startswith(FLAT_PREFIX) for key in self.vllm_xargs or ()):
            raise VLLMValidationError("beam search takes no timely parameters", parameter="vllm_xargs")
        return to_params(self, *args, **kwargs)

    return to_beam_search_params


def _accepting_beside_forced_drafts(validate: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @functools.wraps(validate)
    def _validate_spec_decode(self: Any, speculative_config: Any) -> None:
        """``min_p`` and ``logit_bias``: forced drafts are made for plans without them only."""
        from vllm.platforms import current_platform

        from timely.engines.vllm.forced_drafts import drafts_forced_tokens_only

        if not (current_platform.is_cpu() and drafts_forced_tokens_only(speculative_config)):
            validate(self, speculative_config)

    return _validate_spec_decode


def _validating_vllm_parameters(process: Callable[..., Any]) -> Callable[..., Any]:
    """Unusable ``timely`` parameters become vLLM's own HTTP 400 instead of a failure in the engine."""

    @functools.wraps(process)
    def process_inputs(
        self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        # Imported here: vLLM loads plugins in its worker processes too, which must stay light.
        from timely.engines.vllm.params import KEY, SERVER_PARAMS, parse_vllm_extra_args

        fields = SERVER_PARAMS.get()
        if not fields and not getattr(params, "extra_args", None):
            return process(self, request_id, prompt, params, *args, **kwargs)
        from vllm.exceptions import VLLMValidationError

        from timely.core.errors import InvalidInput, TimelyError
        from timely.engines.vllm.boundaries import vllm_robot_profile, vllm_skill_set

        if fields:
            params.extra_args = {**(params.extra_args or {}), KEY: dict(fields)}
        try:
            from_client = request_id.startswith(TOKEN_ENDPOINT)
            timely = parse_vllm_extra_args(getattr(params, "extra_args", None), from_client=from_client)
            if timely is not None and from_client:
                params.extra_args[KEY] = {**params.extra_args.get(KEY, {}), "awaits_values": False}
            if timely is not None and timely.skill_set:
                vllm_skill_set(timely.skill_set, timely.skill_set_fingerprint)
                if isinstance(prompt, Mapping) and prompt.get("prompt_embeds") is not None:
                    # A robot's value is appended to token ids.
                    raise InvalidInput(
                        "needs a prompt of tokens, not of embeddings", where="timely.skill_set"
                    )
            if timely is not None and timely.robot:
                vllm_robot_profile(timely.robot)
        except TimelyError as error:
            raise VLLMValidationError(str(error)) from error
        return process(self, request_id, prompt, params, *args, **kwargs)

    return process_inputs
