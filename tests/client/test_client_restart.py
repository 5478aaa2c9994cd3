"""A client goes on with its plan when the server is killed and started again on the same state folder."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from cutting_proxy import CuttingProxy
from fleet import Fleet, fleet
from manual_clock import ManualClock

from timely.client import TimelyClient

AWAY_S = 15.0
"""The client gives up after 20 s by default."""


def test_a_plan_goes_on_over_a_killed_server(tmp_path: Path) -> None:
    """A killed server is one whose connections end and whose state folder is what a copy had at that moment."""
    clock, servers = ManualClock(100.0), ExitStack()
    restarted: list[Fleet] = []

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if clock.now() >= 100.0 + AWAY_S and not restarted:
            restarted.append(
                servers.enter_context(fleet(state_dir=tmp_path / "killed", clock=ManualClock(clock.now())))
            )
            proxy.forward_to(restarted[0].url)
            restarted[0].run_for(60.0)

    with servers:
        first = servers.enter_context(fleet(state_dir=tmp_path / "first", clock=ManualClock(100.0)))
        proxy = servers.enter_context(CuttingProxy(first.url))
        client = servers.enter_context(TimelyClient(proxy.url, agent="drone-1", clock=clock, sleep=sleep))
        plan = client.submit("long", skill_set="tiny-drone")
        first.run_for(2.0)
        seen = [next(plan), next(plan)]
        plan.report_done(seen[0])
        shutil.copytree(tmp_path / "first", tmp_path / "killed")
        proxy.cut_all()
        plan.report_done(seen[1])  # repeated until the server is back
        seen += list(plan)
        assert restarted
        assert clock.now() < 100.0 + AWAY_S + 5.0
        assert [segment.text for segment in seen] == [f"tc({10 * n});" for n in range(1, 13)]
        assert plan.result.outcome == "complete"
        plan.report_done(seen[1])  # its token holds
