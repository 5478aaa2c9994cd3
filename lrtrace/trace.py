"""The trace format ``*.lrtrace.jsonl``: a header line, then one job a line; a streaming reader and writer.

All times are seconds from the trace's origin. A ``Job``, ``PlanSegment``, ``Tuf`` or ``Header`` that exists is
valid: their constructors check every field. Fields that are not known here are kept in ``extra`` and written back.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from lrtrace.errors import BadInput
from lrtrace.jsonl import decode, encode, open_input, open_output, raw_lines, read_lines

VERSION = 1
MAX_NUMBER = 2**53
"""The largest integer that every JSON reader keeps exactly."""
URGENT_BELOW_S = 0.5
"""A task is of class urgent when its expected response time is under this."""


def _fail(name: str, wanted: str, got: object) -> NoReturn:
    shown = repr(got)
    raise BadInput(f"{name}: must be {wanted}, got {shown if len(shown) <= 80 else shown[:77] + '...'}")


def _number(name: str, value: object, low: float, wanted: str) -> float:
    if value.__class__ is not float and value.__class__ is not int:
        _fail(name, wanted, value)
    number: float = value
    if not low <= number < math.inf or number > 1e300:
        _fail(name, wanted, value)
    return number


def _integer(name: str, value: object, low: int, high: int = MAX_NUMBER) -> None:
    if value.__class__ is not int or not low <= value <= high:
        wanted = f"an integer of {low} or more" if high == MAX_NUMBER else f"an integer from {low} to {high}"
        _fail(name, wanted, value)


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        _fail(name, "text", value)
    try:
        if not value.isascii():
            value.encode()
    except UnicodeEncodeError:
        _fail(name, "text that can be written as UTF-8", value)


RESPONSE_S = 1.0
"""How long a robot is taken to wait for its first action: the expected response time of a normal task."""


@dataclass(frozen=True, slots=True)
class Tuf:
    """A time-utility function ``U(t) = min(beta, alpha (t - ert_s) + beta)`` (TimelyLLM, Eq. 1).

    Attributes:
        ert_s: expected response time, seconds, zero or more.
        alpha: slope after it, utility per second, zero or negative.
        beta: initial utility, positive.
    """

    ert_s: float = 1.0
    alpha: float = -2.0
    beta: float = 1.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _number("ert_s", self.ert_s, 0.0, "zero or more seconds")
        if self.alpha.__class__ not in (float, int) or not -1e300 < self.alpha <= 0:
            _fail("alpha", "zero or negative", self.alpha)
        if _number("beta", self.beta, 0.0, "positive") == 0:
            _fail("beta", "positive", self.beta)

    @property
    def urgent(self) -> bool:
        """Class ``urgent`` of the reports."""
        return self.ert_s < URGENT_BELOW_S

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Tuf:
        """From JSON; ``cutoff_s`` (where the utility is zero) may stand for ``alpha``."""
        values = dict(raw)
        ert_s, beta = values.pop("ert_s", 1.0), values.pop("beta", 1.0)
        if "cutoff_s" in values:
            if "alpha" in values:
                raise BadInput("alpha: give alpha or cutoff_s, not both")
            cutoff = values.pop("cutoff_s")
            checked = cls(ert_s, 0.0, beta)
            if _number("cutoff_s", cutoff, 0.0, "a number of seconds") <= checked.ert_s:
                _fail("cutoff_s", f"later than ert_s={checked.ert_s}", cutoff)
            values["alpha"] = -checked.beta / (cutoff - checked.ert_s)
        return cls(ert_s, values.pop("alpha", -2.0), beta, values)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"ert_s": self.ert_s, "alpha": self.alpha, "beta": self.beta, **self.extra}


NORMAL = Tuf(1.0, -2.0, 1.0)
"""A normal robot task (TimelyLLM, section 7.1)."""
URGENT = Tuf(0.2, -6.67, 2.0)
"""An urgent robot task (TimelyLLM, section 7.1)."""


@dataclass(frozen=True, slots=True)
class PlanSegment:
    """A piece of a plan: its text, its length in tokens, and how long the robot executes it, seconds."""

    text: str
    tokens: int
    execution_s: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _text("text", self.text)
        _integer("tokens", self.tokens, 1)
        _number("execution_s", self.execution_s, 0.0, "zero or more seconds")

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"text": self.text, "tokens": self.tokens, "execution_s": self.execution_s, **self.extra}


@dataclass(frozen=True, slots=True)
class Job:
    """One request of a trace.

    Attributes:
        job: its number, unique in the trace.
        arrival_s: seconds from the trace's origin.
        prompt_tokens: length of the prompt; shared_prefix_tokens of it are the same for its whole skill set.
        plan: what the model answers, in segments; ordinary requests have one.
        agent: which robot or user asks; robot: its profile; skill_set: how its plans are cut.
        app: the LLM application the request belongs to. urgency: 0 (most) to 4. acceptance: 0..1, share of
            draft tokens accepted.
        extra: fields that are not known here.
    """

    job: int
    arrival_s: float
    prompt_tokens: int
    plan: tuple[PlanSegment, ...]
    agent: str = ""
    robot: str = ""
    skill_set: str = ""
    task: str = ""
    scene: str = ""
    shared_prefix_tokens: int = 0
    tuf: Tuf = NORMAL
    app: str | None = None
    urgency: int | None = None
    acceptance: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _integer("job", self.job, 0)
        _number("arrival_s", self.arrival_s, 0.0, "zero or more seconds")
        _integer("prompt_tokens", self.prompt_tokens, 1)
        _integer("shared_prefix_tokens", self.shared_prefix_tokens, 0)
        if self.shared_prefix_tokens > self.prompt_tokens:
            _fail(
                "shared_prefix_tokens",
                f"at most prompt_tokens={self.prompt_tokens}",
                self.shared_prefix_tokens,
            )
        if not self.plan:
            raise BadInput("plan: must have at least one segment")
        for name in ("agent", "robot", "skill_set", "task", "scene"):
            _text(name, getattr(self, name))
        if self.app is not None:
            _text("app", self.app)
        if self.urgency is not None:
            _integer("urgency", self.urgency, 0, 4)
        if self.acceptance is not None:
            wanted = "a share from 0 to 1"
            if _number("acceptance", self.acceptance, 0.0, wanted) > 1:
                _fail("acceptance", wanted, self.acceptance)

    @property
    def tokens(self) -> int:
        """Tokens of the whole plan."""
        return sum(segment.tokens for segment in self.plan)

    @property
    def execution_s(self) -> float:
        """Execution time of the whole plan, seconds."""
        return sum(segment.execution_s for segment in self.plan)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Job:
        """From JSON.

        Raises:
            BadInput: a field is missing or wrong; the message starts with its name.
        """
        values = dict(raw)
        for name in ("job", "arrival_s", "prompt_tokens", "plan"):
            if name not in values:
                raise BadInput(f"{name}: is missing")
        plan = values.pop("plan")
        if not isinstance(plan, list):
            _fail("plan", "a list of segments", plan)
        tuf = values.pop("tuf", None)
        if tuf is not None and not isinstance(tuf, dict):
            _fail("tuf", "an object", tuf)
        try:
            utility = NORMAL if tuf is None else Tuf.from_dict(tuf)
        except BadInput as error:
            raise BadInput(f"tuf.{error.message}") from error
        known = {name: values.pop(name) for name in _KNOWN if name in values}
        return cls(
            **known,
            plan=tuple(_segment(index, raw_segment) for index, raw_segment in enumerate(plan)),
            tuf=utility,
            extra=values,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON, in the order of the format's description."""
        values: dict[str, Any] = {
            "job": self.job,
            "arrival_s": self.arrival_s,
            "agent": self.agent,
            "app": self.app,
            "robot": self.robot,
            "skill_set": self.skill_set,
            "task": self.task,
            "scene": self.scene,
            "prompt_tokens": self.prompt_tokens,
            "shared_prefix_tokens": self.shared_prefix_tokens,
            "tuf": self.tuf.to_dict(),
            "urgency": self.urgency,
        }
        if self.acceptance is not None:
            values["acceptance"] = self.acceptance
        values["plan"] = [segment.to_dict() for segment in self.plan]
        values.update(self.extra)
        return values


