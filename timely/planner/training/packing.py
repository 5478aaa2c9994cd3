"""Packs examples with a common start into one sequence, which computes the start once and needs no padding.

Each example sees the common beginning and itself, at the positions it would have alone, so the result is that of
separate sequences at a fraction of the work: the fixed part of a prompt is most of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

from timely.plans.prompt_tokens import plan_prompt_encoder


@dataclass(frozen=True, slots=True)
class TrainingTokens:
    """One example: what the server would send, and the plan with its end."""

    prompt: tuple[int, ...]
    plan: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TrainingPack:
    """One sequence of several examples.

    Attributes:
        ids, positions: length L. spans: where the examples begin after the common part, and L.
        predicts: places whose next token is a plan's. targets: those tokens.
    """

    ids: list[int]
    positions: list[int]
    spans: list[int]
    predicts: list[int]
    targets: list[int]


def training_tokens(tokenizer: Any, system: str, user: str, plan: str) -> TrainingTokens:
    """As the server templates a prompt, and as a model continues it."""
    return TrainingTokens(
        tuple(plan_prompt_encoder(tokenizer).encode(system, user)),
        (*tokenizer.encode(plan, add_special_tokens=False), tokenizer.eos_token_id),
    )


def pack_training_examples(examples: Sequence[TrainingTokens]) -> TrainingPack:
    common = common_training_prefix_tokens([example.prompt for example in examples])
    result = TrainingPack(list(examples[0].prompt[:common]), list(range(common)), [common], [], [])
    for example in examples:
        own = [*example.prompt[common:], *example.plan]
        start = len(result.ids)
        result.ids.extend(own)
        result.positions.extend(range(common, common + len(own)))
        result.spans.append(start + len(own))
        first = start + len(example.prompt) - common
        result.predicts.extend(range(first - 1, first - 1 + len(example.plan)))
        result.targets.extend(example.plan)
    return result


def common_training_prefix_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Length of the common start; each prompt keeps at least one token of its own."""
    first = prompts[0]
    most = min(map(len, prompts)) - 1
    return next((at for at in range(most) if any(prompt[at] != first[at] for prompt in prompts)), most)


def packed_training_inputs(pack: TrainingPack, device: str) -> dict[str, Any]:
    """The model's arguments: ids and positions (1, L); ``spans`` for ``attention``."""
    import torch

    return {
        "input_ids": torch.tensor([pack.ids], device=device),
        "position_ids": torch.tensor([pack.positions], device=device),
        # Its own is made by ``attention``; a mask of four dimensions keeps transformers from making one.
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
        "spans": pack.spans,
    }


def register_training_attention() -> str:
    from transformers import AttentionInterface

    AttentionInterface.register("timely_packed", packed_training_attention)
    return "timely_packed"


def packed_training_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, spans: Sequence[int] = (), **_: Any
) -> tuple[Any, None]:
    """Attention of a pack: the common beginning to itself, each example to the beginning and to itself.

    For such small blocks torch's own CPU kernel takes most of a training step.

    Args:
        query: (1, heads, L, d); key and value (1, kv heads, L, d).
        spans: where the examples begin, and L.
    """
    import torch

    heads, length, size = key.shape[1:]
    groups = query.shape[1] // heads
    lengths = (spans[0], *(end - start for start, end in pairwise(spans)))
    # Split, not sliced: the gradient of a slice is a tensor as long as the whole pack.
    queries = (query.view(heads, groups, length, size) * module.scaling).split(lengths, 2)
    keys, values = key[0].split(lengths, 1), value[0].split(lengths, 1)
    parts = []
    for index, q in enumerate(queries):
        k = torch.cat([keys[0], keys[index]], 1) if index else keys[0]
        v = torch.cat([values[0], values[index]], 1) if index else values[0]
        own, key_count = q.shape[2], k.shape[1]
        rows = q.reshape(heads, groups * own, size)
        scores = (rows @ k.transpose(1, 2)).view(heads, groups, own, key_count)
        weights = scores.masked_fill(_training_causal_mask(own, key_count, q.device), float("-inf")).softmax(
            -1
        )
        parts.append((weights.view(heads, groups * own, key_count) @ v).view(q.shape))
    return torch.cat(parts, 2).view(query.shape).transpose(1, 2).contiguous(), None


@lru_cache(maxsize=256)
def _training_causal_mask(own: int, key_count: int, device: Any) -> Any:
    """What each of the last ``own`` of ``key_count`` places must not see: (own, key_count), boolean."""
    import torch

    return torch.ones(own, key_count, dtype=torch.bool, device=device).triu(1 + key_count - own)
