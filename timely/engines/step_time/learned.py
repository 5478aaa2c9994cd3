"""Step times learned online from the engine's own steps: no profile needed, any machine, any model."""

from __future__ import annotations

import math
from collections.abc import Callable

FORGET = 0.995
"""Weight of the past at each step: follows a machine whose speed drifts, remembers some 200 steps."""

FORGET_PROMPTS = 0.975
"""The same for steps with prompts, which are rarer: some 40 of them."""

TOKEN_SMOOTHING = 0.2
"""Weight of the newest step in ``token_s``: the most recent tokens count (TimelyLLM section 4.4)."""

SURPRISE = 5.0
"""A step this many times longer than predicted is set aside: one stall, such as a compilation, is not the machine's
speed."""

CONVINCED = 3
"""So many surprises in a row, counted apart for steps with and without prompts, are no accident: learn anew."""

PRIOR_VARIANCE = (1.0, 0.01, 1e-4)
"""Of the three coefficients: loose enough that a handful of steps outweigh the prior."""


EAGER, EVERY = 32, 8
"""The first steps are learned from at once, later ones eight at a time; steps with prompts always at once."""


class LearnedSpeed:
    """Least squares of ``step = base + per_sequence * n + per_prefill_token * p``, the past fading.

    Kept as weighted sums, apart for steps with and without prompts. Each kind fades only as steps of its kind come, so
    hours of decoding do not spoil the cost of prompts. Plain Python floats: a microsecond a step.

    Args:
        base_s: prior of the step with one sequence, seconds.
        per_sequence_s: prior cost of one more sequence, seconds.
        per_prefill_token_s: prior cost of one prompt token, seconds.
    """

    def __init__(
        self, base_s: float = 0.02, per_sequence_s: float = 0.0005, per_prefill_token_s: float = 0.0003
    ) -> None:
        self._w = (base_s, per_sequence_s, per_prefill_token_s)
        self._prior = self._w
        self._decode = [0.0] * 5
        """Weighted sums over decoding steps: 1, n, n n, y, n y."""
        self._mixed = [0.0] * 9
        """And over steps with prompts: 1, n, p, n n, n p, p p, y, n y, p y."""
        self._surprises = [0, 0]
        self._token_s = base_s
        self.observed = 0

    def observe(self, sequences: float, prefill_tokens: float, step_s: float) -> None:
        """Learn from one step that took ``step_s`` seconds."""
        if sequences <= 0 or step_s <= 0.0:
            return
        self.observed += 1
        base, per_sequence, per_prefill = self._w
        n, p = float(sequences), float(prefill_tokens)
        kind = int(prefill_tokens > 0)
        if step_s > SURPRISE * max(base + per_sequence * n + per_prefill * p, 1e-3):
            self._surprises[kind] += 1
            if self._surprises[kind] < CONVINCED:
                return
            if self._surprises[kind] == CONVINCED:
                self._prior = self._w
                self._decode, self._mixed = [0.0] * 5, [0.0] * 9
        else:
            self._surprises[kind] = 0
        # The measurement is noisier the longer the step.
        weight = 25.0 / max(step_s, 1e-3) ** 2
        y, wn = weight * step_s, weight * n
        if kind:
            wp = weight * p
            news = (weight, wn, wp, wn * n, wn * p, wp * p, y, y * n, y * p)
            self._mixed = [FORGET_PROMPTS * old + new for old, new in zip(self._mixed, news, strict=True)]
        else:
            one, sn, snn, sy, sny = self._decode
            self._decode = [
                FORGET * one + weight, FORGET * sn + wn, FORGET * snn + wn * n, FORGET * sy + y, FORGET * sny + y * n,
            ]  # fmt: skip
        if kind or self.observed < EAGER or self.observed % EVERY == 0:
            self._w = self._solve()
        decode_s = step_s - max(0.0, self._w[2]) * p
        if decode_s > 0.0:
            self._token_s += TOKEN_SMOOTHING * (decode_s - self._token_s)

    def _solve(self) -> tuple[float, float, float]:
        """The coefficients that fit the sums best, the prior counting as little as its variances say."""
        one, n, nn, y, ny = self._decode
        m1, mn, mp, mnn, mnp, mpp, my, mny, mpy = self._mixed
        l0, l1, l2 = (1.0 / variance for variance in PRIOR_VARIANCE)
        p0, p1, p2 = self._prior
        # Symmetric positive definite by the prior's diagonal: Cholesky, written out.
        a00, a01, a02 = one + m1 + l0, n + mn, mp
        a11, a12, a22 = nn + mnn + l1, mnp, mpp + l2
        b0, b1, b2 = y + my + l0 * p0, ny + mny + l1 * p1, mpy + l2 * p2
        c00 = math.sqrt(a00)
        c10, c20 = a01 / c00, a02 / c00
        c11 = math.sqrt(max(a11 - c10 * c10, 1e-12 * a11))
        c21 = (a12 - c20 * c10) / c11
        c22 = math.sqrt(max(a22 - c20 * c20 - c21 * c21, 1e-12 * a22))
        z0 = b0 / c00
        z1 = (b1 - c10 * z0) / c11
        z2 = (b2 - c20 * z0 - c21 * z1) / c22
        w2 = z2 / c22
        w1 = (z1 - c21 * w2) / c11
        return ((z0 - c10 * w1 - c20 * w2) / c00, w1, w2)

    def step_s(self, sequences: float, prefill_tokens: float, context_tokens: float = 0.0) -> float:
        """Predicted time of a step, seconds; never under a tenth of a millisecond."""
        base, per_sequence, per_prefill = self._w
        return max(1e-4, base + max(0.0, per_sequence) * sequences + max(0.0, per_prefill) * prefill_tokens)

    @property
    def token_s(self) -> float:
        """Time of the most recent steps without what prompts added to them, seconds a token."""
        return self._token_s

    @property
    def prefill_token_s(self) -> float:
        """Time one more prompt token adds to a step, seconds."""
        return max(1e-7, self._w[2])


