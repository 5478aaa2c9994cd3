"""QoServe (ASPLOS 2026; as a preprint Niyama, arXiv 2503.22562): dynamic chunks, hybrid priority, eager relegation.

* **Decoding first.** Every decoding request joins every step.
* **Dynamic chunks.** The least slack of the decoding requests limits the prompt tokens of a step, by the predicted step
  time and a margin.
* **Hybrid priority.** Prompts stand in the order of their deadline plus a time for each prompt token that is left. That
  lies between earliest deadline first and shortest remaining prompt first.
* **Eager relegation.** A prompt that can no longer meet its deadline, and has no KV cache yet, stands behind all
  others.

The constants and the relegation of prompts without a cache are those of the published artefact (its branch of
Sarathi-Serve, ``deadline_scheduler.py``). There, too, only tokens of the prompt count in the hybrid priority, where
Eq. 5 of the paper adds the time to decode. Our reading, where the paper has other requests than ours:

* A robot's task is of the class whose deadline is the last token's, and that token is the first action's.
* The prompt of such a task is due earlier by the time that its first segment decodes.
* Without a hint from users about what may be relegated first, none is used.
"""

import numpy as np

from timely.core.job import JobTable
from timely.disciplines.base import DisciplineInfo, Floats, Rows, StepLimits
from timely.disciplines.rivals.deadlines import (
    RivalFirstSegmentLearner,
    rival_decoding_slack_s,
    rival_prompt_due_s,
)
from timely.disciplines.step_builder import KeyedDiscipline, StepBuilder

PROMPT_TOKEN_S = 0.008
"""Weight of a prompt token that is left in the hybrid priority, seconds."""

STEP_TOKENS = (128, *range(256, 2049, 256), 2552)
"""Sizes of a step that are tried, tokens."""

MARGIN = 1.2
"""The predicted step time times this must fit into the slack."""

CLASS_GAP_S = 1e9
"""Larger than any difference of deadlines: sets the classes of the order apart."""


class QoServe(RivalFirstSegmentLearner, KeyedDiscipline):
    """Dynamic chunking, hybrid prioritisation and eager relegation."""

    pool_first = False
    info = DisciplineInfo(
        name="qoserve",
        summary="prompt chunks sized by the slack of decoding requests; hopeless prompts go last",
        source="QoServe (ASPLOS 2026), Niyama (arXiv 2503.22562)",
        good_at="interactive and batch requests with deadlines on one machine, overload included",
        starves="requests that missed their deadline, under a steady stream of others",
    )

    def keys(self, table: JobTable, limits: StepLimits) -> Floats:
        token_s = limits.speed.token_s
        due_s = rival_prompt_due_s(table, token_s)
        decoding = table.prefill_left == 0
        need_s = table.prefill_left * limits.speed.prefill_token_s + token_s
        is_relegated = ~decoding & ~table.resident & (limits.now + need_s > due_s)
        rank_s = np.where(
            decoding,
            limits.now + rival_decoding_slack_s(table, limits.now, token_s) - CLASS_GAP_S,
            due_s + PROMPT_TOKEN_S * table.prefill_left,
        )
        result: Floats = -(rank_s + CLASS_GAP_S * is_relegated)
        return result

    def _fill(self, builder: StepBuilder, order: Rows) -> str:
        table, limits = builder.table, builder.limits
        decoding = order[table.prefill_left[order] == 0]
        if 0 < decoding.size < order.size:
            slack_s = rival_decoding_slack_s(table, limits.now, limits.speed.token_s)[decoding].min()
            own = builder.decode_tokens(decoding)
            chunk = self._chunk(
                float(slack_s), int(decoding.size), int(table.context_tokens[decoding].sum()), limits
            )
            builder.budget = min(builder.budget, own + chunk)
        return super()._fill(builder, order)

    @staticmethod
    def _chunk(slack_s: float, decoding: int, context_tokens: int, limits: StepLimits) -> int:
        """Most prompt tokens of a step that ends within the slack; those of the smallest step, if none does."""
        chunk = 0
        for tokens in STEP_TOKENS:
            prompt = max(1, tokens - decoding)
            step_s = limits.speed.step_s(decoding + 1, prompt, context_tokens)
            if chunk and MARGIN * step_s > slack_s:
                break
            chunk = prompt
        return chunk
