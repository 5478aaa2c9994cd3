"""What a client may ask of a task, as the wire has it and as the server uses it: strict, bounded, no unknown fields."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.dataclasses import dataclass

from timely.core.errors import InvalidInput, TooLarge
from timely.core.reports import MAX_REASON_CHARS, MAX_VALUE_CHARS, ExecutionReport, ReportKind
from timely.core.utility import MAX_TUF, NORMAL, URGENT, TimeUtility
from timely.engines.base import MAX_OUTPUT_TOKENS
from timely.plans.untrusted_text import HIDDEN_CHARACTERS

MAX_TASK_CHARS = 8_000
MAX_SCENE_CHARS = 32_000
MAX_HISTORY_CHARS = 32_000
MAX_EXECUTED_CHARS = 4_000
MAX_TOKENS = MAX_OUTPUT_TOKENS
"""Most output tokens that a client may ask for."""

MAX_PRIORITY = 1e6
"""Largest absolute priority, as of vLLM: smaller is first."""

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Names of skill sets, robots and disciplines: never a path."""

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
BRIDGE_PATTERN = r"^[A-Za-z0-9._-]{0,64}$"
LABEL_CHARS = 128
LABEL_PATTERN = rf"^[^\x00-\x1f\x7f{HIDDEN_CHARACTERS.encode().decode('unicode_escape')}]{{0,{LABEL_CHARS}}}$"
"""Of names that people read: with an invisible character one name would look like another."""

TRACEPARENT_PATTERN = r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
TOKEN_PATTERN = r"^[A-Za-z0-9_-]{16,128}$"

VISIBLE_PATTERN = r"[^\s\x00-\x1f\x7f\x85]"
"""At least one character that is no space; control characters count as spaces."""

TUF_CLASSES: Mapping[str, TimeUtility] = {"normal": NORMAL, "urgent": URGENT}
"""Time-utility functions that have a name."""


