"""Speculative decoding of simulated steps: the draft tokens of their members, and what verifying them gives."""

from timely.engines.replay_types import ReplayOptions
from timely.engines.scheduler_core import EngineController
from timely.engines.sim.memory import SimMemory, SimTask
from timely.engines.sim.speculation import SimSpeculation


class SimDrafting:
    """Drafts and verifies; ``speculation`` draws what is right."""

    def __init__(
        self,
        options: ReplayOptions,
        speculation: SimSpeculation,
        controller: EngineController,
        memory: SimMemory,
    ) -> None:
        self._speculation, self._controller, self._pool = speculation, controller, memory.pool
        self._is_segmented = options.mode == "segmented"

    def expect(self, live: SimTask) -> None:
        """Note in the table how many draft tokens the job's next decoding step verifies."""
        table, row, most = self._controller.table, live.job.row, self._speculation.drafts
        if live.task.acceptance is None:
            most = min(most, _sim_forced_run(live))
        table.draft_tokens[row] = most

    def draft(self, members: list[tuple[SimTask, int, bool]]) -> int:
        """Give members that decode their draft tokens, as many as there is room for; returns how many in all.

        This comes last, when each member has what the plan gave: drafts take no block that a member needs.
        """
        table, pool = self._controller.table, self._pool
        drafts = 0
        for place, (live, tokens, prefill) in enumerate(members):
            row = live.job.row
            most = int(table.draft_tokens[row])
            if prefill or not most:
                continue
            end = int(table.context_tokens[row]) + tokens
            if not pool.grow(live.holding, end + most):
                most = min(most, live.holding.blocks * pool.block_tokens - end)
            table.blocks[row] = live.holding.blocks
            if most > 0:
                members[place] = (live, tokens + most, False)
                drafts += most
        return drafts

    def verify(self, live: SimTask, draft_tokens: int, now: float) -> int:
        """A round of speculative decoding is verified: how many tokens it gave.

        Nothing follows the last token, and nothing follows a blocking skill before its value is there. Draft tokens
        beyond are void, as on the live engine.
        """
        task = live.task
        right = draft_tokens  # forced tokens
        if task.acceptance is not None:
            right = self._speculation.round(task.job, task.acceptance, draft_tokens)
        most = live.target - live.output
        if self._is_segmented and right >= live.boundary - live.output:
            at = live.boundary - live.output
            for segment, following in zip(task.plan[live.index :], task.plan[live.index + 1 :], strict=False):
                if segment.blocking:
                    most = at
                    break
                at += following.tokens
        right = min(right, most - 1)
        context = int(self._controller.table.context_tokens[live.job.row])
        live.computed_tokens = max(live.computed_tokens, context + right + 1)
        self._speculation.note(draft_tokens, right)
        self._controller.accepted(live.job, draft_tokens, right, now)
        return right + 1


def _sim_forced_run(live: SimTask) -> int:
    """Forced tokens in a row that come next in the segment in generation; the plan's last token needs no draft."""
    segment = live.task.plan[live.index]
    forced = segment.forced[live.output - (live.boundary - segment.tokens) :]
    run = forced.index(False) if False in forced else len(forced)
    return min(run, live.target - live.output - 1)
