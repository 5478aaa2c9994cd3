"""Rounds of faults on several fleets at once, each in a network of its own.

A vendor's client binds fixed ports, so two fleets cannot share a network. ``unshare`` gives each a network namespace
of Linux with a loopback device alone. Without privileges it takes a user namespace too, in which drivers and emulators
have no precedence over other processes.
"""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from timely.core.checkpoint import remove_checkpoint
from timely.core.child_process import ChildProcess, ChildProcesses, core_module_command
from timely.core.errors import Unsupported
from timely.core.progress import Say
from timely_ros_bench.faults.measure import measure_faults
from timely_ros_bench.faults.rounds import FLEET
from timely_ros_bench.faults.tally import FaultTally

POLL_S = 0.5
ONE_FLEET = "timely_ros_bench.fault_fleet"
CAP_SYS_ADMIN = 21
"""Of <linux/capability.h>."""


def measure_fault_fleets(
    count: int,
    seed: int = 0,
    *,
    fleet: Sequence[str] = FLEET,
    fleets: int = 1,
    checkpoint: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Play so many rounds, shared by so many fleets at once.

    Args:
        checkpoint: name of the files of the rounds so far, one a fleet. A run that finds them goes on after them, and
            removes them at its end.

    Returns:
        The fields of ``FaultTally`` and ``bound``: the largest probability of a failed round that the run leaves, with
        95% confidence.

    Raises:
        EngineFailed: a part does not come back. Unsupported: no vendor's library, C compiler or network namespaces.
        InvalidInput: the checkpoint is of another run.
    """
    if fleets == 1:
        tally = measure_faults(count, seed, fleet=fleet, checkpoint=checkpoint, say=say)
        remove_checkpoint(checkpoint)
        return tally.result()
    with tempfile.TemporaryDirectory(prefix="timely-fleets.") as folder:
        base = checkpoint if checkpoint is not None else Path(folder) / "rounds"
        files = [base.with_name(f"{base.name}.{first + 1}-of-{fleets}") for first in range(fleets)]
        _play_fault_fleets(count, seed, fleet, files, say)
        tally = FaultTally()
        for first, file in enumerate(files):
            tally.add(measure_faults(count, seed, fleet=fleet, share=(first, fleets), checkpoint=file))
            remove_checkpoint(file)
    return tally.result()


def _play_fault_fleets(count: int, seed: int, fleet: Sequence[str], files: Sequence[Path], say: Say) -> None:
    """Play the rounds of each fleet in a process; a fleet that fails does not end the others."""
    with ChildProcesses("timely-fleets.") as children:
        running: dict[str, tuple[ChildProcess, int]] = {}
        for first, file in enumerate(files):
            arguments = [count, seed, ",".join(fleet), first, len(files), file]
            command = core_module_command(ONE_FLEET, [str(one) for one in arguments])
            name = f"fleet {first + 1}"
            running[name] = children.start(name, [*fault_bench_network_command(), *command]), 0
        while running:
            for name, (child, line_count) in list(running.items()):
                has_ended, lines = child.ended, child.lines()
                for line in lines[line_count:]:
                    say(f"{name}: {line}")
                running[name] = child, len(lines)
                if has_ended:
                    del running[name]
            time.sleep(POLL_S)
        children.check()


def fault_bench_network_command() -> list[str]:
    """What a command begins with that is to have a network of its own, and the privileges of this process.

    Raises:
        Unsupported: no ``unshare`` here.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        raise Unsupported("needs unshare (Debian: util-linux) for several fleets", where="bench faults")
    return [unshare, *([] if _is_fault_bench_administrator() else ["--map-root-user"]), "--net", "--"]


def _is_fault_bench_administrator() -> bool:
    """This process may make namespaces of any kind (CAP_SYS_ADMIN)."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> CAP_SYS_ADMIN & 1)
    return False
