"""A driver's stop: answered while anything hangs, kept over restarts, and reset by an operator only."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

import pytest
from driver_bench import driver_bench
from rclpy.impl.implementation_singleton import rclpy_implementation
from ros_harness import AT_ONCE_S, LIMIT_S, eventually, principals
from std_srvs.srv import Trigger
from timely_interfaces.msg import RobotState, Task
from timely_interfaces.srv import AcquireLease, ConfirmSkill, ResetStop
from timely_robots.error_codes import ErrorCode
from timely_robots.ros import safety_services
from timely_robots.ros.spinner import EXECUTOR_VARIABLE

pytestmark = [pytest.mark.ros]
OPERATOR, PROGRAM = "token-of-an-operator-of-all", "token-of-a-program-of-none"


def test_a_stop_answers_while_the_executor_is_held_up(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, speed=1.0) as bench:
        moving = bench.send("d(60);")
        bench.until(lambda s: s.mode == RobotState.EXECUTING)
        bench.program.call(Trigger, "/robot1/driver/stop")  # finds the service
        assert moving.result().error_code == ErrorCode.DRIVER_STOPPED
        assert bench.call(ResetStop, "reset").success
        held = threading.Event()
        bench.spinner.call(lambda: held.wait(LIMIT_S))  # a parse or a vendor call on the executor
        begin_s = time.monotonic()
        answer = bench.program.call(Trigger, "/robot1/driver/stop")
        assert answer.success, answer.message
        assert bench.robot.halts[-1] - begin_s < AT_ONCE_S
        held.set()
        # The last reading of the robot may be from before the halt.
        bench.until(lambda s: s.mode == RobotState.STOPPED and s.halted and s.at_rest)
        assert answer.message.endswith("; call /robot1/driver/reset to go on")
        refused = bench.send("d(1);").result()
        assert refused.error_msg == "the robot was stopped; call /robot1/driver/reset first"


def test_a_stop_of_a_robot_whose_halt_hangs_is_no_success(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        bench.robot.hang.set()
        begin_s = time.monotonic()
        answers = [bench.call(Trigger, "stop") for _ in range(2)]
        assert time.monotonic() - begin_s < 2 * AT_ONCE_S
        assert [answer.success for answer in answers] == [False, False]
        assert all("unknown" in answer.message for answer in answers)
        assert len(bench.robot.halts) == 2, "the second stop waited for the first"
        assert not bench.until(lambda s: s.mode == RobotState.STOPPED).halted
        assert bench.send("d(1);").result().error_code == ErrorCode.DRIVER_STOPPED


def test_a_stop_of_a_robot_whose_link_is_lost_is_no_success(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        bench.robot.link_lost = True
        answer = bench.call(Trigger, "stop")
        assert (answer.success, answer.message) == (False, "unknown: the link to the robot is lost")
        assert not bench.until(lambda s: s.mode == RobotState.STOPPED).halted
        assert bench.robot.halts
        assert bench.send("d(1);").result().error_code == ErrorCode.DRIVER_STOPPED
        bench.robot.link_lost = False
        assert bench.call(Trigger, "stop").success
        bench.until(lambda s: s.halted)


def test_a_stop_that_is_repeated_until_a_reset_leaves_a_line_for_each_new_answer(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(
        rclpy_implementation, "rclpy_logging_rcutils_log", lambda _, name, message, *__: lines.append(message)
    )
    with driver_bench(domain_id, tmp_path) as bench:
        bench.robot.link_lost = True
        answers = [bench.call(Trigger, "stop").message for _ in range(5)]
        bench.robot.link_lost = False
        answers.append(bench.call(Trigger, "stop").message)
        assert bench.call(ResetStop, "reset").success
        last = bench.call(Trigger, "stop").message
        expected = [f"stop: {answer}" for answer in [*(answer for answer, _ in groupby(answers)), last]]
        eventually(lambda: len([line for line in lines if line.startswith("stop: ")]) >= len(expected))
    assert [line for line in lines if line.startswith("stop: ")] == expected


def test_an_inactive_driver_keeps_a_stop_whose_halt_hangs(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        bench.transition("deactivate")
        bench.robot.hang.set()
        assert "unknown" in bench.call(Trigger, "stop").message
        bench.robot.hang.clear()
        bench.transition("activate")
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED


def test_a_stop_without_a_connection_to_the_robot_is_no_success_and_is_kept(
    domain_id: int, tmp_path: Path
) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        bench.transition("deactivate", "cleanup")
        answer = bench.call(Trigger, "stop")
        assert (answer.success, answer.message) == (
            False,
            "unknown: the driver is not connected to its robot",
        )
        bench.transition("configure", "activate")
        assert bench.robot.halts
        bench.until(lambda s: s.mode == RobotState.STOPPED and s.halted)


def test_a_stop_survives_deactivation_and_restart_until_a_reset(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.call(Trigger, "stop").success
        bench.transition("deactivate", "activate")
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.until(lambda s: s.mode == RobotState.STOPPED).halted
        assert bench.robot.halts, "the new driver did not halt the robot"
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        assert bench.call(ResetStop, "reset").success
        result = bench.send("mf(20);", "t2").result()
        assert result.outcome == "done", (result.error_code, result.error_msg)
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.until(lambda s: s.mode == RobotState.READY)


def test_a_reset_of_a_busy_driver_leaves_a_later_stop(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.call(Trigger, "stop").success
        with bench.busy():
            assert bench.call(ResetStop, "reset").success
            assert bench.call(Trigger, "stop").success
        bench.until(lambda state: state.mode == RobotState.STOPPED and state.halted)
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED


def test_a_reset_is_answered_when_segments_are_taken_again(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety_services, "RESET_S", LIMIT_S)
    with driver_bench(domain_id, tmp_path) as bench, ThreadPoolExecutor(1) as pool:
        assert bench.call(Trigger, "stop").success
        with bench.busy():
            answer = pool.submit(bench.call, ResetStop, "reset")
            with pytest.raises(TimeoutError):
                answer.result(0.3)
        assert answer.result(LIMIT_S).success
        result = bench.send("mf(20);").result()
        assert result.outcome == "done", result.error_msg


def test_a_reset_releases_the_stop_that_it_names_and_no_other(domain_id: int, tmp_path: Path) -> None:
    """One stop came from the network late, and one after it."""
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.call(Trigger, "stop").success
        earlier = bench.until(lambda state: state.stop_id).stop_id
        assert bench.call(Trigger, "stop").success
        later = bench.until(lambda state: state.stop_id not in ("", earlier)).stop_id
        for stop_id in (earlier, "none"):
            late = bench.call(ResetStop, "reset", stop_id=stop_id)
            assert not late.success
            assert "stopped again" in late.message
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        for _ in range(2):
            assert bench.call(ResetStop, "reset", stop_id=later).success
        bench.until(lambda state: state.mode == RobotState.READY and not state.stop_id)
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.call(Trigger, "stop").success
        before_restart = bench.until(lambda state: state.stop_id).stop_id
    with driver_bench(domain_id, tmp_path) as bench:
        assert not bench.call(ResetStop, "reset", stop_id=before_restart).success


@pytest.mark.parametrize("executor", ["events", "single"])
def test_a_segment_that_waited_while_a_stop_was_reset_is_refused(
    domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    """The single-threaded executor takes one message of each kind, and then all tasks."""
    monkeypatch.setenv(EXECUTOR_VARIABLE, executor)
    with driver_bench(domain_id, tmp_path) as bench:
        assert bench.send("mf(20);", "before").result().outcome == "done"
        with bench.busy():
            waiting = [bench.send("mf(20);", f"waiting-{number}") for number in range(3)]
            assert bench.call(Trigger, "stop").success
            assert bench.call(ResetStop, "reset").success
        assert [goal.result().error_code for goal in waiting] == [ErrorCode.DRIVER_STOPPED] * 3
        assert bench.send("mf(20);", "after").result().outcome == "done"


def test_only_an_operator_resets_takes_over_and_confirms(domain_id: int, tmp_path: Path) -> None:
    file = tmp_path / "principals.yaml"
    file.write_text(principals(("ann", "operator", OPERATOR), ("arm", "robot", PROGRAM)))
    with driver_bench(domain_id, tmp_path / "state", principals=str(file)) as bench:
        assert bench.call(Trigger, "stop").success, "a stop needs no token"
        for token in ("", PROGRAM):
            refused = bench.call(ResetStop, "reset", token=token)
            assert not refused.success
            assert "operator" in refused.message
        assert bench.send("mf(20);").result().error_code == ErrorCode.DRIVER_STOPPED
        assert bench.call(ResetStop, "reset", token=OPERATOR).success
        assert bench.call(AcquireLease, "acquire_lease", owner="bridge").granted
        take_over = {"owner": "other", "take_over": True}
        assert not bench.call(AcquireLease, "acquire_lease", **take_over, token=PROGRAM).granted
        assert bench.call(AcquireLease, "acquire_lease", **take_over, token=OPERATOR).granted
        assert "operator" in bench.call(ConfirmSkill, "confirm", allow=True, token=PROGRAM).message
        assert "wait" in bench.call(ConfirmSkill, "confirm", allow=True, token=OPERATOR).message


def test_a_driver_that_is_shut_down_in_motion_says_so_at_once(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, speed=1.0) as bench:
        motion = bench.send("d(60);")
        bench.until(lambda state: state.mode == RobotState.EXECUTING)
        bench.transition("shutdown")
        assert motion.result().error_code == ErrorCode.DRIVER_STOPPED
        bench.until(lambda state: state.mode == RobotState.UNCONFIGURED, "late subscribers see it in motion")


def test_a_motion_ends_with_its_task(domain_id: int, tmp_path: Path) -> None:
    with driver_bench(domain_id, tmp_path, speed=1.0) as bench:
        moving, waiting = bench.send("d(60);", "mine"), bench.send("d(60);", "mine", 1)
        bench.until(lambda s: s.mode == RobotState.EXECUTING and s.queued == 1)
        bench.publish(Task, "task", Task(task_id="another", phase=Task.ENDED))
        bench.publish(Task, "task", Task(task_id="mine", phase=Task.ENDED))
        for goal in (moving, waiting):
            assert goal.result().error_code == ErrorCode.SEGMENT_CANCELLED
        assert bench.robot.halts
