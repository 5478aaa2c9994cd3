"""A clean terminal: libraries and children print into a log file, the command's own lines stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from lrtrace.compose.composition import compose_workload
from lrtrace.trace import write_trace
from timely.cli import replay
from timely.cli.terminal import KEPT_LOGS, CliTerminal, quiet_cli_terminal
from timely.client import TimelyClient
from timely.core.errors import EngineFailed
from timely.plans.prompt import build_prompt
from timely.plans.skill_library import find_skill_set

START_S = 400.0
STOP_S = 60.0

NOISE = """
import logging, os, subprocess, sys, warnings
from timely.cli.terminal import quiet_cli_terminal
from timely.core.errors import EngineFailed

try:
    with quiet_cli_terminal("try", verbose="verbose" in sys.argv) as terminal:
        print("print")
        os.write(2, b"library\\n")
        warnings.warn("warning")
        subprocess.run(["echo", "child"])
        logging.getLogger("timely.server").warning("robots\\nmove")
        terminal.say("serving")
        raise EngineFailed("died", where="vllm")
except EngineFailed as error:
    print(error, file=sys.stderr)
print("afterwards")
"""


def run_noise(cache: Path, *arguments: str) -> tuple[str, str]:
    result = subprocess.run(
        [sys.executable, "-c", NOISE, *arguments],
        env={**os.environ, "TIMELY_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout, result.stderr


@pytest.mark.process
def test_only_own_lines_reach_the_terminal(tmp_path: Path) -> None:
    out, err = run_noise(tmp_path)
    (log,) = (tmp_path / "logs").iterdir()
    assert out == "afterwards\n"
    assert err.splitlines() == [
        f"timely: vLLM's messages go to {log}",
        "timely: robots move",
        "timely: serving",
        f"vllm: died; see {log}",
    ]
    text = log.read_text()
    for part in ("print", "library", "UserWarning: warning", "child", "robots\nmove"):
        assert part in text


@pytest.mark.process
def test_verbose_redirects_nothing(tmp_path: Path) -> None:
    out, err = run_noise(tmp_path, "verbose")
    assert "print" in out
    assert "child" in out
    assert "library" in err
    assert "timely: robots\nmove\n" in err
    assert "vllm: died\n" in err
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("logged", "said"),
    [
        (
            ("EngineCore failed to start.", "    self.check()", "AssertionError: 3", "Exception: ended"),
            "AssertionError: 3",
        ),
        ((), "with the model: See root cause above"),
    ],
)
def test_the_terminal_says_why_a_process_of_the_engine_ended(
    logged: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start() -> None:
        with quiet_cli_terminal("try"):
            for line in logged:
                os.write(2, f"(EngineCore pid=7) ERROR 11-28 19:03:54 [core.py:1510] {line}\n".encode())
            raise EngineFailed("vLLM did not start with the model: See root cause above", where="vllm")

    monkeypatch.setenv("TIMELY_CACHE", str(tmp_path))
    with pytest.raises(EngineFailed) as raised:
        start()
    (log,) = (tmp_path / "logs").iterdir()
    assert raised.value.message.removeprefix("vLLM did not start").strip(" :") == f"{said}; see {log}"


def test_without_room_for_a_log_the_terminal_has_all_messages_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The first line that vLLM printed failed, so that the disk hid why vLLM did not start."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / f"try-{os.getpid()}.log").symlink_to("/dev/full")
    monkeypatch.setenv("TIMELY_CACHE", str(tmp_path))
    with quiet_cli_terminal("try"):
        print("a line of vLLM", flush=True)
    out, err = capsys.readouterr()
    assert out == "a line of vLLM\n"
    assert f"no log in {logs}: No space left on device; TIMELY_CACHE may name another folder" in err
    assert not list(logs.iterdir())


def test_the_line_of_a_replay_takes_no_output_of_libraries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal rich would show vLLM's messages, which are for the log file."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(replay, "SHOW_AFTER_S", 0.0)
    streams = sys.stdout, sys.stderr
    with replay._cli_replay_progress(CliTerminal(sys.stderr), "day on vllm") as progress:
        assert progress is not None
        progress(1.0, 2, 1)
        assert (sys.stdout, sys.stderr) == streams
    assert "tasks done" in capsys.readouterr().err


@pytest.mark.process
def test_old_logs_are_deleted(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(KEPT_LOGS + 5):
        (logs / f"serve-{number}.log").touch()
        os.utime(logs / f"serve-{number}.log", (number, number))
    run_noise(tmp_path)
    names = {file.name for file in logs.iterdir()}
    assert len(names) == KEPT_LOGS
    assert "serve-0.log" not in names
    assert f"serve-{KEPT_LOGS + 4}.log" in names


def interrupt(
    process: subprocess.Popen[str], output: Path, marker: str, act: Callable[[], None] = lambda: None
) -> int:
    """Wait for ``marker`` in the output, act, then send SIGINT to the whole group, as a terminal does.

    Returns the exit code; the process has ended whatever happens.
    """
    deadline_s = time.monotonic() + START_S
    try:
        while marker not in output.read_text():
            assert process.poll() is None, output.read_text()
            assert time.monotonic() < deadline_s, output.read_text()
            time.sleep(0.1)
        act()
        os.killpg(process.pid, signal.SIGINT)
        return process.wait(STOP_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def start_command(output: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command in a process group of its own, with the packaged model's usual folder."""
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    with output.open("w") as file:
        return subprocess.Popen(
            # A script lets what it starts with ``&`` ignore SIGINT, also the children of pytest.
            ["env", "--default-signal=INT", sys.executable, "-m", "timely.cli.main", *arguments],
            env={**os.environ, "XDG_CACHE_HOME": cache},
            stdout=file,
            stderr=file,
            text=True,
            start_new_session=True,
        )


