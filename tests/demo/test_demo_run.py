"""The demonstration's account of its tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from rich.console import Console

from timely.client import TimelyClient
from timely.core.child_process import ChildProcess, ChildProcesses
from timely.core.errors import EngineFailed
from timely.demo import run

FORGOTTEN_S = 300.0


class Server:
    """A task a minute, each for ten seconds; tasks are forgotten as long after their end as on a server."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.is_up = True

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def answer(self, request: httpx.Request) -> httpx.Response:
        if not self.is_up:
            raise httpx.ConnectError("refused", request=request)
        arrivals_s = [60.0 * number for number in range(1 + int(self.now_s // 60.0))]
        _, _, page = request.url.path.rpartition("/")
        if page == "status":
            lines = [
                {"task_id": f"t{arrival_s:.0f}", "age_s": self.now_s - arrival_s} for arrival_s in arrivals_s
            ]
            robots = [line for line in lines if cast(float, line["age_s"]) < 10.0]
            recent = [{"task_id": line["task_id"]} for line in lines if line not in robots]
            return httpx.Response(200, json={"robots": robots, "recent": recent[-5:]})
        if self.now_s - float(page[1:]) > 10.0 + FORGOTTEN_S:
            return httpx.Response(404, json={"code": "unknown_name", "detail": "forgotten"})
        return httpx.Response(200, json={"task_id": page})


def watch(
    server: Server, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> tuple[dict[str, float], list[Any]]:
    clock = SimpleNamespace(monotonic=lambda: server.now_s, sleep=server.sleep)
    monkeypatch.setattr(run, "time", clock)
    children = cast(ChildProcesses, SimpleNamespace(check=lambda: None))
    player = cast(ChildProcess, SimpleNamespace(running=True))
    with TimelyClient("http://demo", transport=httpx.MockTransport(server.answer)) as client:
        return run._watch_demo(run.DemoOptions(seconds), children, player, client, Console(quiet=True))


@pytest.mark.process
def test_a_long_demonstration_counts_the_tasks_that_the_server_has_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrivals_s, views = watch(Server(), monkeypatch, 1200.0)
    assert len(arrivals_s) == 21
    assert [view["task_id"] for view in views] == list(arrivals_s)
    assert arrivals_s["t600"] == pytest.approx(600.0)


def test_a_server_that_is_gone_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.is_up = False
    with pytest.raises(EngineFailed, match=r"^http://demo: ConnectError: refused$"):
        watch(server, monkeypatch, 60.0)
