"""Options of the scheduler, from ``--additional-config '{"timely": {...}}'`` or ``TIMELY_*`` variables."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from timely.core.errors import InvalidInput, UnknownName
from timely.core.files import append_whole
from timely.core.job import PLAIN_SEGMENT_TOKENS
from timely.disciplines.registry import DEFAULT, load_discipline
from timely.engines.base import Mode
from timely.engines.scheduler_core import Journal

log = logging.getLogger(__name__)


class SchedulerSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    discipline: str = DEFAULT
    mode: Mode = "segmented"
    max_batch: int | None = Field(None, ge=1)
    """Most sequences in one step; vLLM's ``--max-num-seqs`` counts parked ones too, this does not."""
    prefill_chunk: int | None = Field(None, ge=1)
    """Most prompt tokens of one request in one step."""
    plain_segment_tokens: int = Field(PLAIN_SEGMENT_TOKENS, ge=1)
    """Tokens that an ordinary request is judged by, since it has no segments."""
    predictors: list[Path] = Field(default_factory=list)
    """Predictor files for disciplines; each discipline takes its own when it is switched to."""
    journal: str | None = None
    """File that receives every event and decision as JSON lines."""
    journal_details: bool = True
    """Whether it receives more than arrivals and ends of jobs, switches, and the times and counts of steps."""
    gauges: bool = True
    """Whether ``/metrics`` of ``vllm serve`` has the load of the engines; ``timely serve`` asks them itself."""
    fused_kernels: bool = False
    """Whether an eager engine on a CPU uses vLLM's fused kernels; ``timely serve`` asks for them."""
    draws_by_inversion: bool = False
    """Whether an engine on a CPU draws one random number a token; ``timely serve`` asks for that."""

    @classmethod
    def from_vllm(cls, vllm_config: Any) -> SchedulerSettings:
        """Read from vLLM's ``additional_config``, then fill in from the environment.

        Raises:
            InvalidInput: an unknown or unusable option; the message names it, or its variable.
        """
        extra = getattr(vllm_config, "additional_config", None)
        options: dict[str, Any] = {}
        if isinstance(extra, Mapping):
            options = dict(extra.get("timely") or {})
        variables = {}
        for name in ("discipline", "mode", "journal"):
            value = os.environ.get(f"TIMELY_{name.upper()}")
            if value and name not in options:
                options[name], variables[name] = value, f"TIMELY_{name.upper()}"

        def where(*parts: object) -> str:
            name = ".".join(map(str, parts))
            return variables.get(name, f"additional_config.timely.{name}")

        try:
            settings = cls.model_validate(options)
            load_discipline(settings.discipline)
        except ValidationError as error:
            first = error.errors()[0]
            raise InvalidInput(first["msg"], where=where(*first["loc"])) from None
        except UnknownName as error:
            error.where = where("discipline")
            raise
        if settings.prefill_chunk is not None and not vllm_config.scheduler_config.enable_chunked_prefill:
            raise InvalidInput("needs chunked prefill", where="additional_config.timely.prefill_chunk")
        return settings


def open_vllm_journal(path: str | None) -> Journal | None:
    """A journal that appends JSON lines to ``path`` (one file a process: ``{pid}`` is replaced); None for none."""
    if path is None:
        return None
    target = Path(path.replace("{pid}", str(os.getpid())))
    target.parent.mkdir(parents=True, exist_ok=True)
    # Open for the life of the process.
    handle = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    file = os.fdopen(handle, "ab", buffering=0, closefd=False)
    failures = 0

    def write(event: Mapping[str, Any]) -> None:
        nonlocal failures
        try:
            append_whole(file, json.dumps(event, default=str, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            # A full disk must not end the engine.
            failures += 1
            if failures == 1:
                log.error("%s: %s; lines of the journal are missing", target, error)

    return write
