"""Lines of a server's log as JSON, with the ids of task and trace."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from timely.core.json_log import JsonLogFormatter, _json_object, log_fields

START_S = 60.0
SERVE = (sys.executable, "-m", "timely.cli.main", "serve", "--engine", "scripted", "--log-format", "json")
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
KEYS = {"time", "level", "logger", "pid", "message"}

Lines = list[dict[str, Any]]


def test_a_line_has_the_fields_of_its_task_and_its_error() -> None:
    formatter = JsonLogFormatter()
    record = logging.LogRecord("timely.server", logging.ERROR, "", 0, 'a "%s"\nline', ("b\u2028",), None)
    assert json.loads(formatter.format(record)).keys() == KEYS
    with log_fields({"task_id": "one"}):
        try:
            raise ValueError("no")
        except ValueError as error:
            record.exc_info = (ValueError, error, error.__traceback__)
        text = formatter.format(record)
    line = json.loads(text)
    assert (line["message"], line["task_id"]) == ('a "b\u2028"\nline', "one")
    assert line["exception"].endswith("ValueError: no")
    assert text.isascii()
    assert len(text.splitlines()) == 1


NOISE = """
import json, logging.config, os, subprocess, sys, warnings
from timely.cli.terminal import JsonCliTerminal
terminal = JsonCliTerminal()
logging.config.dictConfig(json.load(open(os.environ["VLLM_LOGGING_CONFIG_PATH"])))
print("print")
os.write(2, b"10%\\r100%\\n\\xff\\n\\n")
subprocess.run(["echo", '{"message": "child"}'])
warnings.warn("warning")
terminal.say("serving")
logging.getLogger("vllm").error("died")
sys.exit("last")
"""


@pytest.mark.process
def test_what_libraries_and_children_print_is_a_line_each() -> None:
    result = subprocess.run(
        [sys.executable, "-c", NOISE], capture_output=True, text=True, check=False, timeout=START_S
    )
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    loggers = {line["message"]: line.get("logger") for line in lines if "UserWarning" not in line["message"]}
    printed = dict.fromkeys(("print", "100%", "\ufffd", "last"), "output")
    assert loggers == {**printed, "child": None, "serving": "timely", "died": "vllm"}
    (warning,) = (line for line in lines if "UserWarning: warning" in line["message"])
    assert (warning["logger"], warning["level"]) == ("py.warnings", "WARNING")
    assert (result.returncode, result.stdout) == (1, "")


UNREAD = """
import logging, sys
from timely.cli.terminal import JsonCliTerminal
terminal = JsonCliTerminal()
for number in range(1000):
    print('{"message": "' + 100 * "a" + '"}')
    print("[" * 100, flush=True)
    logging.getLogger("vllm").error("died")
    terminal.say("serving")
sys.exit(3)
"""


@pytest.mark.process
@pytest.mark.parametrize("sink", ["full disk", "reader that left"])
def test_a_standard_error_that_takes_nothing_holds_up_nothing(sink: str) -> None:
    """The pipe of what is printed would be full, and every process of the server would wait for it."""
    if sink == "full disk":
        number = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, number = os.pipe()
        os.close(reader)
    try:
        result = subprocess.run([sys.executable, "-c", UNREAD], stderr=number, check=False, timeout=START_S)
    finally:
        os.close(number)
    assert result.returncode == 3


def test_a_line_of_too_many_brackets_is_no_object() -> None:
    assert _json_object("[" * 60_000) is None


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Callable[[], Lines]]:
    """All lines so far of a server."""
    file = tmp_path / "log.jsonl"
    with file.open("w") as sink:
        server = subprocess.Popen([*SERVE, "--port", "0"], stdout=sink, stderr=sink)
    try:
        yield lambda: [json.loads(line) for line in file.read_text().splitlines()]
        server.send_signal(signal.SIGTERM)
        assert server.wait(START_S) == 0
        last = json.loads(file.read_text().splitlines()[-1])
        assert (last["logger"], last["message"]) == ("timely", "stopped")
    finally:
        server.kill()
        server.wait()


def line_with(log: Callable[[], Lines], text: str) -> dict[str, Any]:
    """The first line with the text, when it is there."""
    deadline_s = time.monotonic() + START_S
    while not (lines := [line for line in log() if text in line["message"]]):
        assert time.monotonic() < deadline_s, log()
        time.sleep(0.02)
    return lines[0]


@pytest.mark.process
def test_every_line_of_a_server_is_an_object(log: Callable[[], Lines]) -> None:
    url = line_with(log, "serving on ")["message"].split()[2]
    with httpx.Client(base_url=url) as client:
        plan = {
            "skill_set": "drone",
            "task": "Fly around.",
            "id": "one",
            "agent": "drone1",
            "traceparent": TRACEPARENT,
        }
        with client.stream("POST", "/v1/tasks", json=plan) as stream:
            next(stream.iter_lines())
            order = {"urgency": 4, "operator": "jane", "reason": "test"}
            client.put("/v1/tasks/one/urgency", json=order).raise_for_status()
        port = urlsplit(url).port
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"https://127.0.0.1:{port}")  # TLS is no HTTP
    assert all(line.keys() >= KEYS for line in log())
    override = line_with(log, "urgency of one")
    assert (override["level"], override["logger"]) == ("WARNING", "timely.server.tasks.recorder")
    ids = {"task_id": "one", "robot": "drone1", "trace_id": TRACE_ID}
    assert ids.items() <= override.items()
    invalid = line_with(log, "Invalid HTTP request")
    assert (invalid["logger"], "task_id" in invalid) == ("uvicorn.error", False)


@pytest.mark.process
def test_an_error_at_the_start_is_an_object_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    result = subprocess.run(
        [*SERVE, "--port", "0", "--state-dir", str(tmp_path / "file")],
        capture_output=True, text=True, timeout=START_S, check=False, env=environment,
    )  # fmt: skip
    (line,) = (json.loads(text) for text in result.stderr.splitlines())
    assert (line["level"], line["logger"]) == ("ERROR", "timely")
    assert line["message"] == f"{tmp_path / 'file'}: cannot be used: Not a directory"
    assert (result.returncode, result.stdout) == (2, "")
