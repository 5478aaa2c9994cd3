"""Lets a model plan many tasks at once, greedily, with or without examples and grammar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely.planner.cases.case import Case
from timely.planner.training import lora
from timely.planner.training.packing import common_training_prefix_tokens, training_prompt_ids
from timely.plans.grammar import plan_grammar
from timely.plans.name_mask import NameGuide, Vocabulary
from timely.plans.object_names import allowed_names
from timely.plans.skill_set import SkillSet

BATCH = 64
MAX_NEW_TOKENS = 96


class Answerer:
    """A base model, with or without a merged adapter.

    Args:
        base: model folder.
        adapter: adapter folder or None.
        names: the planner's own names by skill set (``Card.names``); None allows any name.
    """

    def __init__(
        self,
        base: Path,
        adapter: Path | None,
        *,
        names: Mapping[str, Sequence[str]] | None = None,
        threads: int = 1,
        device: str = "cpu",
    ) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if threads:
            torch.set_num_threads(threads)
        self.device = device
        self.names = names
        self.tokenizer: Any = AutoTokenizer.from_pretrained(base)
        name = register_attention()
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.bfloat16, attn_implementation=name
        )
        self.model.to(device).eval()
        if adapter is not None:
            lora.merge_lora_adapter(self.model, adapter)
        self._compiler: Any = None
        self._vocabulary: Vocabulary | None = None

    def compile_grammar(self, skills: SkillSet) -> Any:
        import xgrammar

        if self._compiler is None:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self.tokenizer, vocab_size=self.model.config.vocab_size
            )
            self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
            self._vocabulary = Vocabulary(info.decoded_vocab)
        return self._compiler.compile_grammar(plan_grammar(skills))

    def plans(
        self,
        skills: SkillSet,
        cases: Sequence[Case],
        *,
        examples: bool,
        constrained: bool,
        named: bool = False,
    ) -> list[str]:
        """One plan for each case, in order.

        Args:
            constrained: decode under the grammar.
            named: allow only the prompt's names too, as served.
        """
        case_prompts = [case.prompt(skills, examples=examples) for case in cases]
        prompts = [training_prompt_ids(self.tokenizer, prompt.system, prompt.user) for prompt in case_prompts]
        # A batch of similar lengths needs less padding.
        order = sorted(range(len(cases)), key=lambda index: len(prompts[index]))
        common = common_training_prefix_tokens(prompts)
        prefix = self._prefix(prompts[0][:common])
        rules = self.compile_grammar(skills) if constrained else None
        guides = [
            self._names(skills, prompt.user) if constrained and named else None for prompt in case_prompts
        ]
        plans: dict[int, str] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            suffixes = [prompts[index][common:] for index in batch]
            batch_guides = [guides[index] for index in batch]
            plans.update(zip(batch, self._batch(prefix, common, suffixes, rules, batch_guides), strict=True))
        return [plans[index] for index in range(len(cases))]

    def _names(self, skills: SkillSet, prompt: str) -> NameGuide | None:
        """The guide that the server would make from the prompt's names; None if any name is allowed."""
        if self.names is None or skills.name not in self.names or self._vocabulary is None:
            return None
        names = allowed_names(prompt, self.names[skills.name])
        return None if names is None else NameGuide(names, skills, self._vocabulary)

    def _prefix(self, ids: list[int]) -> SharedPrefix:
        """Keys and values of the common start of all prompts, computed once."""
        import torch

        shared = SharedPrefix([], torch.ones(1, 0, dtype=torch.bool, device=self.device))
        if ids:
            self._forward(
                torch.tensor([ids], device=self.device),
                torch.arange(len(ids), device=self.device)[None],
                shared,
            )
        return shared

    def _forward(self, ids: Any, positions: Any, shared: SharedPrefix) -> Any:
        """Last hidden states (B, T, hidden). Keys and values stay in ``shared``."""
        import torch

        with torch.inference_mode():
            shared.begin(ids.shape[1])
            # A mask of four dimensions keeps transformers from making its own.
            mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.device)
            outputs = self.model.model(
                input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False, shared=shared
            )
            return outputs.last_hidden_state

    def _batch(
        self,
        prefix: SharedPrefix,
        common: int,
        suffixes: list[list[int]],
        rules: Any,
        names: Sequence[NameGuide | None],
    ) -> list[str]:
        import torch

        count, width = len(suffixes), max(map(len, suffixes))
        eos = self.tokenizer.eos_token_id
        padding = torch.tensor([width - len(row) for row in suffixes], device=self.device)
        ids = torch.tensor([[eos] * (width - len(row)) + row for row in suffixes], device=self.device)
        columns = torch.arange(width, device=self.device)[None]
        shared = SharedPrefix(prefix.own, columns >= padding[:, None])
        positions = common + (columns - padding[:, None]).clamp(min=0)
        guide = _Guide(rules, count, self.model.config.vocab_size) if rules is not None else None
        token_rows: list[list[int]] = [[] for _ in suffixes]
        live = [True] * count
        for _ in range(MAX_NEW_TOKENS):
            hidden_states = self._forward(ids, positions, shared)[:, -1]
            with torch.inference_mode():
                logits = self.model.lm_head(hidden_states).float()
            if guide is not None:
                guide.restrict(logits, live, names, token_rows)
            next_tokens = logits.argmax(-1).tolist()
            for row, token in enumerate(next_tokens):
                if not live[row]:
                    continue
                live[row] = token != eos and not (guide is not None and guide.take(row, token))
                if token != eos:
                    token_rows[row].append(token)
            if not any(live):
                break
            ids = torch.tensor([[token] for token in next_tokens], device=self.device)
            positions = positions[:, -1:] + 1
        return [self.tokenizer.decode(tokens, skip_special_tokens=True) for tokens in token_rows]


