"""What vLLM loads at start in every process (entry point ``vllm.general_plugins``): a few small additions.

* ``EngineCore.timely_control``: control events (report, value, cancel, discipline, stats) reach the scheduler
  through vLLM's own utility calls, which also wake an idle engine.
* The engine loop's wait for input ends when a parked generation is due, so vLLM sleeps while all are parked.
* A drain, a pause and a sleep wait for parked generations, too.
* Outputs that vLLM merges keep the account of their segments.

All do nothing unless the scheduler is ours.
"""

import contextlib
import functools
import queue
from collections.abc import Callable, Mapping
from typing import Any

TOKEN_ENDPOINT = "generate-tokens-"
"""Request ids of vLLM's endpoint that takes whole sampling parameters (``--enable-scale-out``) begin so."""

LONGEST_DRAIN_WAIT_S = 1.0
"""While draining, the loop looks again after this time at the latest."""


def register_vllm_plugin() -> None:
    """Install the additions; safe to call more than once."""
    from vllm.outputs import RequestOutput
    from vllm.v1.engine import core
    from vllm.v1.engine.input_processor import InputProcessor

    if getattr(core.EngineCore, "timely_control", None) is not None:
        return
    core.EngineCore.timely_control = _control
    for owner in (core.EngineCoreProc, core.DPEngineCoreProc):
        if "run_busy_loop" in vars(owner):
            owner.run_busy_loop = _with_timed_wait(owner.run_busy_loop)
    engine = core.EngineCoreProc
    engine._handle_shutdown = _draining_parked(engine._handle_shutdown)
    engine._notify_idle_state_callbacks = _when_nothing_is_held(engine._notify_idle_state_callbacks)
    engine._pause_complete = _and_nothing_held(engine._pause_complete)
    RequestOutput.add = _keeping_account(RequestOutput.add)
    InputProcessor.process_inputs = _validating(InputProcessor.process_inputs)


def _control(self: Any, event: Mapping[str, Any]) -> dict[str, Any]:
    """Added to ``EngineCore``: hand a control event to the scheduler."""
    control = getattr(self.scheduler, "control", None)
    if control is None:
        return {
            "known": False,
            "error": {"code": "unsupported", "message": "not a Timely scheduler", "where": ""},
        }
    if event.get("kind") == "cancel":
        return _cancel(self, str(event["task_id"]))
    result: dict[str, Any] = control(event)
    return result


def _cancel(self: Any, task_id: str) -> dict[str, Any]:
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


def _with_timed_wait(run: Callable[..., Any]) -> Callable[..., Any]:
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


def _holds_requests(engine: Any) -> bool:
    """Whether our scheduler holds unfinished requests, parked ones included; False for vLLM's own scheduler."""
    holds = getattr(engine.scheduler, "holds_requests", None)
    return holds is not None and bool(holds())


def _draining_parked(handle: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(handle)
    def _handle_shutdown(self: Any) -> bool:
        """vLLM ends its loop when nothing can be stepped; parked requests keep a drain going."""
        if handle(self):
            return True
        if not _holds_requests(self):
            return False
        # vLLM's own wait for input is off during a shutdown.
        wait_s = self.scheduler.seconds_to_resume()
        wait_s = LONGEST_DRAIN_WAIT_S if wait_s is None else min(wait_s, LONGEST_DRAIN_WAIT_S)
        with contextlib.suppress(queue.Empty):
            self._handle_client_request(*self.input_queue.get(True, wait_s))
        return True

    return _handle_shutdown


def _when_nothing_is_held(notify: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(notify)
    def _notify_idle_state_callbacks(self: Any) -> None:
        """A pause or a sleep that waits for requests is complete when the parked ones are done, too."""
        if not _holds_requests(self):
            notify(self)

    return _notify_idle_state_callbacks


def _and_nothing_held(complete: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(complete)
    def _pause_complete(self: Any) -> bool:
        return complete(self) and not _holds_requests(self)

    return _pause_complete


# ---------------------------------------------------------------------- the front-end


def _keeping_account(add: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(add)
    def merge(self: Any, next_output: Any, aggregate: bool) -> None:
        """vLLM overwrites the field that carries the segments, also by an output without any."""
        account = (self.kv_transfer_params or {}).get("timely")
        add(self, next_output, aggregate)
        if account is not None and "timely" not in (self.kv_transfer_params or {}):
            self.kv_transfer_params = {**(self.kv_transfer_params or {}), "timely": account}

    return merge


def _validating(process: Callable[..., Any]) -> Callable[..., Any]:
    """Unusable ``timely`` parameters become vLLM's own HTTP 400 instead of a failure in the engine."""

    @functools.wraps(process)
    def process_inputs(
        self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        # Imported here: vLLM loads plugins in its worker processes too, which must stay light.
        from vllm.exceptions import VLLMValidationError

        from timely.core.errors import InvalidInput, TimelyError
        from timely.engines.vllm.boundaries import vllm_robot_profile, vllm_skill_set
        from timely.engines.vllm.params import KEY, parse_extra_args

        try:
            from_client = request_id.startswith(TOKEN_ENDPOINT)
            timely = parse_extra_args(getattr(params, "extra_args", None), from_client=from_client)
            if timely is not None and from_client:
                params.extra_args[KEY] = {**params.extra_args.get(KEY, {}), "awaits_values": False}
            if timely is not None and timely.skill_set:
                vllm_skill_set(timely.skill_set)
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
