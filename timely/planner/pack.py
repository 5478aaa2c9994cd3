"""Puts many examples that begin alike into one sequence: the common beginning is computed once, nothing is padded.

Each example sees the common beginning and itself, at the positions it would have alone, so the result is that of
separate sequences at a fraction of the work: the fixed part of a prompt is most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

IGNORE = -100


@dataclass(frozen=True, slots=True)
class Tokens:
    """One example: what the server would send, and the plan with its end."""

    prompt: tuple[int, ...]
    plan: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pack:
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


def tokens_of(tokenizer: Any, system: str, user: str, plan: str) -> Tokens:
    """As the server templates a prompt, and as a model continues it."""
    return Tokens(
        tuple(prompt_ids(tokenizer, system, user)),
        (*tokenizer.encode(plan, add_special_tokens=False), tokenizer.eos_token_id),
    )


def prompt_ids(tokenizer: Any, system: str, user: str) -> list[int]:
    """The chat template over the fixed part and the task, exactly as the engine does it."""
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": user})
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return list(tokenizer.encode(text, add_special_tokens=False))


def pack(examples: Sequence[Tokens]) -> Pack:
    """All of them in one sequence."""
    common = _common([example.prompt for example in examples])
    result = Pack(list(examples[0].prompt[:common]), list(range(common)), [common], [], [])
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


def _common(prompts: Sequence[tuple[int, ...]]) -> int:
    """How many tokens all begin with; each keeps at least one of its own."""
    first = prompts[0]
    most = min(map(len, prompts)) - 1
    for index in range(most):
        if any(prompt[index] != first[index] for prompt in prompts):
            return index
    return most


def inputs(packed: Pack, device: str) -> dict[str, Any]:
    """The model's arguments: ids and positions (1, L); ``spans`` for ``attention``."""
    import torch

    return {
        "input_ids": torch.tensor([packed.ids], device=device),
        "position_ids": torch.tensor([packed.positions], device=device),
        # Its own is made by ``attention``; a mask of four dimensions keeps transformers from making one.
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
        "spans": packed.spans,
    }


def register_attention() -> str:
    """Make ``attention`` known to transformers; the name to ask for it by."""
    from transformers import AttentionInterface

    AttentionInterface.register("timely_packed", attention)
    return "timely_packed"


def attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, spans: Sequence[int] = (), **_: Any
) -> tuple[Any, None]:
    """Attention of a pack: the common beginning to itself, each example to the beginning and to itself.

    Args:
        query: (1, heads, L, d); key and value (1, kv heads, L, d).
        spans: where the examples begin, and L.
    """
    import torch

    heads = key.shape[1]
    # Written out: torch's own kernel for CPUs takes most of a training step for blocks as small as these.
    grouped = query.view(heads, -1, *query.shape[2:]) * module.scaling
    key, value = key[0], value[0]

    def attend(q: Any, k: Any, v: Any, before: int) -> Any:
        own = q.shape[2]
        hidden = torch.ones(own, before + own, dtype=torch.bool, device=q.device).triu(before + 1)
        scores = (q.reshape(heads, -1, q.shape[3]) @ k.transpose(1, 2)).view(heads, -1, own, before + own)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return (weights.view(heads, -1, before + own) @ v).view(q.shape)

    common = spans[0]
    kc, vc = key[:, :common], value[:, :common]
    parts = [attend(grouped[:, :, :common], kc, vc, 0)] if common else []
    for start, end in pairwise(spans):
        k = torch.cat([kc, key[:, start:end]], 1)
        v = torch.cat([vc, value[:, start:end]], 1)
        parts.append(attend(grouped[:, :, start:end], k, v, common))
    joined = torch.cat(parts, 2).view(1, -1, *query.shape[2:])
    return joined.transpose(1, 2).contiguous(), None
