"""The text of a plan that grammar and object names leave no choice about ("jump ahead")."""

import re
from collections.abc import Callable
from typing import Any

MOST_DRAFTS = 4
"""Draft tokens a step: the packaged planner's plans have at most four forced tokens in a row that it accepts."""

_BOUNDARY = re.compile("[;{}]")
"""Characters that may end a segment."""


def forced_plan_text(matcher: Any, forced_name: Callable[[str], str | None]) -> str:
    """The only text that may follow a plan, up to the next possible end of a segment; "" if there is a choice.

    Args:
        matcher: xgrammar's ``GrammarMatcher``, which has accepted the plan so far; it stays as it is.
        forced_name: returns the only text of a name that may follow the plan and its argument, None where the grammar
            alone decides.
    """
    if matcher.is_terminated():
        return ""
    text, ahead = "", None
    while True:
        part = forced_name(text)
        if part is None:
            part = (ahead or matcher).find_jump_forward_string()
        boundary = _BOUNDARY.search(part)
        if boundary is not None:
            part = part[: boundary.end()]
        ahead = ahead or matcher.fork()
        if not part or not ahead.accept_string(part):
            return text
        text += part
        if boundary is not None:
            return text
