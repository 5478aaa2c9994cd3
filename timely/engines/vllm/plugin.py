"""What vLLM loads at start in every process (entry point ``vllm.general_plugins``): two small additions.

* ``EngineCore.timely_control``: control events (report, value, cancel, discipline, stats) reach the scheduler
  through vLLM's own utility calls, which also wake an idle engine.
* The engine loop's wait for input ends when a parked generation is due: vLLM sleeps while everything is parked
  and needs no timer thread.

Both do nothing unless the scheduler is ours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any


def register() -> None:
    """Install the additions; safe to call more than once."""
    from vllm.v1.engine import core

    if getattr(core.EngineCore, "timely_control", None) is not None:
        return
    core.EngineCore.timely_control = _control
    for owner in (core.EngineCoreProc, core.DPEngineCoreProc):
        if "run_busy_loop" in vars(owner):
            owner.run_busy_loop = _with_timed_wait(owner.run_busy_loop)
    _validate_at_the_door()


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
    aborted = self.scheduler.finish_requests(requests, RequestStatus.FINISHED_ABORTED)
    # Without this the client would wait for ever.
    send = getattr(self, "_send_abort_outputs", None)
    if send is not None:
        send(aborted)
    return {"known": bool(aborted)}


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


def _validate_at_the_door() -> None:
    """Unusable ``timely`` parameters become vLLM's own HTTP 400 instead of a failure in the engine."""
    from vllm.v1.engine.input_processor import InputProcessor

    process = InputProcessor.process_inputs

    @functools.wraps(process)
    def process_inputs(
        self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        # Imported here: vLLM loads plugins in helper processes too, which must stay light.
        from vllm.exceptions import VLLMValidationError

        from timely.core.errors import TimelyError
        from timely.engines.vllm.boundaries import profile_named, skill_set_named
        from timely.engines.vllm.params import parse

        try:
            timely = parse(getattr(params, "extra_args", None))
            if timely is not None and timely.skill_set:
                skill_set_named(timely.skill_set)
            if timely is not None and timely.robot:
                profile_named(timely.robot)
        except TimelyError as error:
            raise VLLMValidationError(str(error)) from error
        return process(self, request_id, prompt, params, *args, **kwargs)

    InputProcessor.process_inputs = process_inputs
