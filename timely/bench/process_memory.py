"""Memory of a process that a benchmark watches."""

import os
from pathlib import Path


def resident_memory_mb(pid: int) -> float:
    """Of a process and its descendants, MB."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(
        resident_memory_mb(int(child)) for child in children
    )
