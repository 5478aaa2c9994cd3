"""Hash of the code and files that a kept result came from, so that a result of others is never mixed in."""

import ast
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import timely

ROOT = Path(timely.__file__).parent
SHARED_CODE = (
    *("core", "disciplines", "engines", "plans", "replay/trace.py", "routing", "../lrtrace"),
    *("../robot_profiles", "../skills"),
)
"""What every result depends on: disciplines, simulator, routers, profiles, robots and generators of workloads."""
NO_RESULT = ("engines/vllm", "../lrtrace/cli", "../lrtrace/fit", "../lrtrace/record")
"""Parts of these that no simulated result depends on."""

PRESENTATION = ("checkpoints", "code_hash", "plots", "claims", "run_context")
"""Benchmark modules that keep, judge or draw results: no result depends on them."""


def benchmark_code_hash(function: Callable[..., Any]) -> str:
    """Hash of the code behind a piece: the shared code, and the benchmark modules that its module imports.

    Comments and docstrings do not count. Each file is read once a process.
    """
    return _bench_code_of(getattr(function, "__module__", ""))


@cache
def benchmark_files_hash(path: str) -> str:
    """Hash of the file, or of all files of the folder, that an argument names; empty where it names none.

    A folder has a separator in its path: a word such as ``timely`` is a discipline, also beside a folder of that name.
    Each is read once a process.
    """
    place = Path(path)
    if not os.path.isfile(path) and not (os.sep in path and os.path.isdir(path)):
        return ""
    digest = hashlib.sha256()
    for file in [place] if place.is_file() else sorted(place.rglob("*")):
        if file.is_file():
            digest.update(str(file.relative_to(place)).encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


@cache
def _bench_code_of(module: str) -> str:
    digest = hashlib.sha256(_shared_bench_code())
    for name in sorted(_bench_modules(module)):
        digest.update(_bench_code_without_comments(Path(str(sys.modules[name].__file__))))
    return digest.hexdigest()[:16]


def _bench_modules(module: str) -> set[str]:
    """The module and what it imports from the benchmarks, directly or not."""
    modules: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in modules or not name.startswith("timely.bench.") or name not in sys.modules:
            continue
        if name.rpartition(".")[2] in PRESENTATION:
            continue
        modules.add(name)
        tree = ast.parse(Path(str(sys.modules[name].__file__)).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return modules


@cache
def _shared_bench_code() -> bytes:
    digest = hashlib.sha256()
    for path in sorted(_shared_bench_code_files()):
        digest.update(_bench_code_without_comments(path))
    return digest.digest()


def _shared_bench_code_files() -> Iterator[Path]:
    left_out = [ROOT / name for name in NO_RESULT]
    for name in SHARED_CODE:
        place = ROOT / name
        for path in [place] if place.is_file() else place.rglob("*"):
            if path.suffix in {".py", ".yaml"} and not any(part in path.parents for part in left_out):
                yield path


def _bench_code_without_comments(path: Path) -> bytes:
    """A Python file without comments and docstrings; any other file as it is."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text.encode()
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            code = [
                line
                for line in body
                if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            ]
            node.body = code  # type: ignore[attr-defined]
    return ast.dump(tree).encode()
