"""What a robot has in its gripper: said among the words of its state, and heard out of them again.

``RobotState.detail`` is for people; this one thing in it programs need, too, so it is written and read here alone.
"""

from __future__ import annotations

HOLDS = "holds "
MAX_CHARS = 200


def tell(detail: str, holding: str) -> str:
    """``detail`` with what is held, by the name that plans have for it: ``motors are warm; holds red box``."""
    name = " ".join(holding.replace(";", ",").split())[:MAX_CHARS]
    return "; ".join(part for part in (detail, f"{HOLDS}{name}" if name else "") if part)


def held(detail: str) -> str:
    """What ``tell`` said is held; empty if nothing is."""
    said = [part for part in detail.split("; ") if part.startswith(HOLDS)]
    return said[-1].removeprefix(HOLDS) if said else ""
