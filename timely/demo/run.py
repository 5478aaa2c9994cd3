"""The demonstration itself: starts server, fleet and tasks, shows them live, ends with a table and a picture."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.status import Status

from timely.client import TimelyClient
from timely.core.child_process import ChildProcess, ChildProcesses
from timely.core.errors import UnknownName, Unsupported
from timely.core.files import core_write_file
from timely.demo import script, timeline, view

SERVER_START_S = 240.0
FLEET_START_S = 60.0
AFTER_S = 45.0
"""How long running plans may go on after the time is up."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What ``timely demo`` takes.

    Attributes:
        out: folder of the picture and the results.
        serve: further arguments of ``timely serve``.
    """

    seconds: float = 60.0
    seed: int = 7
    out: Path = Path("out/demo")
    discipline: str = "timely"
    engine: str = "vllm"
    serve: tuple[str, ...] = ()


def run_demo(options: DemoOptions, console: Console) -> dict[str, Any]:
    """Run it; the results as plain data (``tasks``, ``engine``, ``picture``).

    Raises:
        Unsupported: ROS 2 is not installed. EngineFailed: a part did not start or broke down.
    """
    _require_demo_ros()
    options.out.mkdir(parents=True, exist_ok=True)
    with ChildProcesses("timely-demo-") as children:
        folder = children.folder
        url = _start_demo_server(options, children, folder, console)
        _start_demo_fleet(children, folder, url, console)
        tasks = script.demo_tasks(options.seconds, options.seed)
        playlist = folder / "tasks.json"
        playlist.write_text(json.dumps({"tasks": tasks, "until_s": options.seconds}), encoding="utf-8")
        player = children.start(
            "player",
            [sys.executable, "-m", "timely_bridge.task_player", str(playlist), "--until-stdin-closes"],
            _demo_ros_environment(),
        )
        with TimelyClient(url, timeout_s=5.0) as client:
            arrivals_s, views = _watch_demo(options, children, player, client, console)
            status = client.stats()
        answers = [json.loads(line) for line in player.lines() if line.startswith("{")]
        steps = (
            timeline.read_demo_timeline_steps(folder / "journal.jsonl")
            if (folder / "journal.jsonl").exists()
            else {}
        )
    return _make_demo_report(options, views, arrivals_s, steps, status, answers, console)


def _require_demo_ros() -> None:
    from importlib.util import find_spec

    if find_spec("rclpy") is None or find_spec("timely_bridge") is None:
        raise Unsupported(
            "ROS 2 is not installed here; `make setup` installs it into .venv (or source your own and build ros2_ws)",
            where="demo",
        )


def _start_demo_server(options: DemoOptions, children: ChildProcesses, folder: Path, console: Console) -> str:
    command = [
        sys.executable, "-m", "timely.cli.main", "serve", "--port", "0", "--engine", options.engine,
        "--discipline", options.discipline, "--event-log", str(folder / "events.jsonl"),
    ]  # fmt: skip
    if options.engine == "vllm":
        command += ["--journal", str(folder / "journal.jsonl")]
    server = children.start("server", [*command, *options.serve], {"PYTHONUNBUFFERED": "1"})
    with _demo_progress(console, "loading the model into vLLM") as tick:
        url = server.wait_for_line("serving on ", SERVER_START_S, tick).split()[0]
    console.print(f"[green]✓[/] server on {url} (live page there)")
    return url


def _start_demo_fleet(children: ChildProcesses, folder: Path, url: str, console: Console) -> None:
    fleet = folder / "fleet.yaml"
    fleet.write_text(json.dumps(script.demo_fleet(url)), encoding="utf-8")  # JSON is YAML
    child = children.start(
        "fleet",
        [sys.executable, "-m", "timely_bridge.run_fleet", "--fleet", str(fleet), "--until-stdin-closes"],
        _demo_ros_environment(),
    )
    with _demo_progress(console, "starting ROS 2 nodes") as tick:
        child.wait_for_line("fleet ready", FLEET_START_S, tick)
    console.print(f"[green]✓[/] ROS 2: bridge and {', '.join(script.ROBOTS)}")


def _demo_ros_environment() -> dict[str, str]:
    """A domain of our own on loopback, so that no other ROS program of this machine is met."""
    domain = 1 + os.getpid() % 100
    return {
        "ROS_DOMAIN_ID": os.environ.get("ROS_DOMAIN_ID", str(domain)),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "PYTHONUNBUFFERED": "1",
    }


@contextlib.contextmanager
def _demo_progress(console: Console, what: str) -> Iterator[Any]:
    begin_s = time.monotonic()
    with Status(what, console=console) as status:
        yield lambda: status.update(f"{what} … {time.monotonic() - begin_s:.0f} s")


def _watch_demo(
    options: DemoOptions,
    children: ChildProcesses,
    player: ChildProcess,
    client: TimelyClient,
    console: Console,
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Follow until the player is through.

    Returns:
        Task id -> arrival, seconds from the start of the demonstration; and the tasks as the server describes them.
    """
    begin_s = time.monotonic()
    arrivals_s: dict[str, float] = {}
    views: dict[str, dict[str, Any]] = {}
    limit = options.seconds + AFTER_S
    with Live(console=console, refresh_per_second=8, transient=True) as live:
        while True:
            elapsed_s = time.monotonic() - begin_s
            status = client.stats()
            for line in [*status["robots"], *status["recent"]]:
                task_id = line["task_id"]
                if task_id not in arrivals_s:
                    arrivals_s[task_id] = elapsed_s - float(line.get("age_s") or 0.0)
            # The server forgets a task minutes after its end.
            _add_demo_views(client, [line["task_id"] for line in status["recent"]], views)
            if console.is_terminal:
                frame = view.render_demo(status, script.ROBOTS, elapsed_s, options.seconds, console.width)
                live.update(frame)
            children.check()
            if not player.running or elapsed_s > limit:
                _add_demo_views(client, arrivals_s, views)
                return arrivals_s, [views[task_id] for task_id in arrivals_s if task_id in views]
            time.sleep(0.2)


