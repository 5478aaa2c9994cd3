"""What the documents say: every command they show exists with its options, every file they point to is there."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest import mock

import pytest

from lrtrace.cli import run_lrtrace_command
from timely.cli.main import run_timely_command
from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import Discipline, StepLimits
from timely.disciplines.registry import PLUGIN_GROUP
from timely.emulators.cli import run_emulator_command
from timely.engines.step_time.learned import FixedSpeed

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")])
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "timely": run_timely_command,
    "timely-emulate": run_emulator_command,
    "lrtrace": run_lrtrace_command,
}
FOREIGN = {
    *(
        "apt-get",
        "cd",
        "colcon",
        "curl",
        "export",
        "git",
        "kill",
        "pip",
        "python",
        "python3",
        "ros2",
        "rm",
        "sleep",
    ),
    *("source", "uv", "vllm", ".ci/run", ".venv-robots/bin/python"),
}
BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
ASSIGNMENT = re.compile(r"\w+=.*")


def commands_in(text: str) -> list[list[str]]:
    """Every command of the shell blocks, as words; lines of output in `console` blocks are left out."""
    commands: list[list[str]] = []
    for block in BLOCK.finditer(text):
        console = block.group().startswith("```console")
        for line in block.group(1).replace("\\\n", " ").splitlines():
            if console and not line.startswith("$ "):
                continue
            for part in re.split(r"\s(?:&&|\|\||\||;)\s", line.removeprefix("$ ")):
                words = shlex.split(part.rstrip(" &"), comments=True)
                while words and ASSIGNMENT.fullmatch(words[0]):
                    words.pop(0)
                if words:
                    commands.append(words)
    return commands


@cache
def targets() -> frozenset[str]:
    """The targets of the Makefile."""
    return frozenset(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@cache
def help_of(words: tuple[str, ...]) -> tuple[int, str]:
    """Exit status and text of ``words --help``, run here: a process each would import everything again."""
    said = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "200", "TERM": "dumb"}),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        status = PROGRAMS[words[0]]([*words[1:], "--help"])
    return status, said.getvalue()


def complaint(words: list[str]) -> str:
    """What is wrong with a command, or nothing."""
    program = words[0].removeprefix(".venv/bin/")
    line = " ".join(words)
    if program == "make":
        wrong = [
            word
            for word in words[1:]
            if not word.startswith("-") and "=" not in word and word not in targets()
        ]
        return f"`{line}`: no such target {wrong}" if wrong else ""
    if program not in PROGRAMS:
        return "" if program in FOREIGN else f"`{line}`: what is {program}?"
    leading = []
    for word in words[1:]:
        if word.startswith("-"):
            break
        leading.append(word)
    status, help_text = help_of((program, *leading))
    if status != 0:
        return f"`{line}`: {help_text.strip()}"
    options = [word.partition("=")[0] for word in words[1:] if re.fullmatch(r"--?[a-zA-Z][\w-]*(=.*)?", word)]
    unknown = [option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", help_text)]
    passes_on = "vLLM" in help_text and leading[:1] == [
        "serve"
    ]  # its other options are those of vLLM's own command
    return f"`{line}`: no option {unknown}" if unknown and not passes_on else ""


@pytest.mark.process
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_exist(document: Path) -> None:
    wrong = [finding for words in commands_in(document.read_text()) if (finding := complaint(words))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_lead_somewhere(document: Path) -> None:
    places = [link.partition("#")[0] for link in LINK.findall(document.read_text()) if "://" not in link]
    dead = [place for place in places if place and not (document.parent / place).exists()]
    assert not dead, f"{document.name} points to {dead}"


def test_the_two_commands_are_on_the_first_screen() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:50])
    shown = [" ".join(words) for words in commands_in(first_screen + "\n```\n")]
    assert {"make demo", "make test"} <= set(shown)


def test_the_site_leads_to_every_document() -> None:
    documents = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    experiments = {name for name in documents if re.match(r"experiments/\d", name)}
    pages = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert pages == documents - experiments
    index = ROOT / "docs" / "experiments" / "index.md"
    assert {f"experiments/{link}" for link in LINK.findall(index.read_text())} == experiments


@pytest.mark.process
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(BIN / "mkdocs"), "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "reference" / "client.html").is_file()


def test_the_help_of_make_lists_every_target() -> None:
    listed = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert set(re.findall(r"^  make ([a-z-]+) ", listed, re.MULTILINE)) == targets()


def test_bad_commands_are_found() -> None:
    lines = [
        "make teleport",
        "timely disciplines --teleport  # no",
        "timely teleport",
        "teleport me",
        "A=1 make lint",
    ]
    text = "\n".join(["```bash", *lines, "```", ""])
    complaints = [complaint(words) for words in commands_in(text)]
    assert [bool(line) for line in complaints] == [True, True, True, True, False]
    assert commands_in("```console\n$ timely --version\ntimely 0.1.0\n```\n") == [["timely", "--version"]]


def test_the_example_discipline_works() -> None:
    """The class in docs/disciplines.md runs, orders jobs, and breaks no rule of a step."""
    page = (ROOT / "docs" / "disciplines.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    (package,) = re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)
    names: dict[str, object] = {}
    exec(compile(example, "docs/disciplines.md", "exec"), names)  # noqa: S102
    kind = names["ShortestPlanFirst"]
    assert isinstance(kind, type)
    assert issubclass(kind, Discipline)
    plugins = tomllib.loads(package)["project"]["entry-points"][PLUGIN_GROUP]
    assert plugins == {kind.info.name: f"my_disciplines:{kind.__name__}"}
    table = JobTable()
    for name, tokens in (("long", 90.0), ("unknown", None), ("short", 9.0)):
        table.add(JobSpec(name, 0.0, hints=RequestHints(expected_tokens=tokens), prompt_tokens=4))
    limits = StepLimits(
        now=0.0,
        token_budget=12,
        max_batch=8,
        max_resident=8,
        prefill_chunk=8,
        free_blocks=8,
        block_tokens=16,
        speed=FixedSpeed(0.01),
    )
    assert list(kind().compose(table, limits).tokens) == ["short", "unknown", "long"]
