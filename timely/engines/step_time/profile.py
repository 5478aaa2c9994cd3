"""Step-time profiles: how long one step of a machine and model takes, as coefficients in a YAML file."""

from bisect import bisect_right
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from lrtrace.errors import BadInput
from lrtrace.yaml_file import read_lrtrace_yaml
from timely.core.errors import InvalidInput, UnknownName
from timely.engines.step_time.learned import FixedSpeed

PROFILE_PACKAGE = "timely.engines.step_time.profiles"
DEFAULT = "rtx4090-llama3-8b"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class StepTimeCurve(_Part):
    """A piecewise linear function: ``s[i]`` seconds at ``at[i]``; flat before the first, extended after the last."""

    at: Annotated[tuple[FiniteFloat, ...], Field(min_length=2)]
    s: Annotated[tuple[NonNegativeFloat, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.at) != len(self.s):
            raise ValueError(f"at and s must be equally long, got {len(self.at)} and {len(self.s)}")
        if any(later <= earlier for earlier, later in pairwise(self.at)):
            raise ValueError("at must increase")
        return self

    def __call__(self, x: float) -> float:
        """The value at ``x``, seconds."""
        at, s = self.at, self.s
        if x <= at[0]:
            return s[0]
        i = min(bisect_right(at, x), len(at) - 1)
        return s[i - 1] + (s[i] - s[i - 1]) * (x - at[i - 1]) / (at[i] - at[i - 1])


class StepTerms(_Part):
    """Seconds of one step, a sum of terms (symbols of the semantic scheduling paper, Eq. 4, in brackets).

    Attributes:
        base: of any step [gamma_2].
        per_sequence: per sequence in it.
        per_prefill_token: per prompt token computed [alpha_2].
        per_prefill_token_sq: a chunk from ``c`` to ``e`` tokens of context costs this times ``e**2 - c**2`` [alpha_1].
            A prompt costs the same in one chunk or in many.
        per_context_token: per token that a decoding sequence attends to, its newest included [gamma_1].
        mixed_base: once more in a step that both prefills and decodes.
        mixed_per_context_token: replaces ``per_context_token`` in such a step.
        tokens: by the number of tokens in the step, prompt and decoded ones alike.
        sequences: by the number of sequences that sample a token.
    """

    base: NonNegativeFloat
    per_sequence: NonNegativeFloat
    per_prefill_token: NonNegativeFloat
    per_prefill_token_sq: NonNegativeFloat
    per_context_token: NonNegativeFloat
    mixed_base: NonNegativeFloat = 0.0
    mixed_per_context_token: NonNegativeFloat | None = None
    tokens: StepTimeCurve | None = None
    sequences: StepTimeCurve | None = None


class KvCache(_Part):
    """Size of the KV cache, and the time to move one token's worth of it to or from host memory, seconds."""

    blocks: PositiveInt
    block_tokens: PositiveInt
    swap_s_per_token: NonNegativeFloat


class ProfileLimits(_Part):
    """Most sequences and most tokens in a step.

    ``asynchronous``: each step is composed while the one before it runs, before its tokens exist, as vLLM does on a
    GPU. A newcomer waits a step longer, and a job that is to park computes a token more. ``launch_s`` is how long the
    engine is busy launching a step that only decodes, ``launch_prompts_s`` one with prompts, seconds. Meanwhile it
    neither composes another step nor sees that the one before is over.

    ``between_s`` is the part of each step's time that the engine's own loop takes, seconds. Disciplines do not learn
    it, because live engines time a step from its composition to its last token. Without asynchronous scheduling only.

    The loop takes ``loop_member_s`` longer for each member of a step, and ``loop_waiting_s`` for each live job that is
    not in it: queued, or parked. With asynchronous scheduling these keep the engine as busy as launching does. Without,
    a step takes that time too: the members' share is in the step times already, that of waiting jobs is added.
    """

    max_batch: PositiveInt
    token_budget: PositiveInt
    asynchronous: bool = False
    launch_s: NonNegativeFloat = 0.0
    launch_prompts_s: NonNegativeFloat = 0.0
    between_s: NonNegativeFloat = 0.0
    loop_member_s: NonNegativeFloat = 0.0
    loop_waiting_s: NonNegativeFloat = 0.0

    def loop_growth_s(self, members: float, waiting: float) -> float:
        """What the loop takes beside its constant time, seconds, for so many members and live jobs that wait."""
        return self.loop_member_s * members + self.loop_waiting_s * waiting


class DraftTerms(_Part):
    """Speculative decoding.

    Attributes:
        draft_tokens: in a round; 0: only where a replay asks for it.
        draft_s: to draft one token for every sequence of the step, seconds (T_SSM of the LAPS-SD paper's Eq. 6). Zero
            for drafts that are looked up, as n-grams are.
        verify_s_per_token: per draft token verified in the step, beside its decoding, seconds.
    """

    draft_tokens: NonNegativeInt = 0
    draft_s: NonNegativeFloat = 0.0
    verify_s_per_token: NonNegativeFloat = 0.0


class StepTimeProfile(_Part):
    """A machine with a model on it, as far as step times go.

    ``source`` says where the numbers come from, ``fit_error`` how far they are from what they were fitted to.
    """

    name: Annotated[str, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    date: str = ""
    fit_error: dict[str, float | str] = {}
    notes: str = ""
    step_s: StepTerms
    kv: KvCache
    limits: ProfileLimits
    speculation: DraftTerms | None = None


class StepTime:
    """The time of a step under a profile, in plain Python floats: this runs once per simulated step."""

    def __init__(self, terms: StepTerms) -> None:
        self._base = terms.base
        self._sequence = terms.per_sequence
        self._prefill = terms.per_prefill_token
        self._prefill_sq = terms.per_prefill_token_sq
        self._context = terms.per_context_token
        self._mixed_base = terms.mixed_base
        mixed = terms.mixed_per_context_token
        self._mixed_context = terms.per_context_token if mixed is None else mixed
        self._tokens = terms.tokens
        self._sequences = terms.sequences

    def __call__(
        self,
        decodes: float,
        prefills: float,
        prefill_tokens: float,
        prefill_squares: float,
        context_tokens: float,
        drafts: int = 0,
    ) -> float:
        """Seconds of a step, or of the mean of several.

        Args:
            decodes: decoding sequences; prefills: sequences with a chunk of prompt.
            prefill_squares: sum over chunks of (end of chunk)^2 - (its begin)^2, tokens squared.
            context_tokens: sum over decoding sequences of the tokens they attend to.
        """
        sequences = decodes + prefills
        time = self._base + self._sequence * sequences
        if prefill_tokens:
            time += self._prefill * prefill_tokens + self._prefill_sq * prefill_squares
            if decodes:
                time += self._mixed_base + self._mixed_context * context_tokens
        else:
            time += self._context * context_tokens
        if self._tokens is not None:
            time += self._tokens(prefill_tokens + decodes + drafts)
        if self._sequences is not None:
            time += self._sequences(sequences)
        return time

    def mixing_s(self, context_tokens: float) -> float:
        """Time that prompts and decoding sequences in one step add beside what each adds, seconds."""
        return (
            self._mixed_base + (self._mixed_context - self._context) * context_tokens
            if context_tokens
            else 0.0
        )


class ProfileSpeed(FixedSpeed):
    """A profile's own step times as the ``Speed`` a discipline sees: the upper bound of what can be learned.

    Args:
        round_s: what speculative decoding adds to a step with one sequence, seconds.
    """

    def __init__(self, terms: StepTerms, round_s: float = 0.0) -> None:
        self._time = StepTime(terms)
        self._round_s = round_s

    def step_s(self, sequences: float, prefill_tokens: float, context_tokens: float | None = None) -> float:
        # Without ``context_tokens`` it is the time with empty contexts.
        prefills = 1 if prefill_tokens else 0
        decodes = max(0, int(sequences) - prefills)
        time = self._time(decodes, prefills, int(prefill_tokens), 0.0, int(context_tokens or 0))
        return time + self._round_s if decodes else time

    @property
    def token_s(self) -> float:
        return self._time(1, 0, 0, 0.0, 0) + self._round_s

    @property
    def prefill_token_s(self) -> float:
        return max(1e-7, (self._time(0, 1, 257, 0.0, 0) - self._time(0, 1, 1, 0.0, 0)) / 256)

    def mixing_s(self, context_tokens: float) -> float:
        return self._time.mixing_s(context_tokens)


def shipped_step_profiles() -> list[str]:
    """Names of the profiles that come with the package."""
    folder = resources.files(PROFILE_PACKAGE)
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_step_profile(name_or_file: str | Path) -> StepTimeProfile:
    """A shipped profile by name, or any YAML file.

    Raises:
        UnknownName: neither a shipped name nor a file.
        InvalidInput: the file is broken; says file, line and field.
    """
    text = str(name_or_file)
    if text in shipped_step_profiles():
        with resources.as_file(resources.files(PROFILE_PACKAGE) / f"{text}.yaml") as path:
            return _read_step_profile(path)
    path = Path(text)
    if not path.exists():
        raise UnknownName("step-time profile", text, [*shipped_step_profiles(), "or a file"], where="profile")
    return _read_step_profile(path)


def _read_step_profile(path: Path) -> StepTimeProfile:
    try:
        return read_lrtrace_yaml(path).validate(StepTimeProfile)
    except BadInput as error:
        raise InvalidInput(error.message, where=error.where) from error