_KNOWN = (
    "job",
    "arrival_s",
    "prompt_tokens",
    "agent",
    "robot",
    "skill_set",
    "task",
    "scene",
    "shared_prefix_tokens",
    "app",
    "urgency",
    "acceptance",
)


def _segment(index: int, raw: object) -> PlanSegment:
    if not isinstance(raw, dict):
        _fail(f"plan[{index}]", "an object", raw)
    values = dict(raw)
    try:
        for name in ("text", "tokens"):
            if name not in values:
                raise BadInput(f"{name}: is missing")
        return PlanSegment(values.pop("text"), values.pop("tokens"), values.pop("execution_s", 0.0), values)
    except BadInput as error:
        raise BadInput(f"plan[{index}].{error.message}") from error


@dataclass(frozen=True, slots=True)
class Header:
    """First line of a trace: its name, the seed it was composed with, and the delay to the robots, seconds."""

    name: str = ""
    seed: int | None = None
    network_s: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _text("name", self.name)
        if self.seed is not None:
            _integer("seed", self.seed, 0, 2**64 - 1)
        _number("network_s", self.network_s, 0.0, "zero or more seconds")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Header:
        """From JSON.

        Raises:
            BadInput: not the header of a trace, another version, or a field is wrong.
        """
        values = dict(raw)
        if "lrtrace" not in values:
            raise BadInput(
                'lrtrace: is missing; the first line must be a header like {"lrtrace": 1, "name": ...}'
            )
        version = values.pop("lrtrace")
        if version != VERSION or isinstance(version, bool):
            _fail("lrtrace", f"{VERSION}, the only version there is", version)
        known = {name: values.pop(name) for name in ("name", "seed", "network_s") if name in values}
        return cls(**known, extra=values)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "lrtrace": VERSION,
            "name": self.name,
            "seed": self.seed,
            "network_s": self.network_s,
            **self.extra,
        }


