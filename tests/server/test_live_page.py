"""The live page in Debian's Chromium: what an operator does with it, and that no script fails meanwhile."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet import TOKEN, WAIT_S, Fleet, Reader, body, fleet
from guarded import TOKENS, write_principals
from manual_clock import ManualClock
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from timely.client import TimelyClient
from timely.core.errors import EngineFailed
from timely.principals import PrincipalRegistry

pytestmark = pytest.mark.process
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    expect.set_options(timeout=1000 * WAIT_S)
    with (
        sync_playwright() as playwright,
        # Root, as in a container, has no sandbox.
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as chromium,
    ):
        yield chromium


@pytest.fixture
def page(browser: Browser, served: Fleet) -> Iterator[Page]:
    """The page of ``served``; a test fails with the first error on the page's console."""
    errors: list[str] = []
    with browser.new_context(color_scheme="light") as context:
        page = context.new_page()
        page.set_default_timeout(1000 * WAIT_S)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(f"{served.server.url}/")
        expect(page.locator("#health")).to_have_text("serving")
        yield page
    assert errors == []


def submit(served: Fleet, **fields: Any) -> None:
    """A task whose stream is left after its first event; time stands still, so the task stays."""
    with served.http.stream("POST", "/v1/tasks", json=body(**fields)) as response:
        Reader(response).next()


def test_a_task_is_watched_from_its_plan_to_its_end(page: Page, served: Fleet) -> None:
    expect(page.locator("#robots")).to_contain_text("No robot has a task")
    submit(served, task="long", agent="drone-7")
    served.run_for(0.5)
    row = page.locator("#robots tbody tr")
    expect(row).to_contain_text("drone-7")
    expect(row.locator("code").first).to_contain_text("tc(10)")
    served.run_for(60.0)
    expect(page.locator("#recent tbody tr")).to_contain_text("drone-7")
    expect(page.locator("#timeline svg")).to_contain_text("drone-7")


def test_a_robot_that_has_executed_its_plan_waits_for_nothing(page: Page, served: Fleet) -> None:
    submit(served, task="short", agent="drone-7")
    served.run_for(5.0)  # the robot needs 3 s by its profile, and has reported nothing
    expect(page.locator("#robots tbody tr")).to_contain_text("plan complete")
    expect(page.locator("#timeline svg")).to_contain_text("drone-7")
    now_x = float(page.locator("#timeline line.now").get_attribute("x1") or "nan")
    bars = "[...document.querySelectorAll('#timeline rect[fill=\"var(--wait)\"]')]"
    ends_x = page.evaluate(f"{bars}.map(bar => bar.x.baseVal.value + bar.width.baseVal.value)")
    assert max(ends_x, default=0.0) < now_x - 1.0


