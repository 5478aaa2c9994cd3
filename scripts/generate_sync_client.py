"""Writes the client for threads from the one for asyncio; ``--check`` only compares.

Each ``timely/client/async_*.py`` becomes ``sync_*.py``: the keywords of asyncio go and names change by a table.
"""

import re
import subprocess
import sys
from pathlib import Path

from generated_files import write_or_check

CLIENT = Path(__file__).resolve().parent.parent / "timely" / "client"
MODULES = ("connection", "stream", "stop", "client")

WORDS = {
    r"async (def|for|with) ": r"\1 ",
    r"\bawait ": "",
    r"\bAwaitable\[None\]": "None",
    r"\bCoroutine\[Any, Any, (\S+)\]\]": r"\1]",
    r"\bimport asyncio\b": "import time",
    r"\basyncio\.sleep\b": "time.sleep",
    r"\bAsyncBaseTransport\b": "BaseTransport",
    r"\bAsync(Answer|Client|ClientConnection|ClientEventResponse|TaskStream|ClientStopStream|TimelyClient)\b": r"\1",
    r"\basync_(connection|stream|stop|client)\b": r"sync_\1",
    r"\bStopAsyncIteration\b": "StopIteration",
    r"\b__a(iter|next|enter|exit)__\b": r"__\1__",
    r"\banext\(": "next(",
    r"\ba(iter_raw|close|read)\(": r"\1(",
    "may be shared by the tasks of one loop": "may be shared by threads",
    "from any task of the loop": "from any thread",
}
"""Regular expression -> what replaces it, applied in this order."""


def synchronous(source: str) -> str:
    """The module without asyncio, as ruff formats it."""
    for pattern, replacement in WORDS.items():
        source = re.sub(pattern, replacement, source)
    head, _, body = source.partition("\n")
    note = "# Written by scripts/generate_sync_client.py: change the module of the asyncio client instead.\n"
    return _ruff(["check", "--select", "F401,I", "--fix"], _ruff(["format"], f"{note}{head}\n{body}"))


def _ruff(arguments: list[str], source: str) -> str:
    stdin = ["--quiet", "--stdin-filename", str(CLIENT / "x.py"), "-"]
    command = [sys.executable, "-m", "ruff", *arguments, *stdin]
    return subprocess.run(
        command, input=source, capture_output=True, text=True, check=True, timeout=60
    ).stdout


def main(arguments: list[str]) -> int:
    """Write the modules, or with ``--check`` compare them with what would be written; 0 if all is well."""
    sources = {name: (CLIENT / f"async_{name}.py").read_text() for name in MODULES}
    texts = {CLIENT / f"sync_{name}.py": synchronous(source) for name, source in sources.items()}
    return write_or_check(__file__, texts, check=arguments == ["--check"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
