"""Members of a step that answers in progress delay, each of them only as long as it runs itself."""

import numpy as np

from timely.core.arrays import Bools, Floats
from timely.core.utility import NORMAL
from timely.disciplines.tardiness.delay_cost import MAX_LATENESS_RATIO


class TimelyDelayedMembers:
    """Decides which answers in progress may join a step, by what each of its members loses.

    An answer that joins adds ``sequence_s`` to every step that a member still takes, or to fewer if the answer ends
    before. So a member with two tokens left loses a fifth of what one with ten loses.

    Args:
        sequence_s: what one more sequence adds to a step, seconds.
    """

    def __init__(self, sequence_s: float) -> None:
        self._sequence_s = sequence_s
        self._members: list[tuple[float, float, float, float]] = []
        self._answers: list[float] = []
        """Tokens left of the answers that have joined."""
        self._charged_s = 0.0
        """What those have added to the delay that counts for other candidates."""

    def join(self, due_s: float, weight: float, work_s: float, left_tokens: float) -> None:
        """A member joins.

        Args:
            due_s: delay since the start of the composition that makes it late, seconds.
            left_tokens: for how many steps it runs; infinite: as long as the longest member.
        """
        self._members.append((due_s, weight, work_s, left_tokens))

    def join_answers(self, left_tokens: Floats, charged_s: float) -> None:
        """Answers have joined."""
        self._answers += left_tokens.tolist()
        self._charged_s += charged_s

    def worth(
        self,
        left_tokens: Floats,
        weights: Floats,
        lates_s: Floats,
        *,
        mixing_s: float,
        already_s: float,
        longest_tokens: float,
        wait_share: float,
        price: float,
    ) -> Bools:
        """Which answers gain at least what the members lose by them; one entry of each array an answer, in order.

        One that is left out waits until the members are done that it would delay. Of these, those that lose utility no
        faster than a normal task and are late already are delayed at the price in any case.

        Args:
            lates_s: lateness, seconds; see ``MAX_LATENESS_RATIO``.
            mixing_s: what each answer adds to this step since that has prompts, seconds.
            already_s: delay of all that has joined the step, seconds.
            longest_tokens: most tokens that a member still has.
            wait_share: length of a step without the answers, as a share of the predicted one.
            price: utility that a second of delay costs at other times.
        """
        count = len(left_tokens)
        joins = np.ones(count, dtype=np.bool_)
        if not self._members:
            return joins
        dues_s, weight, works_s, lefts = np.array(self._members).T
        lefts = np.minimum(lefts, longest_tokens)
        rest_s = (
            dues_s
            - (already_s - self._charged_s)
            - self._delays_s(np.array(self._answers), lefts).sum(axis=0)
        )
        delays_s = self._delays_s(left_tokens, lefts) + mixing_s
        prices = price * (self._sequence_s * np.minimum(left_tokens, longest_tokens) + mixing_s)
        late = rest_s <= 0.0
        may_be_delayed = lates_s * weight[late].sum() < MAX_LATENESS_RATIO * (weight * works_s)[late].sum()
        heeded_weight = np.where(may_be_delayed[:, None] | (weight > weights[:, None]), weight, 0.0)
        mild = weight <= -NORMAL.alpha

        def gains(at: slice, before_s: Floats) -> Bools:
            """Whether each joins if the members have so much time left before it, ``([answers,] members)``."""
            over_s = np.minimum(np.maximum(delays_s[at] - before_s, 0.0), delays_s[at])
            losses = heeded_weight[at] * over_s
            credit = np.minimum(prices[at], (losses * (mild & (before_s <= 0.0))).sum(axis=1))
            late_weight = heeded_weight[at] * (over_s > 0.0)
            total = late_weight.sum(axis=1)
            until_s = np.divide(late_weight @ works_s, total, out=np.zeros(len(total)), where=total > 0.0)
            gain: Bools = weights[at] * wait_share * until_s >= losses.sum(axis=1) - credit
            return gain

        begin = 0
        while begin < count:
            later = slice(begin, count)
            total_s = delays_s[later].cumsum(axis=0)
            ends = _first_delayed_place(~gains(later, rest_s - (total_s - delays_s[later])))
            if ends:
                rest_s = rest_s - total_s[ends - 1]
                begin += ends
            if begin < count:
                # One that is refused changes nothing, so all that follow can be judged by the present members.
                refusals = _first_delayed_place(gains(slice(begin, count), rest_s))
                joins[begin : begin + refusals] = False
                begin += refusals
        return joins

    def _delays_s(self, answers: Floats, lefts: Floats) -> Floats:
        """What each answer adds to the time of each member, seconds, shape ``(answers, members)``."""
        return self._sequence_s * np.minimum(answers[:, None], lefts[None, :])


def _first_delayed_place(mask: Bools) -> int:
    """The place of the first true entry, or the length, which is at least one."""
    place = int(mask.argmax())
    return place if mask[place] else len(mask)
