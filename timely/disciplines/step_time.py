"""Step times learned online from the engine's own steps: no profile needed, any machine, any model."""

from __future__ import annotations

FORGET = 0.995
"""Weight of the past at each step: follows a machine whose speed drifts, remembers some 200 steps."""

TOKEN_SMOOTHING = 0.2
"""Weight of the newest step in ``token_s``: the most recent tokens count (TimelyLLM section 4.4)."""

SURPRISE = 5.0
"""A step this many times longer than predicted is set aside: one stall (a compilation, a page fault) must not be
learned as the machine's speed."""

CONVINCED = 3
"""So many surprises in a row, counted apart for steps with and without prompts, are no accident: learn anew."""

PRIOR_VARIANCE = (1.0, 0.01, 1e-4)
"""Of the three coefficients: loose enough that a handful of steps outweigh the prior."""


def _diagonal() -> list[list[float]]:
    return [[variance if i == j else 0.0 for j in range(3)] for i, variance in enumerate(PRIOR_VARIANCE)]


class LearnedSpeed:
    """Recursive least squares of ``step = base + per_sequence * n + per_prefill_token * p``.

    Plain Python floats: three unknowns, a few microseconds a step.

    Args:
        base_s: prior of the step with one sequence, seconds.
        per_sequence_s: prior cost of one more sequence, seconds.
        per_prefill_token_s: prior cost of one prompt token, seconds.
    """

    def __init__(
        self, base_s: float = 0.02, per_sequence_s: float = 0.0005, per_prefill_token_s: float = 0.0003
    ) -> None:
        self._w = [base_s, per_sequence_s, per_prefill_token_s]
        self._p = _diagonal()
        self._surprises = [0, 0]
        self._token_s = base_s
        self.observed = 0

    def observe(self, sequences: int, prefill_tokens: int, step_s: float) -> None:
        """Learn from one step that took ``step_s`` seconds."""
        if sequences <= 0 or step_s <= 0.0:
            return
        self.observed += 1
        x = (1.0, float(sequences), float(prefill_tokens))
        w = self._w
        # The measurement is noisier the longer the step: weight by the prediction.
        predicted = w[0] * x[0] + w[1] * x[1] + w[2] * x[2]
        scale = max(predicted, 1e-3)
        kind = int(prefill_tokens > 0)
        if step_s > SURPRISE * scale:
            self._surprises[kind] += 1
            if self._surprises[kind] < CONVINCED:
                return
            if self._surprises[kind] == CONVINCED:
                self._p = _diagonal()
        else:
            self._surprises[kind] = 0
        p = self._p
        px = [p[i][0] * x[0] + p[i][1] * x[1] + p[i][2] * x[2] for i in range(3)]
        noise = scale**2 * 0.04
        denominator = FORGET * noise + px[0] * x[0] + px[1] * x[1] + px[2] * x[2]
        gain = [value / denominator for value in px]
        error = step_s - predicted
        for i in range(3):
            w[i] += gain[i] * error
            for j in range(3):
                p[i][j] = (p[i][j] - gain[i] * px[j]) / FORGET
        # Forgetting must not blow up directions that are not excited (no prefill for minutes).
        for i, bound in enumerate(PRIOR_VARIANCE):
            if p[i][i] > bound:
                shrink = (bound / p[i][i]) ** 0.5
                for j in range(3):
                    p[i][j] *= shrink
                    p[j][i] *= shrink
        decode_s = step_s - max(0.0, w[2]) * prefill_tokens
        if decode_s > 0.0:
            self._token_s += TOKEN_SMOOTHING * (decode_s - self._token_s)

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


class FixedSpeed:
    """A speed that is known and constant, for tests and for engines with a step-time profile.

    Args:
        base_s, per_sequence_s, per_prefill_token_s: the coefficients, seconds.
    """

    def __init__(
        self, base_s: float = 0.02, per_sequence_s: float = 0.0, per_prefill_token_s: float = 0.0003
    ) -> None:
        self._w = (base_s, per_sequence_s, per_prefill_token_s)

    def observe(self, sequences: int, prefill_tokens: int, step_s: float) -> None:
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
