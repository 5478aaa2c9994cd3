"""A request's parameters for our scheduler, through vLLM: nested from Python, flat keys over HTTP.

Python: ``SamplingParams(extra_args={"timely": {"skill_set": "drone", "tuf": {"ert_s": 0.2, ...}}})``.
Stock OpenAI server: ``"vllm_xargs": {"timely_skill_set": "drone", "timely_ert_s": 0.2, ...}`` (flat).
"""

import math
from collections.abc import Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from timely.core.errors import InvalidInput
from timely.core.hints import HINTS, RequestHints
from timely.core.utility import MAX_TUF, NORMAL, STEEPEST, TimeUtility
from timely.disciplines.justitia.app_groups import MOST_REQUESTS
from timely.engines.base import ForcedPlan, PlanHistory

KEY = "timely"
FLAT_PREFIX = "timely_"
MOST_NAMES = 2000
_TUF_FIELDS = ("ert_s", "alpha", "beta", "cutoff_s")
RESERVED_FIELDS = frozenset({
    "arrival_s", "priority", "forced", "forced_ids", "segment_tokens", "names", "keep_prompt", "promised", "history",
    "resumed_tokens", "awaits_values",
})  # fmt: skip
"""Fields of our own server and of replays. From an HTTP client they would jump the queue or the grammar."""

SERVER_FIELDS = ("priority", "text")
"""Fields that our own server passes on beside the body: any client could give the first, and vLLM logs the second."""

SERVER_PARAMS: ContextVar[Mapping[str, Any] | None] = ContextVar("timely_server_params", default=None)
"""``SERVER_FIELDS`` of the request that our own server passes on, within the claims of its principal."""


class VllmTufParams(BaseModel):
    """A time-utility function on the wire; ``cutoff_s`` may stand for ``alpha``."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    ert_s: float = Field(NORMAL.ert_s, ge=0, le=MAX_TUF)
    alpha: float | None = Field(None, ge=-STEEPEST, le=0)
    beta: float = Field(NORMAL.beta, gt=0, le=MAX_TUF)
    cutoff_s: float | None = Field(None, le=MAX_TUF)

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if self.alpha is not None and self.cutoff_s is not None:
            raise ValueError("give alpha or cutoff_s, not both")
        return self

    def build(self) -> TimeUtility:
        if self.cutoff_s is not None:
            return TimeUtility.from_cutoff(self.ert_s, self.cutoff_s, self.beta)
        return TimeUtility(self.ert_s, NORMAL.alpha if self.alpha is None else self.alpha, self.beta)


class TimelyParams(BaseModel):
    """All parameters of a request. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    task_id: str | None = Field(None, max_length=200)
    tuf: VllmTufParams | None = None
    skill_set: str = Field("", max_length=100)
    skill_set_fingerprint: str = Field("", max_length=64)
    """Of the copy by which the plan's segments are checked; an engine with another copy refuses the plan."""
    robot: str = Field("", max_length=100)
    agent: str = Field("", max_length=200)
    app: str | None = Field(None, max_length=200)
    app_requests: int | None = Field(None, ge=1, le=MOST_REQUESTS)
    urgency: int | None = Field(None, ge=0, le=4)
    network_s: float = Field(0.0, ge=0, le=10)
    expected_tokens: float | None = Field(None, ge=0, le=1e6)
    pace_s: float | None = Field(None, gt=0, le=60)
    acceptance: float | None = Field(None, ge=0, le=1)
    priority: float | None = None
    text: str = ""
    arrival_s: float | None = None
    """On the host's monotonic clock; set by our own server only."""
    forced: list[tuple[str, int, float] | tuple[str, int, float, bool]] | None = None
    """For replays: (text, tokens, execution_s, blocking) of each segment; boundaries follow the token counts."""
    segment_tokens: int | None = Field(None, ge=1)
    """For replays: the longest segment of its skill set, tokens; by default that of the plan."""
    whole_answer: bool = False
    """For replays: the one segment is the whole answer, which no skill set bounds."""
    forced_ids: list[int] | None = None
    """For replays: the exact output token ids."""
    history: PlanHistory | None = None
    """Of a plan that goes on after a restart; set by our own server only."""
    resumed_tokens: int = Field(0, ge=0)
    """So many last tokens of the prompt are those of ``history``: segments, and values behind them."""
    names: list[str] | None = Field(None, max_length=MOST_NAMES)
    """Names that object arguments may have, set by our own server for a planner's requests; by default any."""
    keep_prompt: bool = False
    """The prompt stays in the prefix cache, set by our own server for the fixed parts of its prompts."""
    awaits_values: bool = True
    """Whether a segment may wait for its robot's value. Clients over HTTP cannot report one, so theirs goes on."""
    promised: bool = False
    """Admitted on a prediction that its response comes in time, set by our own server."""

    @property
    def utility(self) -> TimeUtility:
        """The request's time-utility function, the normal one by default."""
        return NORMAL if self.tuf is None else self.tuf.build()

    def hints(self, priority: float) -> RequestHints:
        """The request's hints; ``priority`` is vLLM's own, for a request that names no other."""
        fields = {name: getattr(self, name) for name in HINTS}
        return RequestHints(**{**fields, "priority": priority if self.priority is None else self.priority})


