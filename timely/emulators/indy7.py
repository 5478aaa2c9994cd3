"""Emulates an Indy7 on the network by serving the vendor library's gRPC services.

It needs the packages ``neuromeka`` and ``grpc`` of ``make robots``, imported only when it runs. Unknown calls are
answered with gRPC's UNIMPLEMENTED.
"""

import copy
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from timely.core.clock import Clock
from timely.core.errors import InvalidInput, Unsupported
from timely.emulators.clock import EmulatorClock
from timely.emulators.command_log import EmulatorCommandLog
from timely.emulators.indy7_body import HOME_DEG, JOINT_SPEED_DEG, EmulatedArmRefusal, EmulatedIndy7Body
from timely.emulators.indy7_kinematics import emulator_forward_kinematics

CONTROL_PORT, DEVICE_PORT, CONFIG_PORT, RTDE_PORT = 20001, 20002, 20003, 20004
WORKERS = 8
LOOK_EVERY_S = 0.02
"""How soon after its end a motion is in the log, at the latest."""
LONGEST_WAIT_S = 300.0


class Indy7Emulator:
    """One arm at ``host``, on the ports that the vendor's client uses: one loopback address an arm.

    ``speed``: how many times faster than a real one it lives; its client has to know.

    Raises:
        InvalidInput: an address cannot be used. Unsupported: the vendor's packages are not installed.
    """

    def __init__(
        self,
        host: str,
        *,
        journal: EmulatorCommandLog | None = None,
        clock: Clock | None = None,
        speed: float = 1.0,
    ) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would write its own line about a port in use
        try:
            import grpc
            from neuromeka.proto import config_pb2_grpc, control_pb2_grpc, device_pb2_grpc, rtde_pb2_grpc
        except ImportError as error:
            raise Unsupported(
                f"needs {error.name}: run it from .venv-robots, which `make robots` makes", where="indy7"
            ) from error
        self.host = host
        self.journal = journal or EmulatorCommandLog()
        self.body = EmulatedIndy7Body()
        self._clock = clock or EmulatorClock(speed)
        self._look_every_s = LOOK_EVERY_S / max(1.0, speed)
        self.body.now = self._clock.now()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        # Without this two emulators could share a port, and each would get half of the calls.
        options = [("grpc.so_reuseport", 0)]
        self._servers = []
        for port, stubs, name, make in (
            (CONTROL_PORT, control_pb2_grpc, "Control", _emulated_indy7_control),
            (DEVICE_PORT, device_pb2_grpc, "Device", _emulated_indy7_device),
            (CONFIG_PORT, config_pb2_grpc, "Config", _emulated_indy7_config),
            (RTDE_PORT, rtde_pb2_grpc, "RTDataExchange", _emulated_indy7_rtde),
        ):
            server = grpc.server(ThreadPoolExecutor(WORKERS), options=options)
            getattr(stubs, f"add_{name}Servicer_to_server")(
                make(self, getattr(stubs, f"{name}Servicer")), server
            )
            try:
                server.add_insecure_port(f"{host}:{port}")
            except RuntimeError as error:
                self._end_servers(0.0)
                raise InvalidInput(
                    "cannot be used; is an emulator running there?", where=f"{host}:{port}"
                ) from error
            self._servers.append(server)
        self._watch = threading.Thread(target=self._settle_often, name=f"indy7 {host}", daemon=True)

    def start(self) -> Self:
        """Serve, on threads of its own, until ``close``."""
        for server in self._servers:
            server.start()
        self._watch.start()
        return self

    def run(self) -> None:
        """Serve until ``stop`` is called, from another thread."""
        self.start()
        while not self._stopped.wait(LONGEST_WAIT_S):
            pass
        self.close()

    def stop(self) -> None:
        """Make ``run`` return within a moment."""
        self._stopped.set()

    def close(self, grace_s: float = 0.2) -> None:
        """Stop serving; the arm falls silent, wherever it is."""
        self._stopped.set()
        self._end_servers(grace_s)
        if self._watch.is_alive():
            self._watch.join(5.0)

    def _end_servers(self, grace_s: float) -> None:
        for ending in [server.stop(grace_s) for server in self._servers]:
            ending.wait(grace_s + 5.0)
        self._servers.clear()

    # --- what the services do ---

    def command(self, text: str, act: Callable[[EmulatedIndy7Body], None]) -> tuple[int, str]:
        """Carry out one command now and log it; its (code, message), code 0 for success."""
        with self._lock:
            now = self._clock.now()
            self.journal.write_ends(now, self.body.advance(now))
            try:
                act(self.body)
            except EmulatedArmRefusal as refusal:
                self.journal.write(now, "command", text, str(refusal))
                return -1, str(refusal)
            self.journal.write(now, "command", text, "ok")
            return 0, "OK"

    def look(self) -> EmulatedIndy7Body:
        """The arm as it is now; a copy, since the arm moves on while an answer is made of it."""
        with self._lock:
            now = self._clock.now()
            self.journal.write_ends(now, self.body.advance(now))
            return copy.copy(self.body)

    def wait(self, condition: Callable[[EmulatedIndy7Body], bool]) -> bool:
        """Block until ``condition``; False when the emulator ends or it takes too long."""
        end = self._clock.now() + LONGEST_WAIT_S
        while not condition(self.look()):
            if self._clock.now() > end or self._stopped.wait(self._look_every_s):
                return False
        return True

    def _settle_often(self) -> None:
        while not self._stopped.wait(self._look_every_s):
            self.look()