class _Seen:
    """Job numbers met so far: a bit each for ordinary ones, so that a million take 125 kB."""

    DENSE = 2**27

    def __init__(self) -> None:
        self._bits = bytearray(1024)
        self._rest: set[int] = set()

    def add(self, number: int) -> bool:
        """Remember; False if it was there already."""
        if number >= self.DENSE:
            fresh = number not in self._rest
            self._rest.add(number)
            return fresh
        byte, bit = number >> 3, 1 << (number & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1, 2 * len(self._bits)) - len(self._bits)))
        fresh = not self._bits[byte] & bit
        self._bits[byte] |= bit
        return fresh


class Trace:
    """A trace file, read as a stream: memory does not grow with the number of jobs.

    ``header`` is read at once; iterating reads the jobs, as often as wanted.

    Raises:
        BadInput: unreadable, or the header is broken; later, while iterating, when a job is. The text is one line
            ``FILE:LINE: FIELD: REASON``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with closing(read_lines(self.path)) as lines:
            for number, raw in lines:
                try:
                    self.header = Header.from_dict(raw)
                except BadInput as error:
                    raise BadInput(error.message, where=self._where(number)) from error
                break
            else:
                raise BadInput("empty: a trace starts with a header line", where=self._where(1))

    def __iter__(self) -> Iterator[Job]:
        return self.jobs()

    def jobs(self) -> Iterator[Job]:
        """Jobs in the order of the file, which must be that of their arrival, and each number once.

        Raises:
            BadInput: see the class. Unordered files can be read with ``jobs_by_arrival``.
        """
        seen, previous = _Seen(), 0.0
        with closing(read_lines(self.path)) as lines:
            next(lines, None)
            for number, raw in lines:
                job = self._job(number, raw, seen)
                if job.arrival_s < previous:
                    raise BadInput(
                        f"arrival_s: {job.arrival_s} is before {previous} of the job above;"
                        " order the jobs by arrival (lrtrace sort)",
                        where=self._where(number),
                    )
                previous = job.arrival_s
                yield job

    def jobs_by_arrival(self) -> Iterator[Job]:
        """Jobs ordered by arrival, whatever their order in the file (a stable sort; 24 bytes a job).

        Raises:
            BadInput: see the class.
        """
        arrivals, offsets, numbers = array("d"), array("q"), array("q")
        seen = _Seen()
        with open_input(self.path) as file:
            records = raw_lines(self.path, file)
            next(records, None)
            for number, offset, line in records:
                arrivals.append(self._job(number, decode(self.path, number, line), seen).arrival_s)
                offsets.append(offset)
                numbers.append(number)
            for index in sorted(range(len(arrivals)), key=arrivals.__getitem__):
                file.seek(offsets[index])
                number = numbers[index]
                yield self._job(number, decode(self.path, number, file.readline()), None)

    def _job(self, number: int, raw: Mapping[str, Any], seen: _Seen | None) -> Job:
        try:
            job = Job.from_dict(raw)
            if seen is not None and not seen.add(job.job):
                raise BadInput(f"job: {job.job} was there before; each job needs its own number")
        except BadInput as error:
            raise BadInput(error.message, where=self._where(number)) from error
        return job

    def _where(self, number: int) -> str:
        return f"{self.path}:{number}"


class TraceWriter:
    """Writes a trace job by job; the file appears under its name only when it is complete.

    Use it as a context manager. Jobs may come in any order of arrival, but each number once.

    Raises:
        BadInput: the file cannot be written, or a job number comes twice.
    """

    def __init__(self, path: str | Path, header: Header) -> None:
        self.path = Path(path)
        self.jobs = 0
        self._seen = _Seen()
        self._output = open_output(self.path)
        self._file = self._output.__enter__()
        self._file.write(encode(header.to_dict()))

    def write(self, job: Job) -> None:
        """Append one job."""
        if not self._seen.add(job.job):
            raise BadInput(f"job: {job.job} was written before", where=str(self.path))
        self._file.write(encode(job.to_dict()))
        self.jobs += 1

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._output.__exit__(kind, error, trace)


def read_trace(path: str | Path) -> Trace:
    """Open a trace for streaming. Raises as ``Trace``."""
    return Trace(path)


def write_trace(path: str | Path, header: Header, jobs: Iterable[Job]) -> int:
    """Write a whole trace; returns the number of jobs. Raises as ``TraceWriter``."""
    with TraceWriter(path, header) as writer:
        for job in jobs:
            writer.write(job)
    return writer.jobs
