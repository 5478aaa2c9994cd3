"""Lets a model plan many tasks at once, greedily, with or without examples and grammar."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from timely.planner.cases.case import PlannerCase
from timely.planner.training import lora
from timely.planner.training.checks import check_planner_device
from timely.planner.training.compute_type import compute_type
from timely.planner.training.packing import common_training_prefix_tokens
from timely.plans.grammar import plan_grammar
from timely.plans.name_mask import NameMaskGuide, NameMaskVocabulary
from timely.plans.object_names import allowed_object_names
from timely.plans.prompt_tokens import plan_prompt_encoder
from timely.plans.skill_set import SkillSet

BATCH = 32
MAX_NEW_TOKENS = 96


class PlannerAnswerer:
    """A base model, with or without a merged adapter.

    Args:
        base: model folder.
        adapter: adapter folder or None.
        names: the planner's own names by skill set (``PlannerCard.names``); None allows any name.

    Raises:
        InvalidInput: torch does not have the device.
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
        check_planner_device(device)
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if threads:
            torch.set_num_threads(threads)
        self.device = device
        self.names = names
        self.tokenizer: Any = AutoTokenizer.from_pretrained(base)
        name = register_planner_attention()
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.bfloat16, attn_implementation=name
        )
        if adapter is not None:
            lora.merge_lora_adapter(self.model, adapter)
        # Merged in bfloat16, as in the folder that is served.
        self.model.to(device, getattr(torch, compute_type(device))).eval()
        self._compiler: Any = None
        self._vocabulary: NameMaskVocabulary | None = None

    def compile_grammar(self, skills: SkillSet) -> Any:
        import xgrammar

        if self._compiler is None:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self.tokenizer, vocab_size=self.model.config.vocab_size
            )
            self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
            self._vocabulary = NameMaskVocabulary(info.decoded_vocab)
        return self._compiler.compile_grammar(plan_grammar(skills))

    def plans(
        self,
        skills: SkillSet,
        cases: Sequence[PlannerCase],
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
        encoder = plan_prompt_encoder(self.tokenizer)
        prompts = [encoder.encode(prompt.system, prompt.user) for prompt in case_prompts]
        # A batch of similar lengths needs less padding.
        order = sorted(range(len(cases)), key=lambda index: len(prompts[index]))
        prefix = self._prefix(prompts[0][: common_training_prefix_tokens(prompts)])
        rules = self.compile_grammar(skills) if constrained else None
        guides = [
            self._names(skills, prompt.user) if constrained and named else None for prompt in case_prompts
        ]
        plans: dict[int, str] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            answers = self._batch(
                prefix, [prompts[index] for index in batch], rules, [guides[index] for index in batch]
            )
            plans.update(zip(batch, answers, strict=True))
        return [plans[index] for index in range(len(cases))]

    def _names(self, skills: SkillSet, prompt: str) -> NameMaskGuide | None:
        """The guide that the server would make from the prompt's names; None if any name is allowed."""
        if self.names is None or skills.name not in self.names or self._vocabulary is None:
            return None
        names = allowed_object_names(prompt, self.names[skills.name])
        return None if names is None else NameMaskGuide(names, skills, self._vocabulary)

    def _prefix(self, ids: list[int]) -> Any:
        """Keys and values of the common start of all prompts, computed once; None without one."""
        import torch

        if not ids:
            return None
        with torch.inference_mode():
            return self.model.model(torch.tensor([ids], device=self.device), use_cache=True).past_key_values

    def _batch(
        self, prefix: Any, prompts: Sequence[list[int]], rules: Any, names: Sequence[NameMaskGuide | None]
    ) -> list[str]:
        import torch

        common = 0 if prefix is None else prefix.get_seq_length()
        width = max(map(len, prompts))
        eos = self.tokenizer.eos_token_id
        # Padded behind the common start, whose keys and values stand in front of all.
        rows = [[*prompt[:common], *[eos] * (width - len(prompt)), *prompt[common:]] for prompt in prompts]
        mask = [
            [at < common or at >= common + width - len(prompt) for at in range(width)] for prompt in prompts
        ]
        cache = copy.deepcopy(prefix)
        if cache is not None:
            cache.batch_repeat_interleave(len(prompts))
        with torch.inference_mode():
            answers = self.model.generate(
                torch.tensor(rows, device=self.device),
                attention_mask=torch.tensor(mask, dtype=torch.long, device=self.device),
                past_key_values=cache,
                max_new_tokens=MAX_NEW_TOKENS,
                do_sample=False,
                eos_token_id=eos,
                pad_token_id=eos,
                logits_processor=[] if rules is None else [_PlannerGuide(rules, names, width)],
            )
        plans: list[str] = self.tokenizer.batch_decode(answers[:, width:], skip_special_tokens=True)
        return plans


def register_planner_attention() -> str:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register("timely_grouped", planner_grouped_attention)
    AttentionMaskInterface.register("timely_grouped", eager_mask)
    return "timely_grouped"


def planner_grouped_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float, **_: Any
) -> tuple[Any, None]:
    """Attention with one product for the heads that share keys; torch's own copies the keys for each head.

    Args:
        query: (B, heads, T, d); key and value (B, kv heads, L, d); attention_mask (B, 1, T, L).
    """
    batch, heads, new, width = query.shape
    shared = (batch, key.shape[1], -1)
    scores = (query * scaling).reshape(*shared, width) @ key.transpose(2, 3)
    weights = (scores.view(*shared, new, key.shape[2]) + attention_mask[:, :, None]).softmax(-1)
    result = weights.view(*shared, key.shape[2]) @ value
    return result.view(batch, heads, new, width).transpose(1, 2).contiguous(), None


class _PlannerGuide:
    """Keeps each sequence of a batch inside the grammar, and to the names that its guide allows."""

    def __init__(self, rules: Any, names: Sequence[NameMaskGuide | None], width: int) -> None:
        import xgrammar

        self.xgrammar = xgrammar
        self.matchers = [xgrammar.GrammarMatcher(rules) for _ in names]
        self.names = names
        self.width = width

    def __call__(self, ids: Any, logits: Any) -> Any:
        """Mask the tokens that may not come next; ``ids`` are the prompts, ``width`` tokens each, and the answers."""
        bits = self.xgrammar.allocate_token_bitmask(*logits.shape)
        live = []
        for row, tokens in enumerate(ids[:, self.width :].tolist()):
            matcher, guide = self.matchers[row], self.names[row]
            if tokens and not matcher.is_terminated():
                matcher.accept_token(tokens[-1])
            if matcher.is_terminated():
                continue
            live.append(row)
            matcher.fill_next_token_bitmask(bits, row)
            if guide is not None:
                guide.narrow(guide.vocabulary.text(tokens), bits[row].numpy())
        self.xgrammar.apply_token_bitmask_inplace(logits, bits.to(logits.device), indices=live)
        return logits