JOINED = 8
"""Most steps that are learned from as one."""


class StepLearner:
    """Passes finished steps to a speed; steps whose times can only be measured together count as one.

    With asynchronous scheduling the end of a step is seen when the next one is launched. Launching prompts takes long,
    and their time is seen in the step before them. The sum is right, so these steps are learned as one, their mean.

    Args:
        observe: ``LearnedSpeed.observe``, or another's.
    """

    def __init__(self, observe: Callable[[float, float, float], None]) -> None:
        self._observe = observe
        self._open: list[tuple[float, float, float]] = []

    def ran(self, sequences: float, prefill_tokens: float, step_s: float, *, prompts_follow: bool) -> None:
        """One more step is over; ``prompts_follow``: the next one was launched already and computes prompts."""
        if not self._open and not prompts_follow:
            self._observe(sequences, prefill_tokens, step_s)
            return
        self._open.append((sequences, prefill_tokens, step_s))
        if prompts_follow and len(self._open) < JOINED:
            return
        sequences, prefill_tokens, step_s = (
            sum(column) / len(self._open) for column in zip(*self._open, strict=True)
        )
        self._open.clear()
        self._observe(sequences, prefill_tokens, step_s)


class FixedSpeed:
    """A speed that is known and constant, for tests and for engines with a step-time profile.

    Args:
        base_s, per_sequence_s, per_prefill_token_s: the coefficients, seconds.
    """

    def __init__(
        self, base_s: float = 0.02, per_sequence_s: float = 0.0, per_prefill_token_s: float = 0.0003
    ) -> None:
        self._w = (base_s, per_sequence_s, per_prefill_token_s)

    def observe(self, sequences: float, prefill_tokens: float, step_s: float) -> None:
        """Nothing to learn."""

    def step_s(self, sequences: float, prefill_tokens: float, context_tokens: float = 0.0) -> float:
        """Time of a step, seconds."""
        return self._w[0] + self._w[1] * sequences + self._w[2] * prefill_tokens

    @property
    def token_s(self) -> float:
        """Time of a decoding step with one sequence, seconds."""
        return self._w[0] + self._w[1]

    @property
    def prefill_token_s(self) -> float:
        """Time of one prompt token, seconds."""
        return max(1e-7, self._w[2])