def check_log(path: Path) -> None:
    log = path.read_text()
    assert "Traceback" not in log, log
    assert "leaked" not in log, log


@pytest.mark.engine
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")
@pytest.mark.timeout(START_S + STOP_S)
@pytest.mark.parametrize(
    "command",
    [
        ("replay", "TRACE", "--engine", "vllm"),
        ("calibrate", "--out", "profile.yaml"),
        ("bench", "live", "--out", "runs", "--default-system"),
        ("bench", "injection"),
    ],
    ids=" ".join,
)
def test_ctrl_c_at_the_start_ends_a_command_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    trace = tmp_path / "trace.jsonl"
    composition = compose_workload("wid1", 1)
    write_trace(trace, composition.header, composition.jobs)
    output = tmp_path / "output.txt"
    process = start_command(output, *(str(trace) if word == "TRACE" else word for word in command))
    code = interrupt(process, output, "vLLM's messages go to")
    lines = output.read_text().splitlines()
    assert (code, lines[-1]) == (130, "timely: interrupted"), lines
    assert all(line.startswith("timely: ") for line in lines), lines
    check_log(Path(lines[0].rpartition(" ")[2]))


@pytest.mark.engine
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")
@pytest.mark.timeout(START_S + STOP_S)
def test_serve_prints_one_line_a_fact_and_ctrl_c_ends_it_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the planner beside the weights (``--enable-lora``): it plans for its skill sets, all else stays base."""
    # A terminal, for rich: its progress took vLLM's messages for ever.
    monkeypatch.setenv("FORCE_COLOR", "1")
    output = tmp_path / "output.txt"
    process = start_command(output, "serve", "--port", "0", "--enable-lora", "--max-loras", "1")
    planned, answered = list[str](), list[str]()

    def plan_and_chat() -> None:
        url = output.read_text().split("serving on ")[1].split()[0]
        prompt = build_prompt(find_skill_set("drone"), "Fly forward 2 metres.", examples=False)
        messages = [{"role": "system", "content": prompt.system}, {"role": "user", "content": prompt.user}]
        chat = {"messages": messages, "max_tokens": 12, "temperature": 0.0}
        answer = httpx.post(f"{url}/v1/chat/completions", json=chat, timeout=STOP_S)
        answered.append(answer.json()["choices"][0]["message"]["content"])
        with TimelyClient(url) as client:
            stream = client.submit("Fly forward 2 metres.", skill_set="drone", robot="tello")
            planned.append(next(iter(stream)).text)

    code = interrupt(process, output, "serving on", plan_and_chat)
    log, loading, serving, stopped = output.read_text().splitlines()
    assert code == 130
    assert log.startswith("timely: vLLM's messages go to ")
    assert loading == "timely: loading the model into vLLM"
    assert serving.startswith("timely: serving on http://127.0.0.1:")
    assert stopped == "timely: stopped"
    check_log(Path(log.rpartition(" ")[2]))
    assert planned == ["mf(200);"]
    assert not answered[0].startswith("mf(200);")


@pytest.mark.process
@pytest.mark.skipif(find_spec("rclpy") is None, reason="needs ROS 2")
def test_ctrl_c_ends_the_demo_in_one_line(tmp_path: Path) -> None:
    output = tmp_path / "output.txt"
    process = start_command(output, "demo", "--engine", "scripted", "--out", str(tmp_path / "demo"))
    code = interrupt(process, output, "server on")
    lines = output.read_text().splitlines()
    assert (code, lines[-1]) == (130, "timely: interrupted"), lines
    assert "Traceback" not in output.read_text()