def server_task_utility_from_wire(value: object) -> TimeUtility:
    """A time-utility function from its wire form: a class, or an object where ``cutoff_s`` may stand for ``alpha``.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    if isinstance(value, TimeUtility):
        return value
    if isinstance(value, str):
        if value not in TUF_CLASSES:
            raise InvalidInput(f"{value[:40]!r} is no class; known: {', '.join(TUF_CLASSES)}", where="tuf")
        return TUF_CLASSES[value]
    if not isinstance(value, dict):
        raise InvalidInput("must be a class or an object", where="tuf")
    for name, number in value.items():
        if name not in ("ert_s", "alpha", "beta", "cutoff_s"):
            raise InvalidInput("no such field", where=f"tuf.{name[:40]}")
        if isinstance(number, int | float) and abs(number) > MAX_TUF:
            raise InvalidInput(f"its magnitude must be at most {MAX_TUF:g}", where=f"tuf.{name}")
    terms: dict[str, Any] = {key: number for key, number in value.items() if number is not None}
    cutoff_s = terms.pop("cutoff_s", None)
    if cutoff_s is None:
        return TimeUtility(**terms)
    if "alpha" in terms:
        raise InvalidInput("give alpha or cutoff_s, not both", where="tuf.cutoff_s")
    if isinstance(cutoff_s, bool) or not isinstance(cutoff_s, int | float):
        raise InvalidInput("must be a number", where="tuf.cutoff_s")
    flat = TimeUtility(alpha=0.0, **terms)
    return TimeUtility.from_cutoff(flat.ert_s, cutoff_s, flat.beta)


def server_task_utility_to_wire(utility: TimeUtility) -> dict[str, float]:
    return {"ert_s": utility.ert_s, "alpha": utility.alpha, "beta": utility.beta}


_NUMBER = {"type": ["number", "null"]}
_TUF_SCHEMA = {
    "description": "how the value of the answer falls with time; or a class: 'normal', 'urgent'",
    "anyOf": [
        {"type": "string", "enum": list(TUF_CLASSES)},
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "ert_s": {**_NUMBER, "minimum": 0, "maximum": MAX_TUF, "default": NORMAL.ert_s},
                "alpha": {**_NUMBER, "minimum": -MAX_TUF, "maximum": 0},
                "beta": {**_NUMBER, "exclusiveMinimum": 0, "maximum": MAX_TUF, "default": NORMAL.beta},
                "cutoff_s": {
                    **_NUMBER,
                    "exclusiveMinimum": 0,
                    "maximum": MAX_TUF,
                    "description": "where the utility is zero, in place of alpha; later than ert_s",
                },
            },
            "not": {
                "required": ["alpha", "cutoff_s"],
                "properties": {"alpha": {"type": "number"}, "cutoff_s": {"type": "number"}},
            },
        },
    ],
}


def _task_request_text(limit: int, description: str) -> Any:
    """A text whose excess length is ``too_large``, not just invalid. Pydantic takes half a character for a text."""

    def check(value: str, info: ValidationInfo) -> str:
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("has half a character", where=info.field_name or "") from error
        if len(value) > limit:
            raise TooLarge(f"{len(value)} characters; the limit is {limit}", where=info.field_name or "")
        return value

    return AfterValidator(check), Field(description=description, json_schema_extra={"maxLength": limit})


def _check_task_max_tokens(value: int) -> int:
    if value > MAX_TOKENS:
        raise TooLarge(f"{value}; the limit is {MAX_TOKENS}", where="max_tokens")
    return value


def _integral_task_field(value: object) -> object:
    """JSON Schema takes 3.0 for an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integral = BeforeValidator(_integral_task_field)
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Label = Annotated[str, Field(pattern=LABEL_PATTERN)]
TaskId = Annotated[
    str, Field(pattern=ID_PATTERN, description="chosen by the client; by default by the server")
]
Token = Annotated[
    str, Field(pattern=TOKEN_PATTERN, description="chosen by the client; by default by the server")
]
Seconds = Annotated[float, Field(ge=0, le=1e6, strict=True)]
Tuf = Annotated[TimeUtility, PlainValidator(server_task_utility_from_wire), WithJsonSchema(_TUF_SCHEMA)]
Urgency = Annotated[int, Field(ge=0, le=4, description="0 is the most urgent"), Integral]
Deadline = Annotated[float, Field(gt=0, le=86_400, description="the server gives up after so long, seconds")]
TaskText = Annotated[
    str,
    Field(min_length=1, pattern=VISIBLE_PATTERN),
    *_task_request_text(MAX_TASK_CHARS, "what the robot is to do, in words"),
]
SceneText = Annotated[str, *_task_request_text(MAX_SCENE_CHARS, "what the robot sees")]
HistoryText = Annotated[
    str, *_task_request_text(MAX_HISTORY_CHARS, "for a re-plan: what was planned, done and failed")
]
MaxTokens = Annotated[
    int,
    Field(ge=1, json_schema_extra={"maximum": MAX_TOKENS}),
    AfterValidator(_check_task_max_tokens),
    Integral,
]


class StrictBody(BaseModel):
    """A body, or a part of one."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        frozen=True,
        populate_by_name=True,
        arbitrary_types_allowed=True,
    )


class TaskRequest(StrictBody):
    """A request for a plan: the body of ``POST /v1/tasks``. None takes the skill set's default."""

    task: TaskText
    skill_set: Annotated[Name, Field(description="the robot's skills: one of /v1/skill_sets")]
    robot: Annotated[Name | None, Field(description="its profile: one of /v1/robot_profiles")] = None
    scene: SceneText = ""
    history: HistoryText = ""
    tuf: Tuf = NORMAL
    agent: Annotated[Label, Field(description="name of the robot; its reports carry the same")] = ""
    app: Annotated[Label | None, Field(description="LLM application the request belongs to")] = None
    urgency: Urgency | None = None
    app_requests: Annotated[
        int | None,
        Field(ge=1, le=10_000, description="how many requests that application will send in all"),
        Integral,
    ] = None
    expected_tokens: Annotated[
        float | None, Field(gt=0, le=1e6, description="predicted length of the answer, tokens")
    ] = None
    priority: Annotated[
        float, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="vLLM's own; smaller is first")
    ] = 0.0
    max_tokens: MaxTokens | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    seed: Annotated[int | None, Field(ge=0, le=2**53 - 1), Integral] = None
    network_s: Annotated[Seconds | None, Field(description="one-way delay to the robot, seconds")] = None
    deadline_s: Deadline | None = None
    traceparent: Annotated[
        str | None,
        Field(pattern=TRACEPARENT_PATTERN, description="W3C trace context; the header has the same name"),
    ] = None
    id: TaskId | None = None
    report_token: Token | None = None

    @property
    def trace_id(self) -> str | None:
        """That of the trace context."""
        return self.traceparent and self.traceparent.split("-")[1]

    @field_validator("deadline_s")
    @classmethod
    def _can_arrive(cls, deadline_s: float | None, info: ValidationInfo) -> float | None:
        network_s = info.data.get("network_s") or 0.0
        if deadline_s is not None and deadline_s <= network_s:
            raise InvalidInput(
                f"an answer takes {network_s:g} s to the robot alone (network_s)", where="deadline_s"
            )
        return deadline_s


