"""A plan that goes on after a restart: its recorded tokens are computed again as a part of the prompt.

Prompt and recorded tokens are the forced prefix of the rest, and the prefix cache serves both. The state that follows
from generated tokens is advanced past them: detokenizer, segmenter, names, and the grammar once it has been compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from timely.core.errors import Conflict, InvalidInput
from timely.engines.base import GenerationDone, GenerationRequest, Mode, PastReport, PlanHistory
from timely.plans.robot_values import plan_value_text

if TYPE_CHECKING:
    from timely.engines.vllm.name_constraint import VllmPromptNames
    from timely.engines.vllm.request_state import VllmRequestState


def vllm_resumed_context(
    history: PlanHistory, mode: Mode, encode: Callable[[str], Iterable[int]]
) -> list[int]:
    """What followed the prompt before the restart: the tokens of the segments, and the values behind them.

    Args:
        encode: text to token ids, as for a prompt.

    Raises:
        Conflict: the tokens of a segment were not recorded.
    """
    segments, values = history.own_segments, _vllm_robot_values(history)
    context: list[int] = []
    for segment in segments:
        if len(segment.token_ids) != segment.tokens:
            raise Conflict(f"the tokens of segment {segment.index} were not recorded", where="history")
        context += segment.token_ids
        if mode == "segmented" and segment.blocking and segment.index in values:
            context += encode(plan_value_text(values[segment.index]))
    return context


def vllm_resumed_tokens(history: PlanHistory) -> list[int]:
    """What the model generated before the restart."""
    return [token_id for segment in history.own_segments for token_id in segment.token_ids]


def vllm_tokens_left(request: GenerationRequest) -> int:
    """How many tokens a plan may still have; one at its limit, see ``vllm_resumed_end``."""
    sent_tokens = len(vllm_resumed_tokens(request.history)) if request.history is not None else 0
    return max(1, request.max_tokens - sent_tokens)


def vllm_resumed_end(
    request: GenerationRequest, history: PlanHistory, room_tokens: int = 1
) -> GenerationDone | None:
    """The end of a plan whose last segment had been sent, or whose context is full; None if it goes on.

    At its limit of tokens a plan goes on too, by one token: the last one may have closed a segment that was not sent.

    Args:
        room_tokens: tokens that the model's context has left behind the prompt and what followed it.
    """
    segments = history.own_segments
    tokens = sum(segment.tokens for segment in segments)
    if not segments or not (segments[-1].last or room_tokens < 1):
        return None
    cut = tokens >= request.max_tokens or room_tokens < 1
    return GenerationDone(
        task_id=request.task_id,
        reason="length" if cut else "complete",
        text=history.text,
        tokens=tokens,
        last_token_s=segments[-1].ready_s,
    )


def resume_vllm_state(state: VllmRequestState, names: VllmPromptNames, history: PlanHistory) -> None:
    """Advance a new request past its recorded tokens.

    Raises:
        InvalidInput: the tokens do not give the segments that were sent.
    """
    assert state.boundaries is not None
    request_id = state.request.request_id
    closed_texts = [
        text for token_id in vllm_resumed_tokens(history) for text in state.boundaries.feed(token_id)
    ]
    sent_segments = history.own_segments
    if [text.text for text in closed_texts[: len(sent_segments)]] != [
        segment.text for segment in sent_segments
    ]:
        raise InvalidInput("the recorded tokens give other segments", where="timely.history")
    # A token may have closed two segments, of which one was sent.
    unsent = closed_texts[len(sent_segments) :]
    if state.job.spec.segmented and any(text.blocking for text in unsent):
        raise InvalidInput("a segment that awaits a value was closed and not sent", where="timely.history")
    state.new_boundaries += [(text, 0, ()) for text in unsent]
    names.wrote(request_id, vllm_resumed_tokens(history))
    for value in _vllm_robot_values(history).values():
        names.add_answer(request_id, value)
    state.awaits_value = state.job.awaiting is not None


def advance_vllm_grammar(request: Any, token_ids: Sequence[int]) -> None:
    """Advance the compiled grammar of a request past tokens of an earlier run."""
    grammar_request = request.structured_output_request
    if grammar_request is not None:
        grammar_request.grammar.accept_tokens(request.request_id, list(token_ids))


def _vllm_robot_values(history: PlanHistory) -> dict[int, str]:
    """What this plan's robot returned, by segment; the first report counts."""
    values: dict[int, str] = {}
    for event in history.events:
        report = event.report if isinstance(event, PastReport) else None
        if report and report.value is not None and report.segment >= history.replaced_segments:
            values.setdefault(report.segment, report.value)
    return values