def _emulated_indy7_numbers(values: Any) -> str:
    return ",".join(f"{value:.3f}".rstrip("0").rstrip(".") for value in values)


def _emulated_indy7_control(arm: Indy7Emulator, base: Any) -> Any:
    from neuromeka.proto import common_msgs_pb2 as common
    from neuromeka.proto import control_msgs_pb2 as messages

    def answer(text: str, act: Callable[[EmulatedIndy7Body], None]) -> Any:
        code, message = arm.command(text, act)
        return common.Response(code=code, msg=message)

    def move(request: Any, command: str, target: list[float], how: str, **pace: float) -> Any:
        """Answer a motion command; ``how`` is its pace in words."""
        line = command == "MoveL"
        text = f"{command}({_emulated_indy7_numbers(target)} {how})"
        options: dict[str, Any] = {
            "relative": request.target.base_type
            == (messages.RELATIVE_TASK if line else messages.RELATIVE_JOINT),
            "override": request.blending.type == messages.BlendingType.OVERRIDE,
            "command": text,
            **pace,
        }

        def act(body: EmulatedIndy7Body) -> None:
            if line and request.target.base_type == messages.TCP_TASK:
                raise EmulatedArmRefusal("moves in the tool's frame are not emulated")
            (body.move_line if line else body.move_joints)(target, **options)

        return answer(text, act)

    def ratios(request: Any) -> dict[str, Any]:
        return {
            "how": f"v={request.vel_ratio:g} a={request.acc_ratio:g}",
            "speed_ratio": request.vel_ratio,
            "acceleration_ratio": request.acc_ratio,
        }

    class Control(base):  # type: ignore[misc]
        def MoveJ(self, request: Any, context: Any) -> Any:
            return move(request, "MoveJ", list(request.target.j_target), **ratios(request))

        def MoveJT(self, request: Any, context: Any) -> Any:
            target = list(request.target.j_target)
            return move(request, "MoveJT", target, f"t={request.time:g}", seconds=request.time)

        def MoveL(self, request: Any, context: Any) -> Any:
            return move(request, "MoveL", list(request.target.t_target), **ratios(request))

        def StopMotion(self, request: Any, context: Any) -> Any:
            return answer("StopMotion", EmulatedIndy7Body.stop)

        def WaitProgress(self, request: Any, context: Any) -> Any:
            share = request.progress / 100.0
            came = arm.wait(lambda body: body.motion is None or body.motion.share(body.now) >= share)
            return common.Response(code=0 if came else -1, msg="OK" if came else "gave up waiting")

    return Control()


