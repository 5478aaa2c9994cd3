"""Has a model answer many tasks at once, greedily: with or without examples in the prompt, with or without grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from timely.planner import lora
from timely.planner.cases import Case
from timely.planner.pack import prompt_ids
from timely.plans.grammar import grammar
from timely.plans.skillset import SkillSet

BATCH = 32
MAX_NEW_TOKENS = 96


class Answerer:
    """A base model, with an adapter merged in or without.

    Args:
        base: model folder. adapter: adapter folder or None.
    """

    def __init__(self, base: Path, adapter: Path | None, *, threads: int = 1, device: str = "cpu") -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if threads:
            torch.set_num_threads(threads)
        self.device = device
        self.tokenizer: Any = AutoTokenizer.from_pretrained(base)
        self.model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16).to(device).eval()
        if adapter is not None:
            lora.merge(self.model, adapter)
        self._compiler: Any = None

    def compiled(self, skills: SkillSet) -> Any:
        """The skill set's grammar for this tokenizer."""
        import xgrammar

        if self._compiler is None:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self.tokenizer, vocab_size=self.model.config.vocab_size
            )
            self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        return self._compiler.compile_grammar(grammar(skills))

    def valid(self, skills: SkillSet, plan: str) -> bool:
        """The plan is one of the grammar's, whole."""
        import xgrammar

        matcher = xgrammar.GrammarMatcher(self.compiled(skills))
        return bool(matcher.accept_string(plan) and matcher.accept_token(self.tokenizer.eos_token_id))

    def plans(
        self,
        skills: SkillSet,
        cases: Sequence[Case],
        *,
        examples: bool,
        constrained: bool,
        progress: Callable[[int], None] | None = None,
    ) -> list[str]:
        """One plan a case, in order; ``progress`` is told how many are done."""
        prompts = []
        for case in cases:
            prompt = case.prompt(skills, examples=examples)
            prompts.append(prompt_ids(self.tokenizer, prompt.system, prompt.user))
        # Alike in length: less padding.
        order = sorted(range(len(cases)), key=lambda index: len(prompts[index]))
        common = _common(prompts)
        prefix = self._prefix(prompts[0][:common])
        rules = self.compiled(skills) if constrained else None
        found: dict[int, str] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            suffixes = [prompts[index][common:] for index in batch]
            found.update(zip(batch, self._batch(prefix, common, suffixes, rules), strict=True))
            if progress:
                progress(len(found))
        return [found[index] for index in range(len(cases))]

    def _prefix(self, ids: list[int]) -> list[tuple[Any, Any]]:
        """Keys and values of what all prompts begin with, computed once."""
        import torch

        with torch.inference_mode():
            made = self.model.model(input_ids=torch.tensor([ids], device=self.device), use_cache=True)
        return [(layer.keys, layer.values) for layer in made.past_key_values.layers]

    def _batch(
        self, prefix: list[tuple[Any, Any]], common: int, suffixes: list[list[int]], rules: Any
    ) -> list[str]:
        import torch
        from transformers import DynamicCache

        count, width = len(suffixes), max(map(len, suffixes))
        eos = self.tokenizer.eos_token_id
        cache = DynamicCache()
        for index, (keys, values) in enumerate(prefix):
            cache.update(keys.expand(count, -1, -1, -1), values.expand(count, -1, -1, -1), index)
        ids = torch.tensor([[eos] * (width - len(row)) + row for row in suffixes], device=self.device)
        mask = torch.ones(count, common + width, dtype=torch.long, device=self.device)
        for row, suffix in enumerate(suffixes):
            mask[row, common : common + width - len(suffix)] = 0
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, common:]
        guide = _Guide(rules, count, self.model.config.vocab_size) if rules is not None else None
        written: list[list[int]] = [[] for _ in suffixes]
        live = [True] * count
        with torch.inference_mode():
            for _ in range(MAX_NEW_TOKENS):
                hidden = self.model.model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=True,
                ).last_hidden_state[:, -1]
                logits = self.model.lm_head(hidden).float()
                if guide is not None:
                    guide.restrict(logits, live)
                chosen = logits.argmax(-1).tolist()
                for row, token in enumerate(chosen):
                    if not live[row]:
                        continue
                    live[row] = token != eos and not (guide is not None and guide.take(row, token))
                    if token != eos:
                        written[row].append(token)
                if not any(live):
                    break
                ids = torch.tensor([[token] for token in chosen], device=self.device)
                mask = torch.cat([mask, torch.ones(count, 1, dtype=torch.long, device=self.device)], 1)
                positions = positions[:, -1:] + 1
        return [self.tokenizer.decode(tokens, skip_special_tokens=True) for tokens in written]


class _Guide:
    """Keeps each sequence of a batch inside the grammar."""

    def __init__(self, rules: Any, count: int, vocabulary: int) -> None:
        import xgrammar

        self.xgrammar = xgrammar
        self.matchers = [xgrammar.GrammarMatcher(rules) for _ in range(count)]
        self.bits = xgrammar.allocate_token_bitmask(count, vocabulary)

    def restrict(self, logits: Any, live: Sequence[bool]) -> None:
        rows = [row for row, alive in enumerate(live) if alive]
        for row in rows:
            self.matchers[row].fill_next_token_bitmask(self.bits, row)
        self.xgrammar.apply_token_bitmask_inplace(logits, self.bits.to(logits.device), indices=rows)

    def take(self, row: int, token: int) -> bool:
        """Accept the token; True when the sequence is over."""
        self.matchers[row].accept_token(token)
        return bool(self.matchers[row].is_terminated())


def _common(prompts: Sequence[Sequence[int]]) -> int:
    """How many tokens all begin with; each keeps at least one of its own."""
    first = prompts[0]
    most = min(map(len, prompts)) - 1
    return next((at for at in range(most) if any(prompt[at] != first[at] for prompt in prompts)), most)
