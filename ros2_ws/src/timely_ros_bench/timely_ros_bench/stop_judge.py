"""Judges stops by the robots' own logs: when the braking command came, when the robot was at rest, what was claimed."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from timely.core.checkpoint import load_core_checkpoint, save_core_checkpoint
from timely_ros_bench.quantiles import ros_bench_quantiles

BRAKES = ("stop", "StopMotion")
"""Commands of emulated robots that stop a motion."""
ACKNOWLEDGED = ("halted", "at_rest")
REST_TOLERANCE_S = 0.15
"""States are published with a delay, and the last centimetres of a braking motion count as rest."""


@dataclass(frozen=True, slots=True)
class StopBenchRobotLog:
    """Times of one robot's log, seconds on the monotonic clock: braking commands, and motions as (start, end).

    A motion that goes on ends at infinity.
    """

    brakes: Sequence[float]
    motions: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class StopBenchClaim:
    """One robot in one stop: the call, the answer, the claimed state, and whether its driver could not answer."""

    called_s: float
    answered_s: float
    state: str
    faulty: bool = False


@dataclass(slots=True)
class StopBenchTally:
    """The result of all stops so far. A stop of a fleet is a trial, and a stop of each of its robots."""

    trials: int = 0
    stops: int = 0
    faulty: int = 0
    """Stops of robots whose drivers could not answer."""
    first_command_s: list[float] = field(default_factory=list)
    client_s: list[float] = field(default_factory=list)
    """Of each trial: from the call to the request in the middleware."""
    at_rest_s: list[float] = field(default_factory=list)
    acknowledged: int = 0
    unknown: int = 0
    false_success: int = 0
    cases: list[str] = field(default_factory=list)

    def add(self, robot: str, claim: StopBenchClaim, log: StopBenchRobotLog) -> None:
        self.stops += 1
        self.faulty += claim.faulty
        brake_s = min((one for one in log.brakes if one >= claim.called_s), default=math.inf)
        moving = [end_s for start_s, end_s in log.motions if start_s < claim.called_s < end_s]
        if claim.state not in ACKNOWLEDGED:
            self.unknown += 1
            if claim.state != "unknown":
                self.cases.append(f"{robot}: no outcome in the answer")
            return
        self.acknowledged += 1
        if moving and not claim.faulty:
            if math.isfinite(max(moving)):
                self.at_rest_s.append(max(moving) - claim.called_s)
            if math.isfinite(brake_s):
                self.first_command_s.append(brake_s - claim.called_s)
        if reason := _stop_claim_falsehood(claim, brake_s, moving):
            self.false_success += 1
            self.cases.append(f"{robot} {claim.state}: {reason}")

    def save(self, file: Path | None, robots: Sequence[str], seed: int) -> None:
        """Write everything to a file, for a run of the same robots and seed that goes on."""
        save_core_checkpoint(file, {"robots": list(robots), "seed": seed}, asdict(self))

    @classmethod
    def load(cls, file: Path | None, robots: Sequence[str], seed: int) -> StopBenchTally:
        """The stops that an earlier run saved; none without the file. Raises as ``load_core_checkpoint``."""
        return cls(**(load_core_checkpoint(file, {"robots": list(robots), "seed": seed}) or {}))

    def result(self) -> dict[str, Any]:
        """The figures of ``timely bench stop --json``."""
        counts = asdict(self)
        first_s, client_s, rest_s = (
            counts.pop(name) for name in ("first_command_s", "client_s", "at_rest_s")
        )
        return {
            "first_command_ms": ros_bench_quantiles(first_s, 1e3, 3),
            "client_ms": ros_bench_quantiles(client_s, 1e3, 3),
            "at_rest_s": ros_bench_quantiles(rest_s),
            "samples": len(first_s),
            **counts,
        }


def _stop_claim_falsehood(claim: StopBenchClaim, brake_s: float, moving: Sequence[float]) -> str:
    if claim.faulty:
        return "its driver could not answer"
    if moving and brake_s > claim.answered_s:
        return "no braking command came before the answer"
    if claim.state == "at_rest" and moving and max(moving) > claim.answered_s + REST_TOLERANCE_S:
        further_s = max(moving) - claim.answered_s
        return f"it moved for another {further_s:.2f} s" if math.isfinite(further_s) else "it moves on"
    return ""


class StopBenchLogReader:
    """Reads the log of a robot while it grows, out of the files of its emulator's lives."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._read_bytes: dict[Path, int] = {}
        self._brakes: list[float] = []
        self._motions: list[tuple[float, float]] = []
        self._under_way: tuple[str, float] | None = None
        """Command and time of a motion whose end is not in the log."""

    def read(self) -> StopBenchRobotLog:
        """The log until now. An incomplete last line is left for the next call."""
        for path in self._files:
            if not path.exists():
                continue
            if path not in self._read_bytes:
                self._read_bytes[path], self._under_way = 0, None
            with path.open("rb") as file:
                file.seek(self._read_bytes[path])
                text = file.read()
            complete = text[: text.rfind(b"\n") + 1]
            self._read_bytes[path] += len(complete)
            for line in complete.splitlines():
                self._take(json.loads(line))
        under_way = [(self._under_way[1], math.inf)] if self._under_way is not None else []
        return StopBenchRobotLog(self._brakes, [*self._motions, *under_way])

    def _take(self, record: dict[str, Any]) -> None:
        command, outcome = record["command"], record["outcome"]
        if record["event"] == "motion":
            self._motions.append((record["start_s"], record["end_s"]))
            if self._under_way is not None and self._under_way[0] == command:
                self._under_way = None
        elif command.split("(")[0] in BRAKES:
            self._brakes.append(record["t_s"])
        elif outcome == "accepted" or (outcome == "ok" and command.startswith("Move")):
            self._under_way = command, record["t_s"]
