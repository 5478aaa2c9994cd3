"""Files that a script generates: it writes them, or with ``--check`` names those that are out of date."""

import sys
from collections.abc import Mapping
from pathlib import Path


def write_or_check(script: str, texts: Mapping[Path, str], *, check: bool) -> int:
    """Write the files that differ from their texts, or with ``check`` name them on standard error.

    Returns:
        The exit code: 1 if a file that is only checked differs.
    """
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        if check:
            print(f"{path}: out of date; run python scripts/{Path(script).name}", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(texts[path])
    return int(check and bool(stale))