class ReplanRequest(StrictBody):
    """The body of ``POST /v1/tasks/{id}/replan``. A field that is left out stays as it was; the new plan is urgent."""

    reason: Annotated[
        str,
        Field(
            max_length=MAX_REASON_CHARS, description="why the plan ended; by default what the robot reported"
        ),
    ] = ""
    scene: SceneText | None = None
    task: TaskText | None = None
    executed: Annotated[
        str | None,
        Field(
            max_length=MAX_EXECUTED_CHARS,
            description="what the robot did; by default the segments reported done",
        ),
    ] = None
    tuf: Tuf = URGENT
    urgency: Urgency | None = 0
    deadline_s: Deadline | None = None
    agent: Annotated[Label | None, Field(description="the agent of the task")] = None
    id: TaskId | None = None
    report_token: Token | None = None


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class ReportBody(ExecutionReport):
    """One report of ``POST /v1/tasks/{id}/reports``, with the limits of the wire. Fields: ``ExecutionReport``."""

    segment: Annotated[int, Field(ge=0, le=1_000_000, strict=True), Integral]
    kind: ReportKind
    elapsed_s: Seconds | None = None
    remaining_s: Seconds | None = None
    age_s: Seconds = 0.0
    value: Annotated[str | None, Field(max_length=MAX_VALUE_CHARS)] = None
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS)] = ""
    agent: Annotated[Label | None, Field(description="the agent of the task")] = None


class DisciplineBody(StrictBody):
    """The body of ``PUT /v1/disciplines``."""

    name: Name


class UrgencyBody(StrictBody):
    """The body of ``PUT /v1/tasks/{id}/urgency``."""

    urgency: Urgency
    operator: Annotated[str, Field(min_length=1, pattern=LABEL_PATTERN, description="name of the operator")]
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS, description="why; kept in the event log")] = ""


class StopBody(StrictBody):
    """The body of ``POST /v1/stop``."""

    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS, description="why; sent to the bridges")] = ""
    deadline_s: Annotated[
        float, Field(ge=0, le=30, description="longest wait for the acknowledgements, seconds")
    ] = 2.0


class ResetBody(StrictBody):
    """The body of ``POST /v1/stop/reset``."""

    stop_id: Annotated[
        str | None,
        Field(pattern=ID_PATTERN, description="releases this stop and no later one; without it, any"),
    ] = None


class AcknowledgementBody(StrictBody):
    """The body of ``POST /v1/stop/acknowledgements``: what a bridge says of one stopped robot."""

    stop_id: TaskId
    agent: Annotated[str, Field(min_length=1, pattern=LABEL_PATTERN)]
    state: Literal["halted", "at_rest", "unknown"]
    detail: Annotated[str, Field(max_length=MAX_REASON_CHARS)] = ""
    stream_token: Annotated[str, Field(max_length=64, description="of an open stream with this robot")] = ""
    bridge: Annotated[
        str | None,
        Field(
            pattern=BRIDGE_PATTERN, description="of an operator: which bridge's robot, where several have one"
        ),
    ] = None


class ProblemsBody(StrictBody):
    """The body of ``POST /v1/stop/problems``: what keeps the robots of a bridge from their tasks."""

    stream_token: Annotated[str, Field(max_length=64, description="of an open stream with these robots")]
    problems: Annotated[
        dict[
            Annotated[str, Field(min_length=1, pattern=LABEL_PATTERN)],
            Annotated[str, Field(max_length=MAX_REASON_CHARS)],
        ],
        Field(max_length=1000, description="robot -> words for people; one that is left out has no problem"),
    ]


class SessionBody(StrictBody):
    """The body of ``POST /v1/session``."""

    token: Annotated[str, Field(min_length=1, max_length=256)]
