"""Where a driver keeps its memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from timely_robots import driver_store as driver_store_module
from timely_robots.driver_store import DriverStore
from timely_robots.ros.driver_settings import ros_driver_store

from timely.cli import serve
from timely.core.errors import InvalidInput
from timely.core.files import STATE_DIR_VARIABLE, core_write_file, default_state_folder

WAIT_S = 20.0


def test_a_user_without_a_home_folder_must_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user is a number."""

    def refuse(user: int) -> None:
        raise KeyError(user)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv(STATE_DIR_VARIABLE, raising=False)
    monkeypatch.setattr("pwd.getpwuid", refuse)
    with pytest.raises(InvalidInput, match=STATE_DIR_VARIABLE):
        default_state_folder()
    with pytest.raises(InvalidInput, match="--state-dir"):
        serve._cli_state_folder(None, 8000)


@pytest.mark.parametrize(
    ("state_dir", "simulated", "kept"), [("", False, "own"), ("", True, ""), ("named", True, "named")]
)
def test_the_memory_of_a_robot_that_moves_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_dir: str, simulated: bool, kept: str
) -> None:
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path / "own"))
    folder = str(tmp_path / state_dir) if state_dir else ""
    node: Any = SimpleNamespace(
        get_parameter=lambda name: SimpleNamespace(value=folder), get_namespace=lambda: "/arm1"
    )
    robot: Any = SimpleNamespace(simulated=simulated)
    store = ros_driver_store(node, robot)
    with store.stopping("a test"):
        store.save().result(WAIT_S)
    files = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")]
    assert files == ([f"{kept}/arm1.json"] if kept else [])
    store.close()


def test_the_memory_of_a_robot_has_one_driver_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "arm1.json"
    first = DriverStore(file)
    with pytest.raises(InvalidInput, match="another driver uses it"):
        DriverStore(file)
    with first.stopping("a test"):
        first.save().result(WAIT_S)
    first.close()
    second = DriverStore(file)
    assert second.stop_reason == "a test"
    second.close()


def test_a_driver_starts_while_its_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, log = tmp_path / "arm1.json", tmp_path / "arm1.tasks"
    log.write_text('"begun"\n"cut off by a crash')

    def refuse(path: Path, text: str) -> None:
        raise InvalidInput("cannot write it: No space left on device", where=str(path))

    with monkeypatch.context() as full:
        full.setattr(driver_store_module, "core_write_file", refuse)
        store = DriverStore(file)
        assert not store.begin_task("begun")
        with pytest.raises(InvalidInput):
            store.next_epoch()
        with store.stopping("a test"):
            pass
        assert store.stop_reason == "a test"
    assert store.begin_task("new")
    store.close()
    again = DriverStore(file)
    assert not again.begin_task("begun")
    assert not again.begin_task("new")
    again.close()


def test_the_list_of_begun_tasks_does_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_store_module, "MAX_TASKS", 20)
    monkeypatch.setattr(driver_store_module, "MAX_BYTES", 1000)
    file, log = tmp_path / "arm1.json", tmp_path / "arm1.tasks"
    store = DriverStore(file)
    sizes_bytes = []
    for number in range(300):
        assert store.begin_task(f"task-{number}")
        sizes_bytes.append(log.stat().st_size)
    store.close()
    assert 900 < max(sizes_bytes) <= 1000
    again = DriverStore(file)
    assert [again.has_begun(f"task-{number}") for number in (279, 280, 299)] == [False, True, True]
    again.close()


def test_a_stop_that_comes_while_a_reset_is_written_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "arm1.json"
    store = DriverStore(file)
    with store.stopping("first"):
        store.save().result(WAIT_S)
    stop = store.stopping("second")

    def write_and_stop(path: Path, text: str) -> None:
        core_write_file(path, text)
        stop.__enter__()

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(driver_store_module, "core_write_file", write_and_stop)
        with pytest.raises(InvalidInput, match="being stopped"):
            store.clear_stop()
    store.save().result(WAIT_S)
    stop.__exit__(None, None, None)
    assert store.stop_reason == "second"
    store.close()
    again = DriverStore(file)
    reasons = [again.stop_reason]
    again.clear_stop()
    assert [*reasons, again.stop_reason] == ["second", None]
    again.close()


def test_a_stop_that_comes_before_the_disk_takes_a_reset_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    store = DriverStore()
    with store.stopping("first"):
        pass
    submit = store._disk.submit

    def stop_and_submit(*work: Any) -> Any:
        with store.stopping("second"):
            pass  # it is answered at once, without the disk
        return submit(*work)

    monkeypatch.setattr(store._disk, "submit", stop_and_submit)
    with pytest.raises(InvalidInput, match="being stopped"):
        store.clear_stop()
    assert store.stop_reason == "second"
    store.close()


def test_a_stop_that_the_disk_refused_is_saved_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise InvalidInput("cannot write it: No space left on device", where=str(path))

    file = tmp_path / "arm1.json"
    store = DriverStore(file)
    with store.stopping("a test"), monkeypatch.context() as full:
        full.setattr(driver_store_module, "core_write_file", refuse)
        with pytest.raises(InvalidInput):
            store.save().result(WAIT_S)
    unsaved = [store.stop_unsaved]
    store.catch_up()
    store.close()
    assert [*unsaved, store.stop_unsaved] == [True, False]
    again = DriverStore(file)
    assert again.stop_reason == "a test"
    again.close()
