"""Tasks over an upgrade and a downgrade: what a server makes of records and descriptions of another release."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fleet import ARM, CHAT, DRONE, TINY, Fleet, MemoryCatalogue
from killed_server import cut, rest, server
from later_release import LaterSkillSet
from pydantic import Field

from lrtrace.robot_profile import ArgumentLimit, RobotProfile, SkillProfile
from timely.core.record_log import read_record_log, record_log_line
from timely.plans.prompt import Prompt
from timely.server.tasks.stop_file import SavedServerStop, ServerStopFile
from timely.server.tasks.task_log import KINDS, Record

RELEASED_LOG = Path(__file__).with_name("released_tasks.log")
"""Every kind of record, as the first version of the format wrote it. It stays as it is: later releases read it."""

STATES = {
    "plans": ("generating", None),
    "asks": ("executing", "complete"),
    "moves": ("generating", None),
    "cancelled": ("ended", "cancelled"),
    "failed": ("ended", "failed"),
}
"""State and outcome of each of its tasks when the log was written."""


class LaterLimit(ArgumentLimit):
    step: float | None = None


class LaterSkillProfile(SkillProfile):
    args: dict[str, LaterLimit] = Field(default_factory=dict)  # type: ignore[assignment]
    wear: float = 0.0


class LaterProfile(RobotProfile):
    skills: dict[str, LaterSkillProfile] = Field(min_length=1)  # type: ignore[assignment]
    payload_kg: float | None = None


def later_catalogue(**changes: Any) -> MemoryCatalogue:
    """The same files, read by a release that adds a field to each part."""
    drone = LaterSkillSet.model_validate({**DRONE.model_dump(exclude_unset=True), **changes})
    tiny = LaterProfile.model_validate(TINY.model_dump(exclude_unset=True))
    return MemoryCatalogue([drone, CHAT], [tiny, ARM])


def test_fields_that_a_release_adds_to_skill_sets_and_profiles_replan_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, before = cut(tmp_path, "long", seconds=3.0)
    monkeypatch.setattr("fleet.catalogue", later_catalogue)
    with server(state, now=104.0) as served:
        assert served.http.get("/v1/tasks/one").json()["history"] == ""
        after = rest(served, before[-1][0])
    assert (after[-1][1], after[-1][2]["outcome"]) == ("result", "complete")


@pytest.mark.parametrize(
    "changes", [{"dialect": "x"}, {"max_statements": 11}, {"version": 2}, {"guidance": "Fly low."}]
)
def test_a_field_that_says_something_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    state, _ = cut(tmp_path, "long", seconds=3.0)
    monkeypatch.setattr("fleet.catalogue", lambda: later_catalogue(**changes))
    with server(state, now=104.0) as served:
        assert "another model, skill set" in served.http.get("/v1/tasks/one").json()["history"]


def test_the_fingerprint_of_a_plan_stays_what_it_was_in_earlier_releases(tmp_path: Path) -> None:
    """Where it differs, an upgrade gives every live task another plan: change it with a reason only."""
    with server(tmp_path) as served:
        fingerprint = served.service._admission._fingerprint(DRONE, TINY, Prompt("system", "user"))
    assert fingerprint == "984a8b5814d20d14be5d74d5c63e0b0e1dc96b936dc0cacab44eb28ff59c9cf5"


def test_a_task_whose_skill_set_is_gone_ends_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, before = cut(tmp_path, "long", seconds=3.0)
    monkeypatch.setattr("fleet.catalogue", lambda: MemoryCatalogue([CHAT], [TINY]))
    for now in (104.0, 106.0):
        with server(state, now=now) as served:
            events = rest(served, 1, seconds=1.0)
        *segments, (_, name, error) = events
        assert segments == before[1:]
        assert (name, error["code"], error["outcome"]) == ("error", "interrupted", "failed")
        assert "tiny-drone" in error["detail"]


# ---------------------------------------------------------------------- records


def released(folder: Path, change: Callable[[Record], Record] = lambda record: record) -> Path:
    """A state folder with the released log as if it had been written just now, with each record changed."""
    records, damaged_lines, is_torn = read_record_log(RELEASED_LOG)
    assert (damaged_lines, is_torn) == ([], False)
    header = {**records[0], "wall_s": time.time()}
    lines = [record_log_line(change(record)) for record in (header, *records[1:])]
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks" / "00000001.log").write_bytes(b"".join(lines))
    return folder


def restored(served: Fleet) -> dict[str, tuple[str, str | None]]:
    views = {
        task.task_id: served.http.get(f"/v1/tasks/{task.task_id}").json()
        for task in served.service.tasks.all_tasks()
    }
    return {name: (view["state"], view["outcome"]) for name, view in views.items()}


def test_every_kind_of_record_is_in_the_released_log() -> None:
    records = read_record_log(RELEASED_LOG).records
    assert {record["kind"] for record in records[1:]} == KINDS


def test_records_of_the_first_version_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with server(released(tmp_path), now=1000.0) as served:
        assert restored(served) == STATES
        asks = served.http.get("/v1/tasks/asks").json()
        assert [segment["value"] for segment in asks["segments"]] == ["True", None]
        assert served.http.get("/v1/tasks/plans").json()["urgency"] == 0
        assert served.http.get("/v1/tasks/moves").json()["history"] != ""
    assert "cannot be restored" not in caplog.text


def extended(value: Any) -> Any:
    """A value as a later release may write it: each object has a further field, each list of fields a further place."""
    if isinstance(value, dict):
        lists = {"ending", "annotation", "bucket"}
        longer = {
            name: [*part, "later"] if name in lists and part is not None else extended(part)
            for name, part in value.items()
        }
        return {**longer, "later": {"a": 1}}
    return [extended(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", ["header", *sorted(KINDS)])
def test_fields_of_a_later_release_are_left_out(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def change(record: Record) -> Record:
        return extended(record) if record.get("kind", "header") == kind else record

    with server(released(tmp_path, change), now=1000.0) as served:
        assert restored(served) == STATES
    assert "cannot be restored" not in caplog.text


def test_kinds_of_a_later_release_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = released(tmp_path)
    with (state / "tasks" / "00000001.log").open("ab") as file:
        file.write(record_log_line({"kind": "paused", "task": "plans"}))
        file.write(record_log_line({"kind": "quota", "owner": "drones"}) * 2)
    with server(state, now=1000.0) as served:
        assert restored(served) == STATES
    assert "records of a later release are left out: 1 paused, 2 quota" in caplog.text


def test_a_stop_of_a_later_release_is_read(tmp_path: Path) -> None:
    stop = {"stop_id": "stop-1", "reason": "smoke", "principal": "jane", "robots": ["drone-1"], "zone": 3}
    (tmp_path / "stop.json").write_text(json.dumps(stop))
    (tmp_path / "robots.json").write_text(json.dumps({"robots": ["drone-2"], "complete": True, "zones": {}}))
    assert ServerStopFile(tmp_path).read() == SavedServerStop("stop-1", "smoke", "jane", ("drone-1",))
    assert ServerStopFile(tmp_path).read_robots() == ({"drone-2": [""]}, True)


def test_robots_keep_their_bridges_over_a_restart(tmp_path: Path) -> None:
    bridges = {"arm": ["hall", "lab"], "drone-1": [""], "drone-2": ["", "hall"]}
    assert ServerStopFile(tmp_path).write_robots(bridges, complete=True)
    assert ServerStopFile(tmp_path).read_robots() == (bridges, True)
    names = json.loads((tmp_path / "robots.json").read_bytes())["robots"]
    assert names == list(bridges), "earlier releases read the names alone"