def test_the_page_goes_on_while_no_engine_runs(
    page: Page, served: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise EngineFailed("no memory", where="vllm")

    submit(served, task="long", agent="drone-7")
    monkeypatch.setattr(served.engine, "start", broken)
    served.call(lambda: served.engine.crash("out of memory"))
    served.run_for(2.0)
    expect(page.locator("#health")).to_have_text("engine restarting, attempt 4, next try in 2 s")
    expect(page.locator("#robots tbody tr")).to_contain_text("waits for the engine")
    monkeypatch.undo()
    served.run_for(2.0)
    expect(page.locator("#health")).to_have_text("serving")


def test_a_robot_that_its_bridge_cannot_move_is_shown_with_the_reason(page: Page, served: Fleet) -> None:
    expect(page.locator("#problems")).to_be_hidden()
    with TimelyClient(served.url) as bridge:
        orders = bridge.stop_orders(["drone-1", "drone-2"])
        next(orders)
        bridge.report_robot_problems({"drone-2": "the link to the robot is lost: nothing heard for 5 s"})
        words = "drone-2 the link to the robot is lost: nothing heard for 5 s"
        expect(page.locator("#problems")).to_have_text(words)
        bridge.report_robot_problems({})
        expect(page.locator("#problems")).to_be_hidden()
        orders.close()


def test_robots_of_one_name_are_shown_with_their_bridges(page: Page, served: Fleet) -> None:
    with TimelyClient(served.url) as hall, TimelyClient(served.url) as lab:
        orders = [hall.stop_orders(["arm"], "hall"), lab.stop_orders(["arm"])]
        for one in orders:
            next(one)
        words = "arm several bridges have a robot of this name: without a name, hall"
        expect(page.locator("#problems")).to_have_text(words)
        for one in orders:
            one.close()


def test_the_discipline_is_switched(page: Page, served: Fleet) -> None:
    page.locator("#discipline").select_option("fcfs")
    expect(page.locator("#toast")).to_have_text("Discipline is now fcfs.")
    assert served.http.get("/v1/disciplines").json()["current"] == "fcfs"


def test_a_plan_is_cancelled_and_the_fleet_stopped_and_released(page: Page, served: Fleet) -> None:
    submit(served, task="long")
    row = page.locator("#robots tbody tr")
    row.hover()
    row.get_by_role("button", name="Cancel").click()
    expect(page.locator("#recent tbody tr")).to_contain_text("cancelled")
    page.get_by_role("button", name="Stop all robots").click()
    expect(page.locator("#stopped")).to_contain_text("No robot has acknowledged the stop.")
    stop = served.http.get("/v1/stop").json()
    assert stop["stopped"]
    expect(page.locator("#stopped")).to_contain_text(f"live page, by {stop['principal']}")
    with page.expect_request("**/v1/stop/reset") as reset:
        page.get_by_role("button", name="Reset the stop").click()
    assert "stop_id" in (reset.value.post_data_json or {})
    expect(page.locator("#stopped")).to_be_hidden()
    assert not served.http.get("/v1/stop").json()["stopped"]


def test_a_page_that_outlives_its_session_begins_another(page: Page, served: Fleet) -> None:
    """As after a restart of the server, which keeps no sessions: an operator need not load the page again."""
    with page.expect_response(lambda response: response.url == f"{served.server.url}/"):
        page.context.clear_cookies()
    submit(served, task="long")
    row = page.locator("#robots tbody tr")
    row.hover()
    row.get_by_role("button", name="Cancel").click()
    expect(page.locator("#recent tbody tr")).to_contain_text("cancelled")


def test_a_principal_with_few_rights_is_offered_what_it_may(browser: Browser, tmp_path: Path) -> None:
    write_principals(tmp_path / "principals.yaml")
    clock = ManualClock(100.0)
    registry = PrincipalRegistry(tmp_path / "principals.yaml", None, clock)
    with fleet(clock=clock, registry=registry) as served, browser.new_context() as context:
        planner, ops = ({"Authorization": f"Bearer {TOKENS[name]}"} for name in ("planner", "ops"))
        request = body("long", agent="drone-1")
        with served.http.stream("POST", "/v1/tasks", json=request, headers=planner) as response:
            Reader(response).next()
        page = context.new_page()
        page.goto(f"{served.server.url}/")
        page.locator("#token").fill(TOKENS["planner"])
        page.locator("#login button").click()
        row = page.locator("#robots tbody tr")
        expect(row).to_contain_text("drone-1")
        expect(row.get_by_role("button")).to_have_count(0)
        expect(page.locator("#discipline")).to_be_disabled()
        assert served.http.post("/v1/stop", json={"deadline_s": 0.0}, headers=ops).is_success
        expect(page.locator("#stopped")).to_contain_text("Its robots are not shown to this principal.")
        expect(page.locator("#stopped").get_by_role("button")).to_have_count(0)


def test_light_and_dark(page: Page) -> None:
    def background() -> object:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    page.locator("#theme").click()
    assert background() != light
    page.reload()
    assert background() != light, "the choice is kept"


def test_400_robots_and_nothing_wider_than_the_window(page: Page, served: Fleet) -> None:
    for number in range(400):
        submit(served, task="long", agent=f"drone-{number}")
    expect(page.locator("#robots-note")).to_have_text("400 with a task")
    agents = page.locator("#robots tbody .agent")
    expect(agents).to_have_text([f"drone-{number}" for number in range(400)])
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert TOKEN not in page.content()


def right_edge(part: Locator) -> float:
    """In pixels. While the page draws its rows anew, an old one has no place."""
    deadline_s = time.monotonic() + WAIT_S
    while (box := part.bounding_box()) is None:
        assert time.monotonic() < deadline_s, part
    return box["x"] + box["width"]


def test_a_long_name_hides_no_column(page: Page, served: Fleet) -> None:
    submit(served, task="long", agent="x" * 128)
    served.run_for(60.0)
    cells = page.locator("#recent tbody td")
    expect(cells.first).to_contain_text("xxx")
    assert right_edge(cells.last) <= page.evaluate("innerWidth")


def test_a_phone_shows_all_of_a_task_and_cuts_no_text(page: Page, served: Fleet) -> None:
    submit(served, task="long", agent="drone-6", tuf="urgent")
    submit(served, task="long", agent="drone-7")
    served.run_for(60.0)
    submit(served, task="long", agent="drone-8")
    served.run_for(0.5)
    page.set_viewport_size({"width": 390, "height": 800})
    expect(page.locator("#n-share")).to_contain_text("served")
    row = page.locator("#robots tbody tr")
    expect(row).to_have_count(1)
    for part in (row.locator("code").first, row.locator(".chip"), page.locator("#recent td").nth(5)):
        assert right_edge(part) <= 390.0, part
    wide = "[...document.querySelectorAll('.tile')].filter(tile => tile.scrollWidth > tile.clientWidth)"
    assert page.evaluate(f"{wide}.map(tile => tile.innerText)") == []
    labels = "[...document.querySelectorAll('#timeline text[text-anchor]')].map(text => text.getBoundingClientRect())"
    places = sorted(page.evaluate(f"{labels}.map(box => [box.left, box.right])"))
    assert all(left_of[1] < right_of[0] for left_of, right_of in itertools.pairwise(places)), places
