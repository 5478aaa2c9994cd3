"""The rounds of one of several fleets, in a new network that has no device yet.

python -m timely_ros_bench.fault_fleet COUNT SEED ROBOTS FIRST FLEETS CHECKPOINT
"""

import fcntl
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from timely.core.errors import TimelyError
from timely_ros_bench.faults.measure import measure_faults

GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 0x1
"""Of <linux/sockios.h> and <linux/if.h>."""


def enable_fault_bench_loopback() -> None:
    """Switch the loopback device of a new network on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh22x", b"lo", 0)
        (flags,) = struct.unpack("16xh22x", fcntl.ioctl(control, GET_FLAGS, request))
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sh22x", b"lo", flags | UP))


def main(arguments: Sequence[str]) -> int:
    """Play the rounds of one fleet; standard output gets a line for each."""
    count, seed, robots, first, fleets, file = arguments
    enable_fault_bench_loopback()
    try:
        measure_faults(
            int(count),
            int(seed),
            fleet=robots.split(","),
            share=(int(first), int(fleets)),
            checkpoint=Path(file),
            say=lambda line: print(line, flush=True),
        )
    except TimelyError as error:
        print(error, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
