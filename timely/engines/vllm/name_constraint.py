"""Keeps the object names of a planner's plans to those in its prompt, on the bits of vLLM's compiled grammar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from timely.engines.vllm.boundaries import vllm_skill_set
from timely.engines.vllm.compatibility import PLACEHOLDER
from timely.engines.vllm.params import TimelyParams
from timely.plans.name_mask import NameMaskGuide, NameMaskVocabulary
from timely.plans.object_names import allowed_object_names, object_names_in


@dataclass(slots=True)
class _VllmConstrainedPlan:
    """One request: the names it may use (None: any), and the text of its plan so far."""

    params: TimelyParams
    names: set[str] | None
    text_bytes: bytearray = field(default_factory=bytearray)
    unread: list[int] = field(default_factory=list)
    """Tokens behind ``text_bytes``."""
    guide: NameMaskGuide | None = None

    def text(self, vocabulary: NameMaskVocabulary) -> bytes:
        for token_id in self.unread:
            self.text_bytes += vocabulary.tokens[token_id]
        self.unread.clear()
        return bytes(self.text_bytes)


class VllmPromptNames:
    """The names of the requests that have any.

    Args:
        scheduler: vLLM's, of whose requests the compiled grammars are read.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._plans: dict[str, _VllmConstrainedPlan] = {}
        self._vocabulary: NameMaskVocabulary | None = None

    def begin(self, request_id: str, params: TimelyParams) -> None:
        if params.names is not None and params.skill_set:
            self._plans[request_id] = _VllmConstrainedPlan(params, set(params.names))

    def wrote(self, request_id: str, token_ids: Sequence[int]) -> None:
        """The plan goes on."""
        plan = self._plans.get(request_id)
        if plan is not None:
            plan.unread += token_ids

    def add_answer(self, request_id: str, value: str) -> None:
        """A robot's answer has come into the context: its names may be used from now on."""
        plan = self._plans.get(request_id)
        if plan is None or plan.names is None:
            return
        answer_names = object_names_in(value)
        plan.names = None if answer_names is None else plan.names | answer_names
        if answer_names is not None and plan.guide is not None:
            plan.guide.add(answer_names)

    def forget(self, request_id: str) -> None:
        self._plans.pop(request_id, None)

    def narrow(self, output: Any, drafts_by_request: Mapping[str, Sequence[int]]) -> None:
        """Take other names away from the rows of a step's grammar bits, in place.

        Args:
            output: vLLM's ``GrammarOutput``: rows in the order of its request ids, one for each drafted token before
                the row of the next token. Since 0.33 each request has the rows of the most drafts.
        """
        request_ids, row = output.structured_output_request_ids, 0
        most_rows = self._scheduler.num_spec_tokens + 1
        has_most_rows = len(output.grammar_bitmask) == most_rows * len(request_ids)
        for request_id in request_ids:
            drafts = list(drafts_by_request.get(request_id, ()))
            guide = self._guide(request_id)
            if guide is not None:
                text = self._plans[request_id].text(guide.vocabulary)
                for count in range(len(drafts) + 1):
                    if count:
                        if drafts[count - 1] == PLACEHOLDER:
                            break
                        text += guide.vocabulary.tokens[drafts[count - 1]]
                    guide.narrow(text.decode(errors="replace"), output.grammar_bitmask[row + count])
            row += most_rows if has_most_rows else len(drafts) + 1

    def forced_text(self, request_id: str, ahead: str) -> str | None:
        """The only text of a name that may follow the plan and ``ahead``; None where the grammar alone decides."""
        guide = self._guide(request_id)
        if guide is None:
            return None
        return guide.forced_text(
            self._plans[request_id].text(guide.vocabulary).decode(errors="replace") + ahead
        )

    def vocabulary(self, request_id: str) -> NameMaskVocabulary | None:
        """The tokens that xgrammar works with; None under another grammar backend: any name then."""
        if self._vocabulary is None:
            grammar_request = self._scheduler.requests[request_id].structured_output_request
            grammar = grammar_request.grammar if grammar_request is not None else None
            context = getattr(grammar, "ctx", None)
            if context is None:
                return None
            self._vocabulary = NameMaskVocabulary(context.tokenizer_info.decoded_vocab)
        return self._vocabulary

    def _guide(self, request_id: str) -> NameMaskGuide | None:
        plan = self._plans.get(request_id)
        if plan is None or plan.names is None:
            return None
        if plan.guide is None:
            vocabulary = self.vocabulary(request_id)
            if vocabulary is None:
                return None
            skill_set = vllm_skill_set(plan.params.skill_set, plan.params.skill_set_fingerprint)
            plan.guide = NameMaskGuide(plan.names, skill_set, vocabulary)
        return plan.guide


def vllm_prompt_names(prompt: str, planner_names: Sequence[str]) -> list[str] | None:
    """What a request tells the scheduler: names of the prompt and those the planner brings along; None: any name."""
    names = allowed_object_names(prompt, planner_names)
    return None if names is None else sorted(names)