def _add_demo_views(client: TimelyClient, task_ids: Iterable[str], views: dict[str, dict[str, Any]]) -> None:
    """Ask for the tasks that are not in ``views``; the server may have forgotten one."""
    for task_id in task_ids:
        if task_id not in views:
            with contextlib.suppress(UnknownName):
                views[task_id] = client.task(task_id)


def _make_demo_report(
    options: DemoOptions,
    views: list[dict[str, Any]],
    arrivals: Mapping[str, float],
    steps: Mapping[str, list[float]],
    status: Mapping[str, Any],
    answers: list[dict[str, Any]],
    console: Console,
) -> dict[str, Any]:
    for task in views:
        head = f"[dim]{arrivals[task['task_id']]:5.1f} s[/] {task['agent']:<7} {escape(task['task'])}"
        console.print(head, highlight=False, no_wrap=True, overflow="ellipsis")
        plan = " ".join(segment["text"] for segment in task["segments"]) or "(nothing)"
        console.print(Padding(f"[cyan]{escape(plan)}[/] {task['outcome']}", (0, 0, 0, 15)), highlight=False)
    console.print(view.demo_summary(views))
    for line in view.demo_out_of_reach(views):
        console.print(f"[yellow]{line}[/]", highlight=False)
    picture: Path | None = None
    if views:
        lanes = timeline.demo_timeline_lanes(views, arrivals)
        _add_demo_steps(lanes, views, steps)
        picture = options.out / "timeline.png"
        try:
            timeline.draw_demo_timeline(
                lanes, picture, f"Timely, discipline {options.discipline}: two drones and an arm on one model"
            )
        except ModuleNotFoundError as error:
            console.print(f"no picture: {error.name} is not installed (extra `report`)")
            picture = None
    result = {
        "seconds": options.seconds,
        "seed": options.seed,
        "discipline": options.discipline,
        "engine": dict(status["engine"]),
        "tasks": views,
        "ros_results": answers,
        "picture": str(picture) if picture else None,
    }
    target = options.out / "result.json"
    core_write_file(target, json.dumps(result, indent=1))
    if picture:
        console.print(f"timeline: {picture}    results: {target}")
    return result


def _add_demo_steps(
    lanes: list[timeline.Lane], views: list[dict[str, Any]], steps: Mapping[str, list[float]]
) -> None:
    for lane, task in zip(lanes, views, strict=True):
        for request_id, times in steps.items():
            if request_id.startswith(task["task_id"]):
                lane.steps = [lane.arrival_s + after for after in times]
