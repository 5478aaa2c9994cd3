"""Starting vLLM's engine process, watching it and ending it, also when Ctrl-C comes meanwhile."""

import asyncio
import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import Any

from pydantic import ValidationError

from timely.core.errors import EngineDied, EngineFailed, InvalidInput
from timely.engines.vllm.engine_events import vllm_error_line

WATCH_POLL_S = 0.2
"""Between two looks whether the engine's processes live."""

STOP_S = 12.0
"""Time for the engine's processes to end, seconds. vLLM kills them afterwards, and shared memory is left behind."""


async def launch_vllm(async_llm: Any, new_engine_args: Callable[[], Any], model: str) -> Any:
    """Start vLLM's engine process; a cancellation ends it.

    Args:
        async_llm: vLLM's class ``AsyncLLM``, of which an instance is returned.
        new_engine_args: makes vLLM's arguments, for which it may look for the model.
        model: its name or folder, for errors.

    Raises:
        InvalidInput: vLLM's configuration refuses a value. EngineFailed: vLLM did not start.
    """

    def launch() -> Any:
        from vllm.usage.usage_lib import UsageContext

        engine_args = new_engine_args()
        # vLLM's defaults for tokens and sequences of a step depend on it: those of its own server.
        config = engine_args.create_engine_config(UsageContext.OPENAI_API_SERVER)
        with _vllm_children_ignore_terminal():
            return async_llm.from_vllm_config(
                vllm_config=config,
                enable_log_requests=engine_args.enable_log_requests,
                disable_log_stats=engine_args.disable_log_stats,
            )

    others = set(multiprocessing.active_children())
    # In a thread: the event loop must take signals during this half minute.
    launch_future = asyncio.get_running_loop().run_in_executor(None, launch)
    try:
        return await asyncio.shield(launch_future)
    except asyncio.CancelledError:
        # The thread waits for the engine's process, which may begin only now, and this loop would wait for the thread.
        while not launch_future.done():
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            await asyncio.wait((launch_future,), timeout=0.1)
        if launch_future.exception() is None:
            launch_future.result().shutdown()
        raise
    except ValidationError as error:
        raise _vllm_configuration_error(error) from error
    except (ValueError, RuntimeError, OSError) as error:
        line = vllm_error_line(error)
        raise EngineFailed(f"vLLM did not start with the model {model}: {line}", where="vllm") from error


def _vllm_configuration_error(error: ValidationError) -> InvalidInput:
    """The first value that is refused, by the option of its field; vLLM's own checks name it in their text."""
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]).replace("_", "-") if first["loc"] else ""
    message = vllm_error_line(ValueError(first["msg"].removeprefix("Value error, ")))
    return InvalidInput(message, where=f"--{field}" if field else "vllm arguments")


async def vllm_death(llm: Any) -> EngineDied:
    while not llm.errored:  # noqa: ASYNC110 - of other processes
        await asyncio.sleep(WATCH_POLL_S)
    return EngineDied("its process ended", where="vllm")


def fail_vllm_generations(llm: Any) -> None:
    """Live generations fail as after the death of the engine; vLLM logs no traceback of a ``GenerationError``."""
    from vllm.exceptions import GenerationError
    from vllm.v1.engine.exceptions import EngineDeadError

    class EngineEndError(EngineDeadError, GenerationError):  # type: ignore[misc]
        def __init__(self) -> None:
            GenerationError.__init__(self, "the engine is shutting down")

    llm.output_processor.propagate_error(EngineEndError())


async def shut_down_vllm(llm: Any) -> None:
    # vLLM cancels the reader of its outputs only after the engine has ended, and the reader would log that as a
    # failure. So it ends first, and live generations get the error that it would have passed on.
    reader = getattr(llm, "output_handler", None)
    if reader is not None and reader.get_loop() is asyncio.get_running_loop():
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        fail_vllm_generations(llm)
    await asyncio.get_running_loop().run_in_executor(None, llm.shutdown, STOP_S)


def kill_vllm(llm: Any) -> None:
    """SIGKILL to the engine's processes and their children, also when they are stopped."""
    from vllm.utils.system_utils import kill_process_tree

    # Engines that other machines started are not among them.
    manager = llm.engine_core.resources.engine_manager
    for process in getattr(manager, "processes", ()):
        kill_process_tree(process.pid)


@contextlib.contextmanager
def ctrl_c_ends_vllm_start() -> Iterator[None]:
    """Ctrl-C ends this block at once; the event loop's own handler would wait until the block has ended.

    Some imports go on after any exception, so it is raised again at the end of the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if is_interrupted:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _vllm_children_ignore_terminal() -> Iterator[None]:
    """Processes that this thread starts meanwhile never receive SIGINT or SIGHUP, nor do their children.

    A terminal sends Ctrl-C, and its own end, to the whole process group. This process ends the engine's processes in
    order, after the last plans.
    """
    # Its start unblocks SIGINT in the calling thread, so it must be over.
    resource_tracker.ensure_running()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
