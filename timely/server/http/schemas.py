"""What bodies may look like: strict, no unknown fields, no NaN; each becomes plain data of the task service."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from timely.core.errors import InvalidInput, TooLarge
from timely.core.reports import ExecutionReport
from timely.core.utility import NORMAL, URGENT, TimeUtility
from timely.server.problems import from_validation
from timely.server.settings import ServerSettings
from timely.server.tasks.replanning import ReplanRequest
from timely.server.tasks.task import TaskRequest

Model = TypeVar("Model")

CLASSES = {
    name: {"ert_s": utility.ert_s, "alpha": utility.alpha, "beta": utility.beta}
    for name, utility in (("normal", NORMAL), ("urgent", URGENT))
}
"""Time-utilities that go by a name."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of skill sets, robots and disciplines: never a path."""

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
LABEL_PATTERN = r"^[^\x00-\x1f\x7f]{0,128}$"

Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Label = Annotated[str, Field(pattern=LABEL_PATTERN)]
Seconds = Annotated[float, Field(ge=0, le=1e6)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Tuf(_Body):
    """A time-utility function; ``cutoff_s``, where it reaches zero, may stand for ``alpha``."""

    ert_s: Annotated[float, Field(ge=-1e6, le=1e6)] = NORMAL.ert_s
    alpha: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None
    beta: Annotated[float, Field(ge=-1e6, le=1e6)] = NORMAL.beta
    cutoff_s: Annotated[float, Field(ge=-1e6, le=1e6)] | None = None

    def utility(self) -> TimeUtility:
        """The utility.

        Raises:
            InvalidInput: a sign is wrong, or both ``alpha`` and ``cutoff_s`` are given.
        """
        if self.cutoff_s is not None:
            if self.alpha is not None:
                raise InvalidInput("give alpha or cutoff_s, not both", where="tuf.cutoff_s")
            return TimeUtility.from_cutoff(self.ert_s, self.cutoff_s, self.beta)
        return TimeUtility(self.ert_s, NORMAL.alpha if self.alpha is None else self.alpha, self.beta)


def _class_by_name(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value not in CLASSES:
        raise ValueError(f"{value[:40]!r} is no class; known: {', '.join(CLASSES)}")
    return CLASSES[value]


class TaskBody(_Body):
    """``POST /v1/tasks``."""

    task: Annotated[str, Field(min_length=1, description="what the robot is asked to do, in words")]
    skill_set: Annotated[Name, Field(description="what it can do: one of /v1/skill_sets")]
    robot: Annotated[Name | None, Field(description="its profile: one of /v1/robot_profiles")] = None
    scene: Annotated[str, Field(description="what it sees")] = ""
    history: Annotated[str, Field(description="for a re-plan: what was planned, done and failed")] = ""
    tuf: Annotated[
        Tuf,
        BeforeValidator(_class_by_name),
        Field(description="how the value of the answer falls with time; or a class: 'normal', 'urgent'"),
    ] = Tuf()
    agent: Annotated[Label, Field(description="name of the robot; its reports carry the same")] = ""
    app: Annotated[Label | None, Field(description="LLM application the request belongs to")] = None
    urgency: Annotated[int | None, Field(ge=0, le=4, description="0 is the most urgent")] = None
    app_requests: Annotated[
        int | None, Field(ge=1, le=10_000, description="how many requests that application will send in all")
    ] = None
    expected_tokens: Annotated[
        float | None, Field(gt=0, le=1e6, description="predicted length of the answer, tokens")
    ] = None
    priority: Annotated[float, Field(ge=-1e6, le=1e6, description="vLLM's own; smaller is first")] = 0.0
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    seed: Annotated[int | None, Field(ge=0, le=2**63 - 1)] = None
    network_s: Annotated[Seconds | None, Field(description="one-way delay to the robot, seconds")] = None
    deadline_s: Annotated[
        float | None, Field(gt=0, le=86_400, description="give up after so long, seconds")
    ] = None
    id: Annotated[str | None, Field(pattern=ID_PATTERN, description="chosen by the client, or made here")] = (
        None
    )
    report_token: Annotated[str | None, Field(min_length=16, max_length=128, pattern=r"^[A-Za-z0-9_-]+$")] = (
        None
    )

    def request(self, limits: ServerSettings) -> TaskRequest:
        """As the task service takes it.

        Raises:
            TooLarge: a text or ``max_tokens`` is over its limit. InvalidInput: the time-utility is unusable.
        """
        for name, limit in (
            ("task", limits.max_task_chars),
            ("scene", limits.max_scene_chars),
            ("history", limits.max_history_chars),
        ):
            if len(getattr(self, name)) > limit:
                raise TooLarge(f"{len(getattr(self, name))} characters; the limit is {limit}", where=name)
        if self.max_tokens is not None and self.max_tokens > limits.max_tokens:
            raise TooLarge(f"{self.max_tokens}; the limit is {limits.max_tokens}", where="max_tokens")
        if not self.task.strip():
            raise InvalidInput("it is empty", where="task")
        return TaskRequest(
            task=self.task,
            skill_set=self.skill_set,
            robot=self.robot,
            scene=self.scene,
            history=self.history,
            utility=self.tuf.utility(),
            agent=self.agent,
            app=self.app,
            urgency=self.urgency,
            app_requests=self.app_requests,
            expected_tokens=self.expected_tokens,
            priority=self.priority,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self.seed,
            network_s=self.network_s,
            deadline_s=self.deadline_s,
            task_id=self.id,
            report_token=self.report_token,
        )


class ReplanBody(_Body):
    """``POST /v1/tasks/{id}/replan``: what is left out stays as it was, but the new plan is urgent."""

    reason: Annotated[
        str, Field(max_length=2_000, description="why the plan ended; else what the robot reported")
    ] = ""
    scene: Annotated[str | None, Field(description="what the robot sees now")] = None
    task: Annotated[str | None, Field(min_length=1, description="what it is asked to do now")] = None
    executed: Annotated[
        str | None, Field(max_length=4_000, description="what it did; else the segments reported done")
    ] = None
    tuf: Annotated[Tuf, BeforeValidator(_class_by_name)] = Tuf.model_validate(CLASSES["urgent"])
    urgency: Annotated[int | None, Field(ge=0, le=4)] = 0
    deadline_s: Annotated[float | None, Field(gt=0, le=86_400)] = None
    agent: Annotated[Label | None, Field(description="who asks: the agent of the task")] = None
    id: Annotated[str | None, Field(pattern=ID_PATTERN)] = None
    report_token: Annotated[str | None, Field(min_length=16, max_length=128, pattern=r"^[A-Za-z0-9_-]+$")] = (
        None
    )

    def request(self, limits: ServerSettings) -> ReplanRequest:
        """As the task service takes it.

        Raises:
            TooLarge: a text is over its limit. InvalidInput: the time-utility is unusable.
        """
        for name, text, limit in (
            ("task", self.task, limits.max_task_chars),
            ("scene", self.scene, limits.max_scene_chars),
        ):
            if text is not None and len(text) > limit:
                raise TooLarge(f"{len(text)} characters; the limit is {limit}", where=name)
        if self.task is not None and not self.task.strip():
            raise InvalidInput("it is empty", where="task")
        return ReplanRequest(
            reason=self.reason,
            scene=self.scene,
            task=self.task,
            executed=self.executed,
            utility=self.tuf.utility(),
            urgency=self.urgency,
            deadline_s=self.deadline_s,
            task_id=self.id,
            report_token=self.report_token,
            agent=self.agent,
        )


class ReportBody(_Body):
    """``POST /v1/tasks/{id}/reports``: one of these, or a list. Fields: ``timely.core.reports``."""

    segment: Annotated[int, Field(ge=0, le=1_000_000)]
    kind: Literal["started", "progress", "done", "failed", "value"]
    elapsed_s: Seconds | None = None
    remaining_s: Seconds | None = None
    age_s: Seconds = 0.0
    value: Annotated[str | None, Field(max_length=2_000)] = None
    reason: Annotated[str, Field(max_length=2_000)] = ""
    agent: Annotated[Label | None, Field(description="who reports: the agent of the task")] = None

    def report(self) -> ExecutionReport:
        """As the core takes it.

        Raises:
            InvalidInput: a field that its kind needs is missing.
        """
        return ExecutionReport(
            segment=self.segment,
            kind=self.kind,
            elapsed_s=self.elapsed_s,
            remaining_s=self.remaining_s,
            age_s=self.age_s,
            value=self.value,
            reason=self.reason,
        )


class DisciplineBody(_Body):
    """``PUT /v1/disciplines``."""

    name: Name


class UrgencyBody(_Body):
    """``PUT /v1/tasks/{id}/urgency``: an operator's word."""

    urgency: Annotated[int, Field(ge=0, le=4, description="0 is the most urgent")]
    operator: Annotated[str, Field(min_length=1, pattern=LABEL_PATTERN, description="who says so")]
    reason: Annotated[str, Field(max_length=2_000, description="why; kept in the event log")] = ""


TASK: TypeAdapter[TaskBody] = TypeAdapter(TaskBody)
REPLAN: TypeAdapter[ReplanBody] = TypeAdapter(ReplanBody)
REPORT: TypeAdapter[ReportBody] = TypeAdapter(ReportBody)
URGENCY: TypeAdapter[UrgencyBody] = TypeAdapter(UrgencyBody)
DISCIPLINE: TypeAdapter[DisciplineBody] = TypeAdapter(DisciplineBody)


def decode(body: bytes) -> Any:
    """JSON out of a body, strictly: no NaN or Infinity, no keys given twice, no runaway nesting.

    Raises:
        InvalidInput: where ``body``.
    """
    try:
        return json.loads(body, parse_constant=_no_constant, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise InvalidInput("not UTF-8 text", where="body") from error
    except RecursionError as error:
        raise InvalidInput("nested too deeply", where="body") from error
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", where="body"
        ) from error
    except ValueError as error:
        # Among them numbers of more digits than Python is willing to read.
        raise InvalidInput(f"not JSON: {str(error)[:200]}", where="body") from error


def validate(model: TypeAdapter[Model], value: object) -> Model:
    """``value`` as the model.

    Raises:
        InvalidInput: names the first field that is wrong.
    """
    try:
        return model.validate_python(value)
    except ValidationError as error:
        raise from_validation(error) from error


def reports_of(body: bytes, limit: int) -> tuple[list[ExecutionReport], list[str | None]]:
    """The reports of a body, one or a list of them, and who says so, one agent a report.

    Raises:
        InvalidInput: names the first thing wrong. TooLarge: more than ``limit``.
    """
    value = decode(body)
    several = isinstance(value, list)
    items: list[object] = value if isinstance(value, list) else [value]
    if len(items) > limit:
        raise TooLarge(f"{len(items)} reports; the limit is {limit}", where="reports")
    if not items:
        raise InvalidInput("no reports", where="reports")
    reports: list[ExecutionReport] = []
    agents: list[str | None] = []
    for index, item in enumerate(items):
        try:
            parsed = validate(REPORT, item)
            reports.append(parsed.report())
        except InvalidInput as error:
            raise InvalidInput(
                error.message, where=f"{index}.{error.where}" if several else error.where
            ) from error
        agents.append(parsed.agent)
    return reports, agents


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key is given twice")
    return result
