"""Fuzzes the HTTP interface with schemathesis, against the scripted engine on a fast clock.

    python scripts/fuzz_http.py --schemathesis VENV/bin/schemathesis --seconds 400 --seed 1

Schemathesis is no dependency of the project: install it into an environment of its own.
The last line on standard output is JSON: cases, failures by check, and the seed. The exit code is 1 after a failure.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timely.core.clock import SystemClock
from timely.engines.scripted import ScriptedEngine
from timely.principals import PrincipalRegistry
from timely.server.app import create_app
from timely.server.server_thread import ServerThread
from timely.server.settings import ServerSettings

SPEED = 200.0
"""Seconds of the server's clock in one second, so that a plan ends in milliseconds."""

STREAM_S = 0.02
"""Life of an event stream that has no end of its own, seconds."""

SETTINGS = ServerSettings(
    retention_s=300.0 * SPEED,
    max_task_s=20.0,
    settle_s=1.0,
    settle_reporting_s=1.0,
    max_stop_deadline_s=0.5,
    max_live_tasks=100_000,
)


class EndlessStreamsEnd:
    """ASGI middleware: the reader of ``/v1/stop/events`` leaves after ``STREAM_S``, with a complete response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/v1/stop/events":
            await self._app(scope, receive, send)
            return
        streaming = False

        async def leave() -> Message:
            message = {"type": "http.disconnect"}
            try:
                async with asyncio.timeout(STREAM_S):
                    while not streaming:
                        return await receive()
                    await asyncio.Event().wait()
            except TimeoutError:
                pass
            return message

        async def watch(message: Message) -> None:
            nonlocal streaming
            streaming = streaming or bool(message.get("more_body"))
            await send(message)

        await self._app(scope, leave, watch)
        if streaming:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


CONFIGURATION = """\
hooks = "hooks.py"
[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 422, 431, "5xx"]

[[operations]]
include-name = "POST /v1/stop"
checks.negative_data_rejection.expected-statuses = ["2xx", "4xx", "5xx"]
"""
"""A text over its limit is 413 here. Robots stop whatever a body says."""

HOOKS = """\
import schemathesis

@schemathesis.hook
def before_call(context, case, kwargs):
    # JSON Schema cannot say that one number is larger than another, or which robot fits a skill set. Nor can it say
    # how soon the engine responds: a task that must be served sooner is refused with 503, as by an engine at work.
    body = case.body if isinstance(case.body, dict) else {}
    deadline_s = body.get("deadline_s")
    if "/tasks" in case.path and type(deadline_s) in (int, float) and 0 < deadline_s <= 86_400:
        body["deadline_s"] = max(10.0, deadline_s)
        if type(body.get("network_s")) in (int, float) and 0 <= body["network_s"] <= 1e6:
            body["network_s"] = 0.0
    if isinstance(body.get("robot"), str) and isinstance(body.get("skill_set"), str):
        body["robot"] = None
    tuf = body.get("tuf")
    if isinstance(tuf, dict):
        times = [tuf.get("cutoff_s"), 1.0 if tuf.get("ert_s") is None else tuf["ert_s"]]
        if all(isinstance(time, (int, float)) and not isinstance(time, bool) for time in times):
            if 0 < times[0] <= times[1] <= 1e5:
                tuf["cutoff_s"] = times[1] + 1.0 + times[0]
            elif 0 < times[0] <= times[1]:
                tuf.pop("cutoff_s")
"""

KEY = "key-of-an-operator-for-fuzzing"


def fuzz(schemathesis: Path, seconds: int, seed: int, phases: str, more: list[str]) -> dict[str, object]:
    """Run schemathesis once; its cases and failures. An even seed is an operator, an odd one a client on loopback."""
    clock = SystemClock(SPEED)
    registry = PrincipalRegistry(None, KEY, clock) if seed % 2 == 0 else None
    if registry is not None:
        more = ["--header", f"Authorization: Bearer {KEY}", *more]
    app = create_app(ScriptedEngine(clock=clock, token_s=0.001), SETTINGS, clock, registry=registry)
    app.add_middleware(EndlessStreamsEnd)
    with ServerThread(app) as server, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "schemathesis.toml").write_text(CONFIGURATION)
        (Path(folder) / "hooks.py").write_text(HOOKS)
        command = [
            str(schemathesis), "run", f"{server.url}/openapi.json", "--phases", phases, "--checks", "all",
            # ``DELETE`` of a task cancels it, and it can still be read.
            "--exclude-checks", "use_after_free",
            "--max-time", str(seconds), "--seed", str(seed), "--continue-on-failure", "--request-timeout", "10",
            "--no-color", *more,
        ]  # fmt: skip
        environment = {**os.environ, "COLUMNS": "120", "NO_PROXY": "*", "PYTHONPATH": ""}
        run = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + 300,
        )
    sys.stderr.write(run.stdout + run.stderr)
    cases = sum(int(number.replace(",", "")) for number in re.findall(r"([\d,]+) generated", run.stdout))
    failures = Counter(re.findall(r"^\s*❌\s+(.*?):?\s+\d+\s*$", run.stdout, re.MULTILINE))
    return {
        "cases": cases,
        "failures": dict(failures),
        "seed": seed,
        "phases": phases,
        "exit_code": run.returncode,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schemathesis", type=Path, required=True, help="the program")
    parser.add_argument("--seconds", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--phases", default="examples,coverage,fuzzing,stateful")
    arguments, more = parser.parse_known_args()
    result = fuzz(arguments.schemathesis, arguments.seconds, arguments.seed, arguments.phases, more)
    print(json.dumps(result))
    return 1 if result["exit_code"] else 0


if __name__ == "__main__":
    sys.exit(main())
