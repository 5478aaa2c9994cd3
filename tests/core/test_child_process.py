"""Child processes: readiness, output in errors, an end for everything they start."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from timely.core.child_process import STACKS_END, ChildProcess, ChildProcesses, core_module_command
from timely.core.errors import EngineFailed

pytestmark = pytest.mark.process

WAIT_S = 20.0
CHATTER = "import sys, time; sys.stderr.write('no good\\n'); print('ready', flush=True); time.sleep(600)"


def child(code: str) -> ChildProcess:
    return ChildProcess("worker", [sys.executable, "-c", code], where="test").start()


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_child_is_waited_for_and_killed_with_what_it_started() -> None:
    grandchild = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    )
    worker = child(grandchild)
    worker.wait_until(lambda: bool(worker.lines()), WAIT_S)
    pid = int(worker.lines()[0])
    worker.close()
    worker.close()
    deadline_s = time.monotonic() + WAIT_S
    while not ended(pid):
        assert time.monotonic() < deadline_s
    assert worker.pid == 0


def test_the_error_quotes_the_output() -> None:
    worker = child("import sys; sys.exit('no such file')")
    with pytest.raises(EngineFailed, match="the worker ended with 1: no such file"):
        worker.wait_until(lambda: False, WAIT_S)
    with pytest.raises(EngineFailed, match="status 1"):
        worker.finish(WAIT_S)
    worker.close()
    worker = child(CHATTER)
    with pytest.raises(EngineFailed, match="not ready within 0 s"):
        worker.wait_until(lambda: False, 0.05)
    with pytest.raises(EngineFailed, match="none within 0 s"):
        worker.finish(0.05)
    worker.close()


def test_a_file_appears_whole(tmp_path: Path) -> None:
    file = tmp_path / "url"
    worker = child(f"from pathlib import Path; Path({str(file)!r}).write_text('x'); input()")
    worker.wait_for_file(file, WAIT_S)
    assert worker.running
    worker.close()


def test_a_module_ends_with_its_parent(tmp_path: Path) -> None:
    worker = ChildProcess("module", core_module_command("http.server", ["0", "--bind", "127.0.0.1"])).start()
    worker.wait_until(lambda: worker.running, WAIT_S)
    process = worker._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    process.wait(WAIT_S)
    worker.close()


def test_children_end_when_the_block_is_left_and_by_one_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), ChildProcesses("test-") as children:  # noqa: PT012
        worker = children.start("worker", [sys.executable, "-c", CHATTER])
        worker.wait_until(lambda: "ready" in worker.output(), WAIT_S)
        pid = worker.pid
        children.check()
        assert "no good" in (children.folder / "worker.log").read_text()
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the interrupt was lost")
    assert ended(pid)
    assert not children.folder.exists()
    with pytest.raises(EngineFailed, match="broken ended with 3"), ChildProcesses("test-") as children:  # noqa: PT012
        broken = children.start("broken", [sys.executable, "-c", "raise SystemExit(3)"])
        with pytest.raises(EngineFailed):
            broken.wait_until(lambda: False, WAIT_S)
        children.check()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_dropped_ends_the_block_at_the_next_check() -> None:
    """A signal handler that runs inside a finalizer cannot raise."""

    class Finalized:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), ChildProcesses("test-") as children:  # noqa: PT012
        children.check()
        Finalized()
        children.check()
        pytest.fail("the interrupt was lost")


def test_an_interrupt_while_the_folder_is_removed_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    children = ChildProcesses("test-")
    remove = children._temporary.close

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        remove()

    monkeypatch.setattr(children._temporary, "close", interrupted)
    with children:
        pass
    assert not children.folder.exists()


def test_a_module_that_hangs_says_where(tmp_path: Path) -> None:
    file = tmp_path / "hanging.py"
    file.write_text(
        "import time\n\ndef hang():\n    print('ready', flush=True)\n    time.sleep(600)\n\nhang()\n"
    )
    worker = ChildProcess("module", core_module_command(str(file))).start()
    worker.wait_for_line("ready", WAIT_S)
    worker.ask_for_stacks()
    worker.wait_until(lambda: STACKS_END in worker.stacks(), WAIT_S)
    assert "in hang" in worker.stacks()
    assert "ready" not in worker.stacks()
    worker.close()


SIGNALLED_AT_EACH_LINE = """
import signal, sys, threading
from timely.core.child_process import core_stop_event

def trace(frame, event, argument):
    global lines
    if frame.f_code.co_filename != threading.__file__:
        return None
    if event == "line":
        lines += 1
        if lines == at:
            signal.raise_signal(signal.SIGTERM)
    return trace

at = lines = 0
while lines >= at:
    at, lines = at + 1, 0
    stop = core_stop_event(with_parent=False)
    sys.settrace(trace)
    for _ in range(2):
        stop.wait(0.001)
    sys.settrace(None)
    assert lines < at or stop.wait(10.0), f"the signal at line {at} was lost"
assert at > 20, at
"""


def test_a_stop_signal_ends_a_wait_wherever_it_comes() -> None:
    """The main thread may hold the lock of the event that the signal is to set."""
    worker = ChildProcess("worker", [sys.executable, "-c", SIGNALLED_AT_EACH_LINE]).start()
    worker.finish(WAIT_S)
    worker.close()
