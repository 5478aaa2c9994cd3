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


def training_tokens(tokenizer: Any, system: str, user: str, plan: str) -> Tokens:
    """As the server templates a prompt, and as a model continues it."""
    return Tokens(
        tuple(training_prompt_ids(tokenizer, system, user)),
        (*tokenizer.encode(plan, add_special_tokens=False), tokenizer.eos_token_id),
    )


def training_prompt_ids(tokenizer: Any, system: str, user: str) -> list[int]:
    """Token ids of the fixed part and the task under the chat template, equal to the engine's."""
    return plan_prompt_encoder(tokenizer).encode(system, user)


def pack_examples(examples: Sequence[Tokens]) -> Pack:
    common = common_training_prefix_tokens([example.prompt for example in examples])
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


def common_training_prefix_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Length of the common start; each prompt keeps at least one token of its own."""
    first = prompts[0]
    most = min(map(len, prompts)) - 1
    return next((at for at in range(most) if any(prompt[at] != first[at] for prompt in prompts)), most)


def packed_inputs(pack: Pack, device: str) -> dict[str, Any]:
    """The model's arguments: ids and positions (1, L); ``spans`` for ``attention``."""
    import torch

    return {
        "input_ids": torch.tensor([pack.ids], device=device),
        "position_ids": torch.tensor([pack.positions], device=device),
        # Its own is made by ``attention``; a mask of four dimensions keeps transformers from making one.
        "attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device),
        "spans": pack.spans,
    }


def register_attention() -> str:
    from transformers import AttentionInterface

    AttentionInterface.register("timely_packed", packed_attention)
    return "timely_packed"


def packed_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, spans: Sequence[int] = (), **_: Any
) -> tuple[Any, None]:
    """Attention of a pack: the common beginning to itself, each example to the beginning and to itself.

    Args:
        query: (1, heads, L, d); key and value (1, kv heads, L, d).
        spans: where the examples begin, and L.
    """
    lengths = (spans[0], *(end - start for start, end in pairwise(spans)))
    output = _attend().apply(query, key[0], value[0], module.scaling, lengths)
    return output, None


@lru_cache(maxsize=1)
def _attend() -> Any:
    """The attention of a pack as one function, forwards and backwards.

    For such small blocks torch's own CPU kernel takes most of a training step. Its automatic gradient makes, for
    every slice, a tensor as long as the whole pack, nearly all zeros.
    """
    import torch

    class Attend(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, query: Any, key: Any, value: Any, scaling: float, lengths: Any) -> Any:
            heads, length, size = key.shape
            groups = query.shape[1] // heads
            queries = (query.view(heads, groups, length, size) * scaling).split(lengths, 2)
            keys, values = key.split(lengths, 1), value.split(lengths, 1)
            tensors, parts = [], []
            for index, q in enumerate(queries):
                own, before = lengths[index], lengths[0] if index else 0
                k, v = keys[index], values[index]
                if before:
                    k, v = torch.cat([keys[0], k], 1), torch.cat([values[0], v], 1)
                rows = q.reshape(heads, groups * own, size)
                scores = (rows @ k.transpose(1, 2)).view(heads, groups, own, before + own)
                scores[..., before:].masked_fill_(_causal_mask(own, q.device), float("-inf"))
                weights = scores.softmax(-1).view(heads, groups * own, before + own)
                parts.append((weights @ v).view(q.shape))
                tensors += [rows, k, v, weights]
            context.save_for_backward(*tensors)
            context.scaling, context.lengths = scaling, lengths
            return torch.cat(parts, 2).view(query.shape).transpose(1, 2).contiguous()

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            tensors, lengths = context.saved_tensors, context.lengths
            shape = gradients[0].transpose(1, 2).shape
            heads, size = tensors[1].shape[0], shape[3]
            groups = shape[1] // heads
            slices = gradients[0].transpose(1, 2).view(heads, groups, *shape[2:]).split(lengths, 2)
            shared_k, shared_v = torch.zeros_like(tensors[1]), torch.zeros_like(tensors[2])
            g_queries, g_keys, g_values = [], [], []
            # The last first, as automatic differentiation adds them up.
            for index in reversed(range(len(lengths))):
                rows, k, v, weights = tensors[4 * index : 4 * index + 4]
                own, before = lengths[index], lengths[0] if index else 0
                g = slices[index].reshape(heads, groups * own, size)
                # Where a weight is zero this is, too: what was hidden stays so.
                g_scores = torch._softmax_backward_data(g @ v.transpose(1, 2), weights, -1, weights.dtype)
                g_k = (rows.transpose(1, 2) @ g_scores).transpose(1, 2)
                g_v = weights.transpose(1, 2) @ g
                shared_k += g_k[:, :before] if index else g_k
                shared_v += g_v[:, :before] if index else g_v
                g_queries.append((g_scores @ k).view(heads, groups, own, size))
                g_keys.append(g_k[:, before:] if index else shared_k)
                g_values.append(g_v[:, before:] if index else shared_v)
            g_query = torch.cat(g_queries[::-1], 2) * context.scaling
            g_key, g_value = torch.cat(g_keys[::-1], 1), torch.cat(g_values[::-1], 1)
            return g_query.view(shape), g_key, g_value, None, None

    return Attend


@lru_cache(maxsize=256)
def _causal_mask(own: int, device: Any) -> Any:
    """What each of so many places must not see of themselves: (own, own), boolean."""
    import torch

    return torch.ones(own, own, dtype=torch.bool, device=device).triu(1)
