"""Measure which tokens of the composed plans grammar and names force, and write them for ``timely bench capacity``.

    .venv/bin/python scripts/measure_forced_tokens.py [--check]

With ``--check`` nothing is written; the exit code is 1 if the file differs.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any

from generated_files import write_or_check

from lrtrace.compose.tasks import TASKS, WorkloadPlanVariant, WorkloadTask
from timely.bench.capacity.forced_tokens import FORCED_TOKENS_FILE
from timely.plans.forced_text import MOST_DRAFTS, forced_plan_text
from timely.plans.grammar import plan_grammar
from timely.plans.name_mask import NameMaskGuide, NameMaskVocabulary
from timely.plans.object_names import allowed_object_names
from timely.plans.skill_library import find_skill_set
from timely.plans.skill_set import SkillSet

HEADER = """\
# Tokens of the composed plans that grammar and names force (1) and those that the model chooses (0).
# By skill set and segment, with the packaged tokenizer. Written by scripts/measure_forced_tokens.py.
"""


class ForcedTokens:
    """Walks plans as ``timely serve --jump-ahead`` does, with the packaged model's tokenizer."""

    def __init__(self) -> None:
        import xgrammar
        from transformers import AutoTokenizer

        from timely.engines.vllm.model import resolve_vllm_model

        self._xgrammar = xgrammar
        self._tokenizer = AutoTokenizer.from_pretrained(str(resolve_vllm_model()))
        info = xgrammar.TokenizerInfo.from_huggingface(self._tokenizer)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)
        self._vocabulary = NameMaskVocabulary(info.decoded_vocab)

    def of_plan(self, task: WorkloadTask, variant: WorkloadPlanVariant) -> Iterator[tuple[str, str]]:
        skills = find_skill_set(task.skill_set)
        names = allowed_object_names(f"{variant.scene}\n{task.task}", ())
        guide = None if names is None else NameMaskGuide(names, skills, self._vocabulary)
        marks = self._marks(self._encode("".join(variant.segments)), skills, guide)
        text, end = "", 0
        remaining = iter(marks)
        for segment in variant.segments:
            end += len(segment)
            own_marks = ""
            # A token that spells the end of one segment and the begin of the next belongs to the first.
            while len(text) < end:
                token, mark = next(remaining)
                text += self._vocabulary.text([token])
                own_marks += mark
            yield segment, own_marks

    def _encode(self, text: str) -> list[int]:
        token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return token_ids

    def _marks(
        self, token_ids: list[int], skills: SkillSet, guide: NameMaskGuide | None
    ) -> list[tuple[int, str]]:
        """Token ids with "1" where the drafts of the step are right. Nothing is forced beyond the grammar's end."""
        matcher: Any = self._xgrammar.GrammarMatcher(self._compiler.compile_grammar(plan_grammar(skills)))
        marks: list[tuple[int, str]] = []
        plan, is_inside = "", True
        while len(marks) < len(token_ids):
            drafts: list[int] = []
            if marks and is_inside:
                drafts = self._encode(forced_plan_text(matcher, _forced_name(guide, plan)))
                drafts = drafts[:MOST_DRAFTS]
            for draft in [*drafts, None]:
                if len(marks) == len(token_ids):
                    break
                token = token_ids[len(marks)]
                marks.append((token, "1" if token == draft else "0"))
                is_inside = is_inside and bool(matcher.accept_token(token))
                plan += self._vocabulary.text([token])
                if token != draft:
                    break
        return marks


def _forced_name(guide: NameMaskGuide | None, plan: str) -> Callable[[str], str | None]:
    return lambda ahead: guide.forced_text(plan + ahead) if guide is not None else None


def measure_forced_tokens() -> str:
    measure = ForcedTokens()
    table: dict[str, dict[str, str]] = {}
    for task in TASKS.values():
        segments = table.setdefault(task.skill_set, {})
        for variant in task.variants:
            for segment, marks in measure.of_plan(task, variant):
                # Where another scene leaves a choice, the segment counts with the choice.
                segments[segment] = min(segments.get(segment, marks), marks, key=lambda text: text.count("1"))
    lines = [HEADER]
    for skill_set, segments in table.items():
        lines.append(f"{skill_set}:\n")
        lines += [f'  "{segment}": "{marks}"\n' for segment, marks in sorted(segments.items())]
    return "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    return write_or_check(__file__, {FORCED_TOKENS_FILE: measure_forced_tokens()}, check=check)


if __name__ == "__main__":
    sys.exit(main())