ORDINARY = TimelyParams.model_validate({"awaits_values": False})
"""Of a request without parameters."""


@lru_cache(maxsize=64)
def ordinary_vllm_hints(priority: float) -> RequestHints:
    """The hints of a request without parameters."""
    return ORDINARY.hints(priority)


def parse_vllm_extra_args(
    extra_args: Mapping[str, Any] | None, *, from_client: bool = False
) -> TimelyParams | None:
    """The parameters in ``SamplingParams.extra_args``; None when the request has none.

    Args:
        from_client: nested fields come over HTTP, too; flat ones always do.

    Raises:
        InvalidInput: a field is unknown, out of range, or a reserved one over HTTP; the message names it.
    """
    if not extra_args:
        return None
    raw: dict[str, Any] = {}
    nested_fields = extra_args.get(KEY)
    if nested_fields is not None:
        if not isinstance(nested_fields, Mapping):
            raise InvalidInput(f"must be an object, got {type(nested_fields).__name__}", where=KEY)
        if from_client and (reserved_names := sorted(RESERVED_FIELDS & nested_fields.keys())):
            raise InvalidInput("not for clients", where=f"{KEY}.{reserved_names[0]}")
        raw.update(nested_fields)
    tuf: dict[str, Any] = {}
    for key, value in extra_args.items():
        if key.startswith(FLAT_PREFIX):
            raw["awaits_values"] = False
            name = key[len(FLAT_PREFIX) :]
            if name in RESERVED_FIELDS:
                raise InvalidInput("not for clients", where=key)
            if name in _TUF_FIELDS:
                tuf[name] = value
            else:
                raw[name] = value
    if not raw and not tuf:
        return None
    if tuf:
        nested_fields = raw.get("tuf")
        raw["tuf"] = {**nested_fields, **tuf} if isinstance(nested_fields, Mapping) else tuf
    try:
        params = TimelyParams.model_validate(raw)
        _ = params.utility
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([KEY, *(str(part) for part in first["loc"])])
        raise InvalidInput(first["msg"], where=where) from None
    if params.arrival_s is not None and not math.isfinite(params.arrival_s):
        raise InvalidInput("must be finite", where="timely.arrival_s")
    return params


def vllm_hint_params(hints: RequestHints) -> dict[str, Any]:
    fields = {name: getattr(hints, name) for name in HINTS}
    tuf = fields.pop("utility")
    return {**fields, "tuf": {"ert_s": tuf.ert_s, "alpha": tuf.alpha, "beta": tuf.beta}}


def vllm_forced_plan_params(plan: ForcedPlan) -> dict[str, Any]:
    """A forced plan as fields of ``TimelyParams``; its prompt travels as the request's own."""
    return {
        "forced": [list(segment) for segment in plan.segments] or None,
        "forced_ids": None if plan.output_token_ids is None else list(plan.output_token_ids),
        "segment_tokens": plan.segment_tokens,
        "whole_answer": plan.whole_answer,
    }


def vllm_openai_fields(hints: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an OpenAI request that take its hints through vLLM, beside those in ``body``.

    Its ``SERVER_FIELDS`` go into ``SERVER_PARAMS``. A flat key, of which each request has one, says the rest: that no
    value of a robot comes.
    """
    SERVER_PARAMS.set({name: hints[name] for name in SERVER_FIELDS if name in hints})
    xargs = flatten_vllm_xargs({name: value for name, value in hints.items() if name not in SERVER_FIELDS})
    return {"vllm_xargs": {**(body.get("vllm_xargs") or {}), **xargs}}


def flatten_vllm_xargs(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same parameters as flat keys that vLLM's HTTP field ``vllm_xargs`` takes (no nesting, no None)."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if name == "tuf":
            flat.update({FLAT_PREFIX + key: v for key, v in dict(value).items() if v is not None})
        else:
            flat[FLAT_PREFIX + name] = value
    return flat
