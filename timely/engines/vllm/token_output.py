"""Tokens that vLLM sampled: void ones are dropped, boundaries close segments, accounts go out with the outputs."""

from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
from vllm.v1.engine import EngineCoreOutput, FinishReason
from vllm.v1.request import Request

from timely.core.errors import TimelyError
from timely.engines.scheduler_core import EngineController
from timely.engines.vllm.boundaries import ClosedText
from timely.engines.vllm.engine_events import vllm_error_data
from timely.engines.vllm.name_constraint import VllmPromptNames
from timely.engines.vllm.request_state import VllmLiveRequests, VllmRequestState

AppendTokens = Callable[[Request, list[int], bool], tuple[list[int], bool]]
"""vLLM's own way to append tokens: returns those it kept, and whether the request stopped."""


def append_vllm_tokens(
    state: VllmRequestState, token_ids: list[int], stale: bool, append: AppendTokens
) -> tuple[list[int], bool]:
    """Append sampled tokens of a plan up to the first boundary of a blocking segment; drop those behind it.

    Tokens behind the boundary were sampled without the robot's value. They come from drafts or from a step that was
    composed ahead. Dropped here, they can neither stop the request nor advance its grammar. What was computed of them
    is written again.

    Args:
        token_ids: shortened in place to the tokens that were kept.
        stale: they were in flight when the request was preempted.
    """
    assert state.boundaries is not None
    request, kept_count, stopped = state.request, 0, False
    for token_id in token_ids:
        if stopped or state.awaits_value:
            break
        _, stopped = append(request, [token_id], stale)
        kept_count += 1
        state.token_ids.append(token_id)
        for closed_text in state.boundaries.feed(token_id):
            state.note_boundary(closed_text, kept_count)
            if closed_text.blocking and state.job.spec.segmented and not stopped:
                state.awaits_value = True
    void_count = len(token_ids) - kept_count
    if void_count:
        del token_ids[kept_count:]
    if not stale:
        if void_count and request.num_output_placeholders:
            request.num_output_placeholders -= void_count
        # A further turn of a session begins with the last token, as in vLLM.
        end_tokens = request.num_in_flight_tokens + request.num_tokens - stopped
        request.num_computed_tokens = min(request.num_computed_tokens, end_tokens)
    return token_ids, stopped


class VllmTokenOutput:
    """Closes segments and adds the account of a request to its outputs."""

    def __init__(
        self, controller: Callable[[], EngineController], live: VllmLiveRequests, names: VllmPromptNames
    ) -> None:
        self._controller = controller
        self._live = live
        self._names = names

    def process(
        self,
        outputs: Sequence[EngineCoreOutput],
        finished_ids: Container[str],
        now: float,
        *,
        has_drafts: bool,
    ) -> list[str]:
        """The outputs of a step. Ordinary requests are counted together and cost little more until they finish.

        Args:
            finished_ids: requests that ended with this step.
            has_drafts: the step had draft tokens; without them every output that ends nothing has one token.

        Returns:
            Requests that ended a turn of their session.
        """
        table, with_boundaries = self._controller().table, self._live.with_boundaries
        ids = [output.request_id for output in outputs]
        rows = table.rows(ids)
        # Of ordinary requests only the ends have to be looked at.
        places = [
            place
            for place, output in enumerate(outputs)
            if output.finish_reason is not None or (with_boundaries and output.request_id in with_boundaries)
        ]
        if has_drafts or with_boundaries:
            counts = np.array([len(output.new_token_ids) for output in outputs], dtype=np.int64)
        else:
            counts = np.ones(len(ids), dtype=np.int64)
            for place in places:
                counts[place] = len(outputs[place].new_token_ids)
        if not (in_table := (rows >= 0) & (counts > 0)).all():
            rows, counts = rows[in_table], counts[in_table]
            ids = [
                request_id
                for request_id, is_in_table in zip(ids, in_table.tolist(), strict=True)
                if is_in_table
            ]
        for place in self._controller().progress_together(rows, counts, now):
            self._live[ids[place]].first_token_s = now
        turns: list[str] = []
        for place in places:
            output = outputs[place]
            state = self._live.get(output.request_id)
            if state is None:
                continue
            if state.first_token_s is None and output.new_token_ids:
                state.first_token_s = now  # of a plan that goes on after a restart
            finished = output.finish_reason is not None and output.request_id in finished_ids
            self._process(state, output, now, finished=finished)
            if output.finish_reason is not None and not finished:
                turns.append(output.request_id)
        return turns

    def _process(
        self, state: VllmRequestState, output: EngineCoreOutput, now: float, *, finished: bool
    ) -> None:
        count = len(output.new_token_ids)
        if count:
            self._names.wrote(output.request_id, output.new_token_ids)
            state.note_tokens(now)
        if finished or state.new_boundaries:
            truncated = output.finish_reason is not FinishReason.STOP
            boundaries = state.take_boundaries(count, finished=finished, truncated=truncated)
            for number, (closed_text, position, token_ids) in enumerate(boundaries, 1):
                is_last = finished and number == len(boundaries)
                self._close(state, closed_text, token_ids, count - position, now, ends=finished, last=is_last)
        if (finished and state.has_account) or len(state.segments) > state.sent_segments:
            # Chunks may be merged on the way, so what is sent always holds all segments.
            account: dict[str, Any] = {"timely": state.account(now, finished=finished)}
            output.kv_transfer_params = {**(output.kv_transfer_params or {}), **account}

    def _close(
        self,
        state: VllmRequestState,
        closed_text: ClosedText,
        token_ids: Sequence[int],
        surplus_tokens: int,
        now: float,
        *,
        ends: bool,
        last: bool,
    ) -> None:
        segment = self._controller().close_segment(
            state.job,
            closed_text.text,
            closed_text.execution_s,
            now,
            blocking=closed_text.blocking,
            surplus_tokens=surplus_tokens,
            last=ends,
        )
        state.record(segment, token_ids, surplus_tokens=surplus_tokens, ends=ends, last=last)


def refuse_vllm_plan(request: Request, error: TimelyError) -> EngineCoreOutput:
    """The only output of a plan that cannot be generated: the account has the error, which vLLM 0.32 does not carry."""
    return EngineCoreOutput(
        request.request_id,
        [],
        finish_reason=FinishReason.ERROR,
        kv_transfer_params={"timely": {"segments": [], "error": vllm_error_data(error)}},
        events=request.take_events(),
        trace_headers=request.trace_headers,
    )


def end_full_vllm_plan(state: VllmRequestState, now: float) -> EngineCoreOutput:
    """The last output of a plan whose context is full, as of a request that reaches vLLM's longest context."""
    request = state.request
    last_token_s = state.segments[-1]["ready_s"] if state.segments else now
    return EngineCoreOutput(
        request.request_id,
        [],
        finish_reason=FinishReason.LENGTH,
        kv_transfer_params={"timely": state.account(last_token_s, finished=True)},
        events=request.take_events(),
        trace_headers=request.trace_headers,
    )
