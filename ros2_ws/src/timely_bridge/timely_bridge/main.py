"""Run the bridge alone as a ROS 2 node; drivers run elsewhere: ``ros2 run timely_bridge timely_bridge``."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

from timely_robots.rostools import Spinner, isolated_context
from timely_robots.steady import steady_process

from timely_bridge.node import BridgeNode

LOOK_EVERY_S = 0.5
SETTLE_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until interrupted; takes ``--ros-args`` only."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    ended = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: ended.set())
    context = isolated_context(args=given)
    node = BridgeNode(context=context)
    spinner = Spinner(context, [node], name="bridge").start()
    with steady_process():
        while not ended.wait(LOOK_EVERY_S) and context.ok():
            pass
    node.settle(SETTLE_S)
    return 0 if spinner.close() else 1


if __name__ == "__main__":
    sys.exit(main())
