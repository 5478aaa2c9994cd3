"""What the documents say: every command they show exists with its options, every file they point to is there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest
from timely_bridge.recorder import main as run_recorder
from timely_bridge.run_fleet import main as run_fleet
from timely_robots.main import main as run_driver
from utility_scene import limits

from lrtrace.cli import run_lrtrace_command
from timely.cli.main import run_timely_command
from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.disciplines.base import Discipline
from timely.disciplines.registry import PLUGIN_GROUP
from timely.emulators.cli import run_emulator_command

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
ROS_SOURCES = ROOT / "ros2_ws" / "src"
DOCUMENTS = sorted(
    [
        *(file for pattern in ("*.md", "docs/**/*.md", "deploy/*.md") for file in ROOT.glob(pattern)),
        *ROS_SOURCES.glob("*/README.md"),
    ]
)
CURRENT_DOCUMENTS = [
    path for path in DOCUMENTS if "experiments" not in path.parts and path.stem != "CHANGELOG"
]
"""Without those that tell what was once."""
MADE_UP_FILES = re.compile(r".*\b(?:my_\w+|NAME|cart)\.\w+")
PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "timely": run_timely_command,
    "timely-emulate": run_emulator_command,
    "lrtrace": run_lrtrace_command,
    "timely_fleet": run_fleet,
    "timely_driver": run_driver,
    "timely_record": run_recorder,
}
MODULES = {
    "timely_bridge.run_fleet": "timely_fleet",
    "timely_robots.main": "timely_driver",
    "timely_bridge.recorder": "timely_record",
}
"""Modules that documents run by ``python -m``, with their program."""
FOREIGN = {
    *(
        "apt-get",
        "cd",
        "colcon",
        "cp",
        "curl",
        "export",
        "git",
        "install",
        "kill",
        "openssl",
        "pip",
        "python",
        "python3",
        "ros2",
        "rm",
        "sleep",
        "systemctl",
        "useradd",
    ),
    *("source", "uv", "vllm", ".ci/run", ".venv-robots/bin/python"),
}
BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`((?:timely|timely-emulate|lrtrace|make) [^`]+)`(?!`)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
ASSIGNMENT = re.compile(r"\w+=.*")
LOOP = re.compile(r"for \w+ in [^;]+; do (.+); done")


def commands_in(text: str) -> list[list[str]]:
    """Every command of the shell blocks, as words; lines of output in `console` blocks are left out."""
    commands: list[list[str]] = []
    for block in BLOCK.finditer(text):
        console = block.group().startswith("```console")
        for line in block.group(1).replace("\\\n", " ").splitlines():
            if console and not line.startswith("$ "):
                continue
            command = LOOP.sub(r"\1", line.removeprefix("$ "))
            for part in re.split(r"\s(?:&&|\|\||\||;)\s", command):
                words = shlex.split(part.rstrip(" &"), comments=True)
                while words and ASSIGNMENT.fullmatch(words[0]):
                    words.pop(0)
                if words:
                    commands.append(words)
    return commands


@cache
def project_files() -> frozenset[str]:
    """The project's files by their paths from its root."""
    folders = ("deploy", "docs", "examples", "lrtrace", "robot_profiles", "ros2_ws/src", "scripts", "skills")
    files = [path for folder in (*folders, "tests", "timely") for path in (ROOT / folder).rglob("*.*")]
    return frozenset(str(path.relative_to(ROOT)) for path in (*files, *ROOT.glob("*.*")))


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
        try:
            status = PROGRAMS[words[0]]([*words[1:], "--help"])
        except SystemExit as end:  # of argparse
            status = int(end.code or 0)
    return status, said.getvalue()


def complaint(words: list[str]) -> str:
    """What is wrong with a command, or nothing."""
    program = words[0].removeprefix("/opt/timely/").removeprefix(".venv/bin/")
    line = " ".join(words)
    if program == "python" and words[1:2] == ["-m"] and words[2] in MODULES:
        program, words = MODULES[words[2]], words[2:]
    elif program == "python" and words[1].endswith(".py"):
        return "" if (ROOT / words[1]).is_file() else f"`{line}`: no such file"
    elif words[:2] == ["ros2", "launch"]:
        return launch_complaint(line, *words[2:])
    if program == "make":
        wrong = [
            word
            for before, word in pairwise(words)
            if not word.startswith("-") and before != "-C" and "=" not in word and word not in targets()
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


def launch_complaint(line: str, package: str, file: str, *arguments: str) -> str:
    """What is wrong with a ``ros2 launch``, or nothing: the file is there and declares the arguments."""
    path = ROS_SOURCES / package / "launch" / file
    if not path.is_file():
        return f"`{line}`: no such launch file"
    names = [argument.partition(":=")[0] for argument in arguments]
    unknown = [name for name in names if f'"{name}"' not in path.read_text()]
    return f"`{line}`: no argument {unknown}" if unknown else ""


@pytest.mark.process
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_exist(document: Path) -> None:
    text = document.read_text()
    spans = [] if "experiments" in document.parts else [shlex.split(span) for span in SPAN.findall(text)]
    wrong = [finding for words in [*commands_in(text), *spans] if (finding := complaint(words))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_lead_somewhere(document: Path) -> None:
    places = [link.partition("#")[0] for link in LINK.findall(document.read_text()) if "://" not in link]
    dead = [place for place in places if place and not (document.parent / place).exists()]
    assert not dead, f"{document.name} points to {dead}"


@pytest.mark.parametrize("document", CURRENT_DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_named_files_exist(document: Path) -> None:
    """A path from the root or of a ROS 2 package, or the name of some file."""
    named = set(re.findall(r"`([\w./-]+\.(?:py|c|yaml|toml))(?:::\w+)?`", document.read_text()))
    gone = [
        name
        for name in named
        if not MADE_UP_FILES.fullmatch(name)
        and not any(f"/{path}".endswith(f"/{name.removeprefix('../')}") for path in project_files())
    ]
    assert not gone, f"{document.name} names {gone}"


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
        "ros2 launch timely_bringup robot.launch.py legs:=4",
        ".venv/bin/python -m timely_bridge.run_fleet --teleport",
    ]
    text = "\n".join(["```bash", *lines, "```", ""])
    complaints = [complaint(words) for words in commands_in(text)]
    assert [bool(line) for line in complaints] == [True, True, True, True, False, True, True]
    assert commands_in("```console\n$ timely --version\ntimely 0.1.0\n```\n") == [["timely", "--version"]]


def test_the_example_trace_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trace in docs/simulator.md, and a CSV file with the columns that the page names."""
    page = (ROOT / "docs" / "simulator.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)
    trace, table = tmp_path / "mine.lrtrace.jsonl", tmp_path / "requests.csv"
    trace.write_text(example)
    table.write_text("Timestamp,Request tokens,Response tokens,Mine\n0.5,200,30,a\n1.25,90,12,b\n")
    imported = tmp_path / "requests.lrtrace.jsonl"
    assert run_lrtrace_command(["import", "burstgpt", str(table), "-o", str(imported)]) == 0
    for file in (trace, imported):
        assert run_timely_command(["replay", str(file), "--discipline", "fcfs", "--json", "-"]) == 0
        result = json.loads("{" + capsys.readouterr().out.partition("{")[2])
        assert [job["outcome"] for job in result["jobs"]] == ["complete", "complete"]


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
    step = limits(token_budget=12, max_batch=8)
    assert list(kind().compose(table, step).tokens) == ["short", "unknown", "long"]
