"""``timely-emulate``: one emulated robot on a loopback address, until interrupted."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from timely.core.child_process import act_on_core_stop_signal
from timely.core.errors import TimelyError
from timely.emulators.command_log import EmulatorCommandLog
from timely.emulators.indy7 import Indy7Emulator
from timely.emulators.network import EmulatedNetworkFaults
from timely.emulators.tello import COMMAND_PORT, STATE_PORT, TelloEmulator

OK, BAD_INPUT = 0, 2


def main() -> None:
    """Entry point. Exits 0 when interrupted, 2 on bad input."""
    sys.exit(run_emulator_command(sys.argv[1:]))


def run_emulator_command(arguments: Sequence[str], program: str = "timely-emulate") -> int:
    """Emulate one robot until SIGINT or SIGTERM; the exit code. On the main thread."""
    parser = _emulator_parser(program)
    try:
        options = parser.parse_args(arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else BAD_INPUT
    try:
        with ExitStack() as closing:
            journal = closing.enter_context(EmulatorCommandLog(options.log))
            emulator, says = _make_emulator(options, journal)
            act_on_core_stop_signal(emulator.stop)
            print(f"{says}; Ctrl-C ends it", flush=True)
            emulator.run()
    except (TimelyError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return BAD_INPUT
    return OK


class _EmulatorParser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(BAD_INPUT, f"{self.prog}: {message}\n")


def _emulator_parser(program: str) -> argparse.ArgumentParser:
    parser = _EmulatorParser(
        prog=program, description="Emulate a robot on loopback: it speaks its maker's protocol."
    )
    robots = parser.add_subparsers(dest="robot", required=True, metavar="ROBOT")
    tello = robots.add_parser("tello", help="a Ryze Tello: text commands over UDP")
    tello.add_argument("--command-port", type=int, default=COMMAND_PORT, help=f"default {COMMAND_PORT}")
    tello.add_argument(
        "--state-port", type=int, default=STATE_PORT, help=f"of the client; default {STATE_PORT}"
    )
    tello.add_argument("--loss", type=float, default=0.0, metavar="P", help="share of datagrams lost, 0..1")
    tello.add_argument("--duplicate", type=float, default=0.0, metavar="P", help="share sent twice, 0..1")
    tello.add_argument("--delay", type=float, default=0.0, metavar="S", help="one way, seconds")
    tello.add_argument("--jitter", type=float, default=0.0, metavar="S", help="at most so much more, seconds")
    tello.add_argument("--battery", type=float, default=100.0, metavar="PERCENT", help="at the start")
    tello.add_argument("--seed", type=int, default=0, help="of noise and faults")
    arm = robots.add_parser("indy7", help="a Neuromeka Indy7: gRPC; needs the vendor's library")
    for robot in (tello, arm):
        robot.add_argument("--host", default="127.0.0.1", help="loopback address, one a robot")
        robot.add_argument(
            "--speed",
            type=float,
            default=1.0,
            metavar="X",
            help="times faster than a real one; see lrtrace record",
        )
        robot.add_argument("--log", type=Path, metavar="FILE", help="one JSON object a command and a motion")
    return parser


def _make_emulator(
    options: argparse.Namespace, journal: EmulatorCommandLog
) -> tuple[Indy7Emulator | TelloEmulator, str]:
    if options.robot == "indy7":
        return Indy7Emulator(options.host, journal=journal, speed=options.speed), f"Indy7 at {options.host}"
    faults = EmulatedNetworkFaults(options.loss, options.duplicate, options.delay, options.jitter)
    drone = TelloEmulator(
        options.host,
        options.command_port,
        state_port=options.state_port,
        faults=faults,
        seed=options.seed,
        battery=options.battery,
        journal=journal,
        speed=options.speed,
    )
    return drone, "Tello at {}:{}".format(*drone.address)


if __name__ == "__main__":
    main()
