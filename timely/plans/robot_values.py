"""Writes the value of a blocking skill into the context of the plan that waits for it."""

from timely.plans.untrusted_text import one_prompt_line


def plan_value_text(value: str) -> str:
    """The value as a comment behind the statement that waits for it: `` # red box, cup`` and a line break.

    The model reads the comment, but it is no part of the plan: neither segmenter nor grammar sees it. The value is
    one line without field labels, so that it cannot look like a statement or a field.
    """
    return f" # {' '.join(one_prompt_line(value).split())}\n"
