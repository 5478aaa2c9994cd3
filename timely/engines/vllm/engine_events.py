"""From vLLM's outputs and the scheduler's answers to the events and errors of the ``Engine`` interface."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from timely.core.errors import Conflict, EngineFailed, InvalidInput, TimelyError, UnknownName, Unsupported
from timely.engines.base import (
    EngineStats,
    FinishReason,
    GenerationDone,
    GenerationRequest,
    JobView,
    SegmentReady,
)


def vllm_segment_ready(task_id: str, data: Mapping[str, Any]) -> SegmentReady:
    return SegmentReady(**{**data, "task_id": task_id, "token_ids": tuple(data["token_ids"])})


def vllm_engine_stats(answers: Sequence[Mapping[str, Any]]) -> EngineStats:
    """Sums over all engines; of shares and times the value of the fullest or slowest, of backlogs the mean."""
    first = answers[0]
    total = {
        key: sum(answer[key] for answer in answers)
        for key in (
            "waiting", "running", "parked", "blocked", "runnable", "busy_s", "steps", "tokens", "segments",
            "evictions", "recomputed_tokens",
        )
    }  # fmt: skip
    return EngineStats(
        engine="vllm",
        discipline=first["discipline"],
        mode=first["mode"],
        now_s=max(answer["now_s"] for answer in answers),
        kv_usage=max(answer["kv_usage"] for answer in answers),
        evictable_kv=min(answer["evictable_kv"] for answer in answers),
        backlog_s={
            name: sum(answer["backlog_s"][name] for answer in answers) / len(answers)
            for name in first["backlog_s"]
        },
        step_s=max(answer["step_s"] for answer in answers),
        decide_s=max(answer["decide_s"] for answer in answers),
        jobs=tuple(JobView(**job) for answer in answers for job in answer["jobs"]),
        paces=_fastest_vllm_paces(answer["paces"] for answer in answers),
        **total,
    )


def _fastest_vllm_paces(engines: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """One pace a robot: with several engines, each learns from the reports on its own plans."""
    paces: dict[str, float] = {}
    for engine in engines:
        for agent, pace in engine.items():
            paces[agent] = min(pace, paces.get(agent, pace))
    return paces


def vllm_merged_segment(
    account: Mapping[str, Any], done: GenerationDone, sent_text: str = ""
) -> SegmentReady:
    """Mode ``whole``: the finished plan as one segment, without a rest that the limit of tokens cut off.

    Args:
        sent_text: of the segments that left in another mode before a restart.
    """
    segments: Sequence[Mapping[str, Any]] = account["segments"]
    text = done.text if done.reason == "complete" else done.text.removesuffix(done.tail)
    return SegmentReady(
        task_id=done.task_id,
        index=segments[0]["index"],
        text=text.removeprefix(sent_text),
        tokens=sum(segment["tokens"] for segment in segments),
        ready_s=segments[-1]["ready_s"],
        execution_s=sum(segment["execution_s"] for segment in segments),
        due_s=segments[-1]["due_s"],
        last=True,
        steps=sum(segment["steps"] for segment in segments),
        first_token_s=segments[0]["first_token_s"],
    )


def vllm_generation_done(
    request: GenerationRequest, last: Any, account: Mapping[str, Any], text: str
) -> GenerationDone:
    """The last event of a generation.

    Args:
        last: vLLM's last output, or None.
    """
    finish = last.outputs[0].finish_reason if last is not None and last.outputs else "abort"
    reasons: dict[str, FinishReason] = {"stop": "complete", "length": "length", "abort": "cancelled"}
    reason = reasons.get(str(finish), "failed")
    if request.forced and finish == "length":
        reason = "complete"
    return GenerationDone(
        task_id=request.task_id,
        reason=reason,
        text=text,
        cached_tokens=int(getattr(last, "num_cached_tokens", 0) or 0),
        error="the engine failed this request" if reason == "failed" else "",
        **{key: value for key, value in account.items() if key != "segments"},
    )


def vllm_error_data(error: TimelyError) -> dict[str, str]:
    """What ``vllm_error_from_data`` makes the exception of, in another process."""
    return {"code": error.code, "message": error.message, "where": error.where}


def vllm_error_from_data(error: Mapping[str, str]) -> TimelyError:
    """The exception behind an error that came back as data."""
    kinds: dict[str, type[TimelyError]] = {kind.code: kind for kind in (Conflict, EngineFailed, Unsupported)}
    if error["code"] == UnknownName.code:
        return InvalidInput(error["message"], where=error["where"])
    return kinds.get(error["code"], InvalidInput)(error["message"], where=error["where"])


def vllm_error_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:500]