def _emulated_indy7_device(arm: Indy7Emulator, base: Any) -> Any:
    from neuromeka.proto import common_msgs_pb2 as common
    from neuromeka.proto import device_msgs_pb2 as messages

    def _signals(on: list[bool]) -> Any:
        states = (messages.ON_STATE if one else messages.OFF_STATE for one in on)
        signals = [
            messages.DigitalSignal(address=address, state=state) for address, state in enumerate(states)
        ]
        return messages.DigitalList(signals=signals)

    class Device(base):  # type: ignore[misc]
        def SetDO(self, request: Any, context: Any) -> Any:
            outputs = {signal.address: signal.state == messages.ON_STATE for signal in request.signals}
            words = " ".join(f"{address}={int(on)}" for address, on in outputs.items())
            code, message = arm.command(f"SetDO({words})", lambda body: body.outputs.update(outputs))
            return common.Response(code=code, msg=message)

        def GetDO(self, request: Any, context: Any) -> Any:
            outputs = arm.look().outputs
            return _signals([bool(outputs.get(address)) for address in range(16)])

        def GetDI(self, request: Any, context: Any) -> Any:
            return _signals([False] * 16)

        def SetGripperCommand(self, request: Any, context: Any) -> Any:
            data = list(request.gripper_pvt_data)

            def act(body: EmulatedIndy7Body) -> None:
                body.gripper = data[0] if data else 0

            arm.command(f"SetGripperCommand({request.gripper_command} {_emulated_indy7_numbers(data)})", act)
            return common.Empty()

        def GetGripperData(self, request: Any, context: Any) -> Any:
            return messages.GripperData(gripper_position=arm.look().gripper)

    return Device()


def _emulated_indy7_config(arm: Indy7Emulator, base: Any) -> Any:
    from neuromeka.proto import config_msgs_pb2 as messages

    class Config(base):  # type: ignore[misc]
        def GetHomePosition(self, request: Any, context: Any) -> Any:
            return messages.JointPos(jpos=HOME_DEG)

    return Config()


def _emulated_indy7_rtde(arm: Indy7Emulator, base: Any) -> Any:
    from neuromeka.proto import common_msgs_pb2 as common
    from neuromeka.proto import rtde_msgs_pb2 as messages

    ok = common.Response(code=0, msg="OK")

    class Rtde(base):  # type: ignore[misc]
        def GetMotionData(self, request: Any, context: Any) -> Any:
            body = arm.look()
            motion = body.motion
            share = motion.share(body.now) if motion is not None else 1.0
            stopping = motion is not None and motion.braking is not None
            idle = common.TRAJ_FINISHED if body.motions else common.TRAJ_NONE
            return messages.MotionData(
                traj_state=idle
                if motion is None
                else (common.TRAJ_CANCELLING if stopping else common.TRAJ_CRUISE),
                traj_progress=round(100 * share),
                cur_traj_progress=round(100 * share),
                is_in_motion=motion is not None,
                # A stopped arm has reached no target, yet the vendor's own wait ends only when this is set.
                is_target_reached=motion is None,
                is_stopping=stopping,
                has_motion=motion is not None or bool(body.queue),
                speed_ratio=100,
                motion_id=body.motions,
                remain_distance=0.0 if motion is None else motion.profile.length * (1.0 - share),
                motion_queue_size=len(body.queue),
                response=ok,
            )

        def GetControlData(self, request: Any, context: Any) -> Any:
            body = arm.look()
            moving = body.motion is not None
            speed = min(JOINT_SPEED_DEG, body.motion.profile.peak) if body.motion is not None else 0.0
            return messages.ControlData(
                op_state=body.trouble or (common.OP_MOVING if moving else common.OP_IDLE),
                sim_mode=True,
                is_robot_connected=True,
                q=body.joints,
                qdot=[speed if moving else 0.0] * len(body.joints),
                p=emulator_forward_kinematics(body.joints),
                pdot=[0.0] * 6,
                response=ok,
            )

    return Rtde()
