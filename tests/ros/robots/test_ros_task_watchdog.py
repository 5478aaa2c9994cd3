"""What a driver knows of its tasks: alive, planned to the end, ended, orphaned."""

from __future__ import annotations

from timely_interfaces.msg import Task
from timely_robots.task_watchdog import MAX_TASKS, RobotTaskWatchdog


def watchdog() -> RobotTaskWatchdog:
    return RobotTaskWatchdog(Task.PLANNED, Task.ENDED, 3.0)


def test_a_task_nobody_announced_is_left_alone() -> None:
    tasks = watchdog()
    assert not tasks.alive("t", 1e6)
    assert not tasks.is_orphaned("t", 1e6)
    assert not tasks.expects_more("t", 0, 1e6)
    assert not tasks.has_ended("t")


def test_a_task_that_is_being_planned_wants_more_until_it_is_planned_to_the_end() -> None:
    tasks = watchdog()
    tasks.observe("t", Task.PLANNING, 1, 10.0)
    assert tasks.expects_more("t", 0, 11.0)
    tasks.observe("t", Task.PLANNED, 2, 11.0)
    assert tasks.expects_more("t", 0, 11.0)
    assert not tasks.expects_more("t", 1, 11.0)


def test_an_ended_task_stays_ended_whatever_comes_late() -> None:
    tasks = watchdog()
    tasks.observe("t", Task.ENDED, 2, 10.0)
    tasks.observe("t", Task.PLANNING, 1, 10.5)
    assert tasks.has_ended("t")
    assert not tasks.alive("t", 10.5)
    assert not tasks.is_orphaned("t", 1e6)


def test_silence_orphans_and_a_word_brings_it_back() -> None:
    tasks = watchdog()
    tasks.observe("t", Task.PLANNING, 1, 10.0)
    assert tasks.alive("t", 13.0)
    assert not tasks.is_orphaned("t", 13.0)
    assert tasks.is_orphaned("t", 13.1)
    assert not tasks.expects_more("t", 0, 13.1)
    assert tasks.silence_s_of("t", 13.5) == 3.5
    tasks.observe("t", Task.PLANNING, 1, 14.0)
    assert tasks.alive("t", 14.0)


def test_only_so_many_tasks_are_remembered() -> None:
    tasks = watchdog()
    for task_id in (*(f"t{number}" for number in range(MAX_TASKS)), "t0", "new"):
        tasks.observe(task_id, Task.PLANNING, 0, 0.0)
    assert [tasks.alive(task_id, 0.0) for task_id in ("t0", "t1", "t2", "new")] == [True, False, True, True]


def test_announcements_of_other_tasks_do_not_end_the_watch_of_the_task_in_execution() -> None:
    tasks = watchdog()
    tasks.observe("mine", Task.PLANNING, 1, 10.0)
    for number in range(2 * MAX_TASKS):
        tasks.observe(f"other{number}", Task.PLANNING, 1, 10.0, {"mine"})
    assert tasks.is_orphaned("mine", 20.0)
    assert not tasks.is_orphaned("other0", 20.0), "it is still remembered"


def test_time_in_which_nobody_could_be_heard_is_no_silence() -> None:
    tasks = watchdog()
    tasks.observe("t", Task.PLANNING, 1, 10.0)
    tasks.forgive(5.0)
    assert tasks.alive("t", 17.9)
    assert tasks.is_orphaned("t", 18.1)


def test_after_a_pause_only_a_later_announcement_shows_that_the_bridge_is_there() -> None:
    tasks = watchdog()
    tasks.observe("t", Task.PLANNING, 1, 10.0)
    tasks.observe("t", Task.PLANNING, 1, 20.0)  # waited in a buffer during the pause
    tasks.doubt(20.25)
    assert tasks.doubtful("t", 20.1)
    tasks.observe("t", Task.PLANNING, 1, 20.2)
    assert tasks.doubtful("t", 22.2)
    assert not tasks.doubtful("never announced", 22.2)
    assert tasks.is_orphaned("t", 22.3)
    tasks.observe("t", Task.PLANNING, 1, 22.3)
    assert tasks.alive("t", 25.2)
    assert not tasks.doubtful("t", 25.2)


def test_after_a_pause_a_task_without_an_announcement_waits_and_is_orphaned() -> None:
    tasks = watchdog()
    tasks.observe("t", Task.PLANNING, 1, 10.0)
    assert tasks.is_orphaned("t", 20.0)
    tasks.doubt(20.0)
    assert tasks.doubtful("t", 21.9)
    assert tasks.is_orphaned("t", 22.1)
    assert not tasks.doubtful("t", 22.1), "its motions are refused, and do not wait"