@dataclass(slots=True)
class SharedPrefix:
    """Keys and values of a batch with a common start: the start once, the rest for each sequence.

    Attributes:
        prefix: per layer, keys and values (1, kv heads, P, d). real: (B, T), false where ``own`` is padding.
        own: per layer, keys and values (B, kv heads, T, d), growing.
    """

    prefix: list[tuple[Any, Any]]
    real: Any
    own: list[tuple[Any, Any]] = field(default_factory=list)
    mask: Any = None

    def begin(self, new: int) -> None:
        """Set the attention mask of ``own`` before ``new`` tokens of each sequence are computed."""
        import torch

        had = self.own[0][0].shape[2] if self.own else 0
        extra = had + new - self.real.shape[1]
        if extra > 0:
            rows = self.real.shape[0]
            self.real = torch.cat(
                [self.real, torch.ones(rows, extra, dtype=torch.bool, device=self.real.device)], 1
            )
        causal = torch.ones(new, had + new, dtype=torch.bool, device=self.real.device).tril(had)
        mask = ~(causal[None] & self.real[:, None, :])
        # A padded column looks at itself, so that no row is empty: its result is not used.
        mask[:, torch.arange(new), had + torch.arange(new)] = False
        self.mask = mask

    def take(self, layer: int, key: Any, value: Any) -> tuple[Any, Any]:
        """Append to ``own`` and return all of it."""
        import torch

        if layer == len(self.own):
            self.own.append((key, value))
        else:
            before = self.own[layer]
            self.own[layer] = (torch.cat([before[0], key], 2), torch.cat([before[1], value], 2))
        return self.own[layer]


def register_attention() -> str:
    from transformers import AttentionInterface

    AttentionInterface.register("timely_shared", shared_attention)
    return "timely_shared"


def shared_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, shared: SharedPrefix, **_: Any
) -> tuple[Any, None]:
    """Attention to a common start, stored once, and to the rest of each sequence.

    Args:
        query: (B, heads, T, d); key and value (B, kv heads, T, d).
    """
    import torch

    batch, heads, new, width = query.shape
    kv = key.shape[1]
    key, value = shared.take(module.layer_idx, key, value)
    # (kv, B * group * T, d): with the common beginning it is one product a head, not one a sequence.
    scaled_query = query * module.scaling
    grouped_query = scaled_query.view(batch, kv, heads // kv, new, width)
    own = (grouped_query.reshape(batch, kv, -1, width) @ key.transpose(2, 3)).view(
        batch, kv, heads // kv, new, -1
    )
    own = own.masked_fill(shared.mask[:, None, None], float("-inf"))
    if not shared.prefix:
        weights = own.softmax(-1)
        result = (weights.view(batch, kv, -1, own.shape[-1]) @ value).view(batch, heads, new, width)
        return result.transpose(1, 2).contiguous(), None
    pk, pv = shared.prefix[module.layer_idx]
    flat = grouped_query.transpose(0, 1).reshape(kv, -1, width)
    first = (flat @ pk[0].transpose(1, 2)).view(kv, batch, heads // kv, new, -1).transpose(0, 1)
    weights = torch.cat([first, own], -1).softmax(-1)
    common = first.shape[-1]
    part = weights[..., :common].transpose(0, 1).reshape(kv, -1, common) @ pv[0]
    part = part.view(kv, batch, heads // kv, new, width).transpose(0, 1)
    rest = (weights[..., common:].reshape(batch, kv, -1, own.shape[-1]) @ value).view(part.shape)
    result = (part + rest).reshape(batch, heads, new, width)
    return result.transpose(1, 2).contiguous(), None


class _Guide:
    """Keeps each sequence of a batch inside the grammar."""

    def __init__(self, rules: Any, count: int, vocabulary: int) -> None:
        import xgrammar

        self.xgrammar = xgrammar
        self.matchers = [xgrammar.GrammarMatcher(rules) for _ in range(count)]
        self.bits = xgrammar.allocate_token_bitmask(count, vocabulary)

    def restrict(
        self,
        logits: Any,
        live: Sequence[bool],
        names: Sequence[NameGuide | None],
        token_rows: Sequence[Sequence[int]],
    ) -> None:
        """Mask the tokens that the grammar or the names do not allow next."""
        rows = [row for row, alive in enumerate(live) if alive]
        for row in rows:
            self.matchers[row].fill_next_token_bitmask(self.bits, row)
            guide = names[row]
            if guide is not None:
                guide.narrow(guide.vocabulary.text(token_rows[row]), self.bits[row].numpy())
        self.xgrammar.apply_token_bitmask_inplace(logits, self.bits.to(logits.device), indices=rows)

    def take(self, row: int, token: int) -> bool:
        """Accept the token; True if the sequence is over."""
        self.matchers[row].accept_token(token)
        return bool(self.matchers[row].is_terminated())
