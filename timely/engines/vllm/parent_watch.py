"""The end of a server ends its engine: vLLM 0.33 and earlier watch for it in the workers only.

A server that is killed would leave an engine process that holds the accelerator's memory, so that the next server finds
none.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.process import BaseProcess

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""Time for vLLM's own end; an engine in the midst of a step may need it."""


def end_vllm_with_parent() -> None:
    """Let this process end when the one that started it has ended, if it is an engine process of vLLM."""
    parent = multiprocessing.parent_process()
    if parent is not None and multiprocessing.current_process().name.startswith("EngineCore"):
        threading.Thread(
            target=_end_after_vllm_parent, args=(parent,), name="parent watch", daemon=True
        ).start()


def _end_after_vllm_parent(parent: BaseProcess) -> None:
    parent.join()
    log.warning("the server has ended; its engine ends, too")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)
