"""Step times learned online from the engine's own steps: no profile needed, any machine, any model."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import mul

FORGET = 0.995
"""Weight of the past at each step: follows a machine whose speed drifts, remembers some 200 steps."""

FORGET_PROMPTS = 0.975
"""The same for steps with prompts, which are rarer: some 40 of them."""

TOKEN_SMOOTHING = 0.2
"""Weight of the newest step in ``token_s``: the most recent tokens count (TimelyLLM section 4.4)."""

SURPRISE = 5.0
"""A step this many times longer than predicted is set aside: one stall, such as a compilation, is not the machine's
speed."""

MAX_SURPRISES = 3
"""So many surprises in a row, counted apart for steps with and without prompts, are no accident: learn anew."""

PRIOR_VARIANCE = (1.0, 0.01, 1e-4)
"""Of the first three coefficients: loose enough that a handful of steps outweigh the prior."""

PRIOR_STEPS = (2.0, 4.0)
"""Average steps that say that context costs nothing, and mixed ones that say so of mixing: a few steps prove little."""

EAGER = 32
"""The first steps are learned from at once."""

EVERY, NEWS = 8, (1, 4)
"""Later ones are learned from eight at a time; a step with prompts counts as four, since they are rarer."""

Coefficients = tuple[float, float, float, float, float, float]

PRIOR = (0.02, 0.0005, 0.0003)
"""A step with one sequence, one more sequence, and a prompt token, seconds; context and mixing cost nothing."""


class LearnedSpeed:
    """Least squares of the time of a step over its content, the past fading.

    ``step = base + per_sequence * n + per_prefill_token * p + per_context_token * c + mixed * m +
    mixed_per_context_token * x``: ``n`` sequences, ``p`` prompt tokens, ``c`` tokens that decoding sequences attend to.
    If the step computes prompts beside decoding sequences, ``m`` is 1 and ``x`` is ``c``, else both are 0. Context and
    mixing are held near zero until many steps show their cost. Then other coefficients carry the cost of the usual
    context.

    Kept as weighted sums, apart for steps with and without prompts. Each kind fades only as steps of its kind come, so
    hours of decoding do not spoil the cost of prompts. Plain Python floats: a few microseconds a step.

    Args:
        prior: the first three coefficients before the first step.
    """

    def __init__(self, prior: tuple[float, float, float] = PRIOR) -> None:
        self._w: Coefficients = (*prior, 0.0, 0.0, 0.0)
        self._prior = self._w
        self._decode = [0.0] * 10
        """Sums over decoding steps: how many; weighted 1, n, c, n n, n c, c c, y, n y, c y."""
        self._prompts = [0.0] * 28
        """And over steps with prompts, of n, p, c, m, x in this order."""
        self._context_tokens = 0.0
        """Usual context of a sequence."""
        self._surprises = [0, 0]
        self._news = 0
        """Steps since the last fit, counted by ``NEWS``."""
        self.token_s = prior[0]
        """Time of the most recent steps without what prompts added to them, seconds a token."""
        self.step_count = 0

    def observe(
        self,
        sequences: float,
        prefill_tokens: float,
        step_s: float,
        context_tokens: float = 0.0,
        mixed: float = 0.0,
        mixed_context_tokens: float = 0.0,
    ) -> None:
        """Learn from one step that took ``step_s`` seconds.

        Args:
            context_tokens: sum over decoding sequences of the tokens they attend to.
            mixed: 1 if it computed prompts beside decoding sequences; of the mean of several steps, their share.
            mixed_context_tokens: ``context_tokens`` if it did, else 0.
        """
        if sequences <= 0 or step_s <= 0.0:
            return
        self.step_count += 1
        n, p, c, m, x = map(float, (sequences, prefill_tokens, context_tokens, mixed, mixed_context_tokens))
        kind = int(prefill_tokens > 0)
        prompts_s = self._prompts_s(p, m, x)
        decoding_s = self._decoding_s(n, c)
        if step_s > SURPRISE * max(decoding_s + prompts_s, 1e-3):
            self._surprises[kind] += 1
            if self._surprises[kind] < MAX_SURPRISES:
                return
            if self._surprises[kind] == MAX_SURPRISES:
                self._prior = self._w
                self._decode, self._prompts = [0.0] * 10, [0.0] * 28
        else:
            self._surprises[kind] = 0
        # The measurement is noisier the longer the step.
        weight = 25.0 / max(step_s, 1e-3) ** 2
        y, wn, wc = weight * step_s, weight * n, weight * c
        if kind:
            wp, wm, wx = weight * p, weight * m, weight * x
            news: tuple[float, ...] = (
                1.0, weight, wn, wp, wc, wm, wx, wn * n, wn * p, wn * c, wn * m, wn * x, wp * p, wp * c, wp * m, wp * x,
                wc * c, wc * m, wc * x, wm * m, wm * x, wx * x, y, y * n, y * p, y * c, y * m, y * x,
            )  # fmt: skip
            self._prompts = [FORGET_PROMPTS * old + new for old, new in zip(self._prompts, news, strict=True)]
        else:
            news = (1.0, weight, wn, wc, wn * n, wn * c, wc * c, y, y * n, y * c)
            self._decode = [FORGET * old + new for old, new in zip(self._decode, news, strict=True)]
        self._news += NEWS[kind]
        if self.step_count < EAGER or self._news >= EVERY:
            self._learn()
        if step_s > prompts_s:
            # The rest of a step is as uncertain as all of it: the smaller its share, the less it says.
            share = min(1.0, decoding_s / step_s) ** 2 if kind else 1.0
            self.token_s += share * TOKEN_SMOOTHING * (step_s - prompts_s - self.token_s)

    def _learn(self) -> None:
        """Fit the coefficients to the sums, the prior counting as little as its variances and steps say."""
        self._news = 0
        steps, one, n, c, nn, nc, cc, y, ny, cy = self._decode
        (
            mixed_steps, m1, mn, mp, mc, mm, mx, mnn, mnp, mnc, mnm, mnx, mpp, mpc, mpm, mpx, mcc, mcm, mcx, mmm, mmx,
            mxx, my, mny, mpy, mcy, mmy, mxy,
        ) = self._prompts  # fmt: skip
        rows = [
            [one + m1],
            [n + mn, nn + mnn],
            [mp, mnp, mpp],
            [c + mc, nc + mnc, mpc, cc + mcc],
            [mm, mnm, mpm, mcm, mmm],
            [mx, mnx, mpx, mcx, mmx, mxx],
        ]
        right = [y + my, ny + mny, mpy, cy + mcy, mmy, mxy]
        for place, (variance, prior) in enumerate(zip(PRIOR_VARIANCE, self._prior, strict=False)):
            rows[place][place] += 1.0 / variance
            right[place] += prior / variance
        for place, count, prior_steps in (
            (3, steps + mixed_steps, PRIOR_STEPS[0]),
            (4, mixed_steps, PRIOR_STEPS[1]),
            (5, mixed_steps, PRIOR_STEPS[1]),
        ):
            rows[place][place] = rows[place][place] * (1.0 + prior_steps / max(count, 1.0)) or 1.0
        self._w = _solve_step_equations(rows, right)
        self._context_tokens = (c + mc) / (n + mn)

    def _decoding_s(self, sequences: float, context_tokens: float | None) -> float:
        """Predicted time of a step without its prompts, seconds."""
        base, per_sequence, _, per_context = self._w[:4]
        usual = self._context_tokens
        step_s = base + max(0.0, per_sequence + per_context * usual) * sequences
        if context_tokens is not None:
            step_s += max(0.0, per_context) * (context_tokens - usual * sequences)
        return max(1e-4, step_s)

    def step_s(self, sequences: float, prefill_tokens: float, context_tokens: float | None = None) -> float:
        """Predicted time of a step, seconds; never under a tenth of a millisecond.

        Args:
            context_tokens: sum over decoding sequences of the tokens they attend to; None: as many as usual.
        """
        step_s = self._decoding_s(sequences, context_tokens)
        if prefill_tokens:
            if context_tokens is None:
                context_tokens = self._context_tokens * (sequences - 1)
            step_s += self._prompts_s(prefill_tokens, context_tokens > 0, context_tokens)
        return step_s

    def _prompts_s(self, prefill_tokens: float, mixed: float, context_tokens: float) -> float:
        """Predicted time that prompts add to a step, seconds."""
        _, _, per_prefill, _, per_mixed, per_context = self._w
        prompts_s = max(0.0, per_prefill) * prefill_tokens + per_mixed * mixed
        return max(0.0, prompts_s + per_context * context_tokens)

    def mixing_s(self, context_tokens: float) -> float:
        """Time that prompts and decoding sequences in one step add beside what each adds, seconds."""
        return max(0.0, self._w[4] + self._w[5] * context_tokens) if context_tokens else 0.0

    @property
    def prefill_token_s(self) -> float:
        """Time one more prompt token adds to a step, seconds."""
        return max(1e-7, self._w[2])


def _solve_step_equations(rows: list[list[float]], right: list[float]) -> Coefficients:
    """Solve symmetric positive definite equations, given as the rows of the lower triangle, by Cholesky; in place."""
    for i, row in enumerate(rows):
        diagonal = row[i]
        for j in range(i):
            row[j] = (row[j] - sum(map(mul, row[:j], rows[j]))) / rows[j][j]
        row[i] = math.sqrt(max(diagonal - sum(map(mul, row[:i], row)), 1e-12 * diagonal))
        right[i] = (right[i] - sum(map(mul, row[:i], right))) / row[i]
    for i in range(len(rows) - 1, -1, -1):
        right[i] /= rows[i][i]
        for j in range(i):
            right[j] -= rows[i][j] * right[i]
    base, per_sequence, per_prefill, per_context, mixed, mixed_per_context = right
    return base, per_sequence, per_prefill, per_context, mixed, mixed_per_context


MAX_JOINT_STEPS = 8
"""Most steps that are learned from as one."""


class StepTimeLearner:
    """Passes finished steps to a speed; steps whose times can only be measured together count as one.

    With asynchronous scheduling the end of a step is seen when the next one is launched. Launching prompts takes long,
    and their time is seen in the step before them. The sum is right, so these steps are learned as one, their mean.
    """

    def __init__(self, observe: Callable[..., None]) -> None:
        self._observe = observe
        self._open: list[tuple[float, ...]] = []

    def ran(
        self,
        sequences: float,
        prefill_tokens: float,
        step_s: float,
        context_tokens: float = 0.0,
        *,
        prompts_follow: bool,
    ) -> None:
        """One more step is over; ``prompts_follow``: the next one was launched already and computes prompts."""
        mixed = float(prefill_tokens > 0 and context_tokens > 0)
        step = (sequences, prefill_tokens, step_s, context_tokens, mixed, mixed * context_tokens)
        self._open.append(step)
        if prompts_follow and len(self._open) < MAX_JOINT_STEPS:
            return
        columns = zip(*self._open, strict=True)
        self._observe(*(sum(column) / len(self._open) for column in columns))
        self._open.clear()


@dataclass(slots=True)
class FixedSpeed:
    """A speed that is known and constant, for tests and for engines with a step-time profile."""

    base_s: float = 0.02
    per_sequence_s: float = 0.0
    per_prefill_token_s: float = 0.0003

    def observe(self, *step: float) -> None:
        """Nothing to learn."""

    def step_s(self, sequences: float, prefill_tokens: float, context_tokens: float | None = None) -> float:
        return self.base_s + self.per_sequence_s * sequences + self.per_prefill_token_s * prefill_tokens

    @property
    def token_s(self) -> float:
        return self.base_s + self.per_sequence_s

    @property
    def prefill_token_s(self) -> float:
        return max(1e-7, self.per_prefill_token_s)

    def mixing_s(self, context_tokens: float) -> float:
        """Time that prompts and decoding sequences in one step add: none, seconds."""
        return 0.0
