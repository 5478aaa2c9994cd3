"""The command ``timely``: help without weight, errors as one line, results whole or not at all."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typer
from optional_packages import require_package

import timely
from lrtrace.errors import BadInput
from timely.cli import main as shell
from timely.cli.output import check_cli_output_file, plain_cli_json, write_cli_json
from timely.core.errors import EngineFailed, InvalidInput, UnknownName
from timely.disciplines import registry


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A command ``replay`` that the test may fill."""
    module = ModuleType("timely.cli.replay")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(shell, "available_commands", lambda: {"replay": "To be tried."})
    return module


def raising(error: BaseException) -> Any:
    def command() -> None:
        raise error

    return command


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_timely_command(["--version"]) == 0
    assert capsys.readouterr().out == f"timely {timely.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_command_there_is(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_timely_command(arguments) == 0
    text = capsys.readouterr().out
    assert "disciplines" in shell.available_commands()
    for name, summary in shell.available_commands().items():
        assert f"  {name}" in text
        assert summary in text, f"the summary of {name} does not fit a line of help"


def test_a_command_without_a_module_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shell.COMMANDS, "teleport", "Not written.")
    assert "teleport" not in shell.available_commands()


@pytest.mark.parametrize("name", sorted(shell.available_commands()))
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_timely_command([name, "--help"]) == 0
    assert f"usage: timely {name}" in capsys.readouterr().out.lower()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            ModuleNotFoundError("no", name="vllm.not_there"),
            "timely: vLLM 0.99 has other parts (no); supported: >=",
        ),
        (ImportError("cannot import name 'x'", name="vllm.utils"), "(cannot import name 'x'); supported: >="),
        (ModuleNotFoundError("no", name="wordllama"), "is not installed; install timely-serving["),
    ],
    ids=["module of vLLM", "name of vLLM", "package"],
)
def test_a_package_that_is_absent_or_of_another_version_is_one_line(
    error: ImportError,
    says: str,
    command: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A vLLM with other modules was said to be not installed, or was a traceback."""
    require_package("vllm")
    command.command = raising(error)  # type: ignore[attr-defined]
    monkeypatch.setattr(metadata, "version", lambda name: "0.99")
    assert shell.run_timely_command(["replay"]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


PROGRAMMERS_TYPE = re.compile(r"<\w+( range)?>|\[Path\]|\.\.\.\]\.\.\.")


@pytest.mark.parametrize(
    "words",
    ["replay", "skill-sets", "explain", "bench live", "bench overhead", "planner train", "predictor costs"],
)
def test_help_names_kinds_of_values_in_words(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_timely_command([*words.split(), "--help"]) == 0
    assert PROGRAMMERS_TYPE.search(capsys.readouterr().out) is None


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["teleport"], "timely: unknown command 'teleport'; known: "),
        (["--teleport"], "timely: No such option: --teleport"),
        (["disciplines", "--teleport"], "timely: disciplines: No such option: --teleport"),
        (["disciplines", "--json", "/no/such/folder/x"], "timely: /no/such/folder/x: there is no folder"),
        (["disciplines", "--json", "/"], "timely: /: is a folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.run_timely_command(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(line)
    assert output.err.count("\n") == 1
    assert output.err.endswith("\n")


def caused_by(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidInput("is NaN", where="tuf.alpha"), 2, "timely: tuf.alpha: is NaN\n"),
        (UnknownName("robot", "r2d2", ["tello"]), 2, "timely: unknown robot 'r2d2'; known: tello\n"),
        (BadInput("no header", where="x:1"), 2, "timely: x:1: no header\n"),
        (EngineFailed("two\n  lines"), 1, "timely: two lines\n"),
        (FileNotFoundError(2, "No such file", "a.jsonl"), 2, "timely: a.jsonl: No such file\n"),
        (typer.BadParameter("too small"), 2, "timely: replay: Invalid value: too small\n"),
        (KeyboardInterrupt(), 130, "timely: interrupted\n"),
        (
            caused_by(RuntimeError("Error calling __set_name__"), KeyboardInterrupt()),
            130,
            "timely: interrupted\n",
        ),
        (typer.Exit(3), 3, ""),
    ],
)
def test_what_a_command_raises(
    error: BaseException, code: int, line: str, command: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    command.command = raising(error)  # type: ignore[attr-defined]
    assert shell.run_timely_command(["replay"]) == code
    assert capsys.readouterr().err == line


def test_a_defect_is_not_hidden(command: ModuleType) -> None:
    command.command = raising(ZeroDivisionError("ours"))  # type: ignore[attr-defined]
    with pytest.raises(ZeroDivisionError):
        shell.run_timely_command(["replay"])


def test_a_module_may_bring_commands_of_its_own(
    command: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()
    app.command("one")(lambda: typer.echo("one ran"))
    app.command("two")(lambda: typer.echo("two ran"))
    command.app = app  # type: ignore[attr-defined]
    assert shell.run_timely_command(["replay", "two"]) == 0
    assert capsys.readouterr().out == "two ran\n"
    assert shell.run_timely_command(["replay", "three"]) == 2
    assert shell.run_timely_command(["replay"]) == 2
    assert shell.run_timely_command(["replay", "--help"]) == 0


def test_a_command_may_take_unknown_options(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    def passed_on(context: typer.Context) -> None:
        typer.echo(" ".join(context.args))

    command.command = passed_on  # type: ignore[attr-defined]
    command.CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}  # type: ignore[attr-defined]
    assert shell.run_timely_command(["replay", "--tensor-parallel-size", "2"]) == 0
    assert capsys.readouterr().out == "--tensor-parallel-size 2\n"


def test_disciplines_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_timely_command(["disciplines"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{registry.DEFAULT}, the default: ")
    for info in registry.discipline_infos():
        assert f"\n{info.name}" in f"\n{text}"
        assert info.summary in text
        assert info.source in text


def test_disciplines_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "d.json"
    assert shell.run_timely_command(["disciplines", "--json", str(target)]) == 0
    assert capsys.readouterr().out != ""
    for bare in (["--json", "-"], ["--json"]):
        assert shell.run_timely_command(["disciplines", *bare]) == 0
        assert json.loads(target.read_text()) == json.loads(capsys.readouterr().out)
    written = json.loads(target.read_text())
    assert written["default"] == registry.DEFAULT
    assert {entry["name"] for entry in written["disciplines"]} == set(registry.discipline_names())


@pytest.mark.parametrize("arguments", [["disciplines"], ["planner", "info"]])
def test_json_on_standard_output_stands_alone(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.run_timely_command([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)


def test_plain_forms() -> None:
    @dataclass
    class Point:
        x: float
        y: np.ndarray

    data = {
        1: Point(math.nan, np.array([1.0, math.inf])),
        "n": np.int64(3),
        "t": (True, None, "s"),
        "set": {2, 1},
        "path": Path("a/b"),
        "flag": np.bool_(True),
    }
    assert plain_cli_json(data) == {
        "1": {"x": None, "y": [1.0, None]},
        "n": 3,
        "t": [True, None, "s"],
        "set": [1, 2],
        "path": "a/b",
        "flag": True,
    }
    with pytest.raises(TypeError, match="object"):
        plain_cli_json({"x": object()})


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "r.json"
    write_cli_json(target, {"run": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InvalidInput, match="No space"):
        write_cli_json(target, {"run": 2})
    assert json.loads(target.read_text()) == {"run": 1}
    assert list(tmp_path.iterdir()) == [target]


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    assert check_cli_output_file(None) is None
    assert check_cli_output_file(tmp_path / "new.json") == tmp_path / "new.json"
    with pytest.raises(InvalidInput, match="is a folder"):
        check_cli_output_file(tmp_path)
    with pytest.raises(InvalidInput, match="there is no folder"):
        check_cli_output_file(tmp_path / "no" / "r.json")


@pytest.mark.process
def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from timely.cli.main import run_timely_command; run_timely_command(['--help']);"
        "heavy = {'torch', 'vllm', 'transformers', 'rclpy', 'fastapi', 'matplotlib', 'scipy', 'sklearn'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


ENDED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN if "ignored" in sys.argv else signal.default_int_handler)
from timely.cli import main

def command(arguments):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
    except KeyboardInterrupt:
        print("cleaned up")
        return main.INTERRUPTED

main.run_timely_command = command
main.main(sys.argv[2:])
"""


@pytest.mark.process
@pytest.mark.parametrize("ctrl_c", ["taken", "ignored"])
@pytest.mark.parametrize(("command", "code"), [("replay", 130), ("serve", 0)])
def test_sigterm_ends_a_command_as_ctrl_c_does(ctrl_c: str, command: str, code: int) -> None:
    """A shell without job control has Ctrl-C ignored by what it starts in the background.

    To systemd and Kubernetes any other code than 0 after SIGTERM is a failed service, also while a server starts.
    """
    done = subprocess.run(
        [sys.executable, "-c", ENDED, ctrl_c, command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (code, "cleaned up", "")


FINALIZED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN if "ignored" in sys.argv else signal.default_int_handler)
from timely.cli import main

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM if "sigterm" in sys.argv else signal.SIGINT)

def load(name):
    Finalized()
    time.sleep(50)
    sys.exit("Ctrl-C was lost")

main._import_cli_command = load
main.main(["replay"])
"""


@pytest.mark.process
@pytest.mark.parametrize("names", [("sigint",), ("sigterm",), ("ignored", "sigterm")])
def test_ctrl_c_inside_a_finalizer_ends_a_command(names: tuple[str, ...]) -> None:
    """Python drops the exception there, also inside a callback of compiled code."""
    done = subprocess.run(
        [sys.executable, "-c", FINALIZED, *names], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, "timely: interrupted\n")


IN_A_STRING = """
from timely.cli import main

def command(arguments):
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return main.INTERRUPTED

main.run_timely_command = command
main.main([])
"""


@pytest.mark.process
def test_ctrl_c_in_a_program_from_a_string_has_our_exit_code(tmp_path: Path) -> None:
    """Under ``python -m`` Python would die of SIGINT once everything has ended."""
    (tmp_path / "in_a_string.py").write_text(IN_A_STRING)
    command = [sys.executable, "-m", "in_a_string"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["disciplines"], ["disciplines", "--json"], ["--help"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "timely.cli.main", *arguments]
    with Path("/dev/full").open("w") as full:
        refused = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (refused.returncode, refused.stderr) == (2, "timely: standard output: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        ended = subprocess.run(
            command, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert (ended.returncode, ended.stderr) == (1, "")
