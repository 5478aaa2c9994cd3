"""Cuts a program off from ROS 2 and connects it again, sets its wall clock, and holds its disk up, at will.

The cut loses the datagrams of the domain's ports: both ways, the program's own only, or those of others only.
The monotonic clock stays, as when an administrator or NTP sets the time of a computer.

A small library replaces libc's calls (``LD_PRELOAD``). This needs no privileges and changes no other program.
Traffic to robots on other ports goes on. Linux with a C compiler only.
"""

import os
import shutil
import subprocess
from pathlib import Path

from timely.core.errors import EngineFailed, Unsupported

PORT_BASE, PORTS_PER_DOMAIN = 7400, 250
"""Of the RTPS protocol: a domain's ports begin at base + 250 times its number."""
COMPILE_S = 60.0
CUTS = ("none", "both", "sent", "received")
"""What a switch loses."""
CLOCKS = ("true", "ahead", "behind")
"""The wall clock, or an hour beside it."""

PROFILE = Path(__file__).with_name("dds_udp_only.xml")
"""Fast DDS by UDP on loopback and nothing else.

With ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST, rmw_fastrtps uses shared memory too, despite FASTDDS_BUILTIN_TRANSPORTS.
Shared memory has no datagrams to lose. Files of a killed process stay in /dev/shm.
"""

SOURCE = Path(__file__).with_name("dds_cut.c")


def build_fault_dds_cut(folder: Path) -> Path:
    """The library, compiled into ``folder``.

    Raises:
        Unsupported: no C compiler here. EngineFailed: it does not compile.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise Unsupported("needs a C compiler (Debian: build-essential) to cut DDS", where="bench faults")
    library = folder / "libcut.so"
    compilation = subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"],
        capture_output=True,
        text=True,
        timeout=COMPILE_S,
        check=False,
    )
    if compilation.returncode != 0:
        raise EngineFailed(
            f"the DDS cut does not compile: {compilation.stderr.strip()[-500:]}", where="bench faults"
        )
    return library


def fault_bench_dds_udp_only() -> dict[str, str]:
    """Environment of a program that is to speak ROS 2 by UDP on loopback only."""
    return {
        "FASTDDS_DEFAULT_PROFILES_FILE": str(PROFILE),
        # The profile already says it; rmw_fastrtps would add shared memory.
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT",
    }


class FaultDdsCut:
    """Cuts one program off: from datagrams, from its disk or from the true time.

    Args:
        state: folder of the program's state, whose writes wait while its disk hangs.
    """

    def __init__(self, library: Path, file: Path, domain: int, state: Path) -> None:
        self._file = file
        file.write_bytes(b"000")
        low = PORT_BASE + PORTS_PER_DOMAIN * domain
        self.environment = {
            "LD_PRELOAD": str(library),
            "TIMELY_CUT_FILE": str(file),
            "TIMELY_CUT_LOW": str(low),
            "TIMELY_CUT_HIGH": str(low + PORTS_PER_DOMAIN),
            "TIMELY_CUT_STATE": str(state.resolve()),
        }
        """For the program that is to be cut off."""

    def set(self, cut: str) -> None:
        """Lose datagrams from now on, one of ``CUTS``."""
        self._write(0, CUTS.index(cut))

    def set_clock(self, clock: str) -> None:
        self._write(1, CLOCKS.index(clock))

    def hang_disk(self, *, hangs: bool) -> None:
        """Let each write to the program's state wait, or go on."""
        self._write(2, int(hangs))

    def _write(self, place: int, value: int) -> None:
        with self._file.open("r+b") as file:
            file.seek(place)
            file.write(str(value).encode())
