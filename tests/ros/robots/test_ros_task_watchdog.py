"""What a driver knows of its tasks: alive, planned to the end, ended, orphaned."""

from __future__ import annotations

from timely_interfaces.msg import Task
from timely_robots.task_watchdog import REMEMBERED, Lifeline


def lifeline() -> Lifeline:
    return Lifeline(Task.PLANNED, Task.ENDED, 3.0)


def test_a_task_nobody_announced_is_left_alone() -> None:
    line = lifeline()
    assert not line.lives("t", 1e6)
    assert not line.orphaned("t", 1e6)
    assert not line.wants_more("t", 0, 1e6)
    assert not line.ended("t")


def test_a_task_that_is_being_planned_wants_more_until_it_is_planned_to_the_end() -> None:
    line = lifeline()
    line.hear("t", Task.PLANNING, 1, 10.0)
    assert line.wants_more("t", 0, 11.0)
    line.hear("t", Task.PLANNED, 2, 11.0)
    assert line.wants_more("t", 0, 11.0)
    assert not line.wants_more("t", 1, 11.0)


def test_an_ended_task_stays_ended_whatever_comes_late() -> None:
    line = lifeline()
    line.hear("t", Task.ENDED, 2, 10.0)
    line.hear("t", Task.PLANNING, 1, 10.5)
    assert line.ended("t")
    assert not line.lives("t", 10.5)
    assert not line.orphaned("t", 1e6)


def test_silence_orphans_and_a_word_brings_it_back() -> None:
    line = lifeline()
    line.hear("t", Task.PLANNING, 1, 10.0)
    assert line.lives("t", 13.0)
    assert not line.orphaned("t", 13.0)
    assert line.orphaned("t", 13.1)
    assert not line.wants_more("t", 0, 13.1)
    assert line.silence_of("t", 13.5) == 3.5
    line.hear("t", Task.PLANNING, 1, 14.0)
    assert line.lives("t", 14.0)


def test_only_so_many_tasks_are_remembered() -> None:
    line = lifeline()
    for number in range(REMEMBERED + 1):
        line.hear(f"t{number}", Task.PLANNING, 0, 0.0)
    assert not line.lives("t0", 0.0)
    assert line.lives("t1", 0.0)


def test_time_in_which_nobody_could_be_heard_is_no_silence() -> None:
    line = lifeline()
    line.hear("t", Task.PLANNING, 1, 10.0)
    line.excuse(5.0)
    assert line.lives("t", 17.9)
    assert line.orphaned("t", 18.1)
