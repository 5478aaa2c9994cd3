"""An emulated robot that does not wait for the load of a benchmark, because a real one is a computer of its own."""

import contextlib
import importlib
import sys
import threading

from timely.core.priority import raise_core_realtime
from timely.emulators.cli import run_emulator_command

SWITCH_INTERVAL_S = 0.0005
"""How long one thread of the emulator may keep another waiting."""
VENDOR_LIBRARY = "neuromeka"
"""Of the Indy7. It is loaded before the emulator takes precedence, because that takes a second."""


def main() -> int:
    """Run ``timely-emulate`` before other processes, as far as the system permits it."""
    if "indy7" in sys.argv:
        with contextlib.suppress(ImportError):
            importlib.import_module(VENDOR_LIBRARY)
    raise_core_realtime([threading.get_native_id()])  # threads that start later inherit it
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    return run_emulator_command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
