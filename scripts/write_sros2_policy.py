#!/usr/bin/env python
"""Writes the SROS 2 policy of a fleet from what its nodes offer and use: ``--check`` says whether the file is current.

    python scripts/write_sros2_policy.py [--fleet FLEET.yaml --output POLICY.xml] [--check]

``ros2 security generate_policy`` would do the same for one moment of a running graph. Here the nodes are started,
configured and read in this process. A program that sends tasks and an operator get a profile each.
"""

import argparse
import os
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from generated_files import write_or_check

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "ros2_ws/src/timely_bringup/config"
DOMAIN = 99
INTERNAL = ("/rosout", "/parameter_events")
"""Of a life cycle or of parameters: SROS 2 allows both by the node's name, below."""
LIMIT_S, SETTLED_S = 30.0, 1.0
OPERATOR_SERVICES = ("stop", "reset", "stop_fleet", "acquire_lease", "confirm")
Rules = Mapping[tuple[str, str], Iterable[str]]
"""(element, attribute), such as ("topic", "publish") -> names."""


def read_graph(fleet_file: Path) -> dict[tuple[str, str], Rules]:
    """(namespace, node) -> its topics, services and actions, of the bridge, the drivers and the recorder."""
    import rclpy
    from rclpy.action import graph as actions
    from timely_bridge.fleet import load_bridge_fleet
    from timely_bridge.node import BridgeNode
    from timely_bridge.recorder import TOPICS
    from timely_robots.ros.driver_node import DriverNode
    from timely_robots.ros.spinner import RosSpinner, isolated_ros_context
    from timely_robots.sim.robot import SimRobot

    fleet = load_bridge_fleet(fleet_file)
    context = isolated_ros_context(DOMAIN)
    # Every kind of driver has the same node around it, so simulated robots stand for all.
    settings = {"profile": "sim-drone"}
    nodes: list[Any] = [
        DriverNode(SimRobot(), namespace=robot.name, context=context, overrides=settings)
        for robot in fleet.robots
    ]
    nodes.append(BridgeNode(context=context, overrides=fleet.bridge_parameters()))
    for node in nodes:
        node.trigger_configure()
    recorder = rclpy.create_node("timely_recorder", context=context)
    for robot in fleet.robots:
        for topic, (kind, qos) in TOPICS.items():
            recorder.create_subscription(kind, f"/{robot.name}/{topic}", lambda message: None, qos, raw=True)
    spinner = RosSpinner(context, [*nodes, recorder], name="policy").start()
    readers: dict[tuple[str, str], Callable[[str, str], Any]] = {
        ("topic", "publish"): recorder.get_publisher_names_and_types_by_node,
        ("topic", "subscribe"): recorder.get_subscriber_names_and_types_by_node,
        ("service", "reply"): recorder.get_service_names_and_types_by_node,
        ("service", "request"): recorder.get_client_names_and_types_by_node,
        ("action", "execute"): lambda name, space: actions.get_action_server_names_and_types_by_node(
            recorder, name, space
        ),
        ("action", "call"): lambda name, space: actions.get_action_client_names_and_types_by_node(
            recorder, name, space
        ),
    }

    def look() -> dict[tuple[str, str], Rules]:
        return {
            (space, name): {
                rule: sorted(
                    one for one, _ in read(name, space) if "/_action/" not in one and one not in INTERNAL
                )
                for rule, read in readers.items()
            }
            for name, space in recorder.get_node_names_and_namespaces()
        }

    try:
        graph, since_s, deadline_s = look(), time.monotonic(), time.monotonic() + LIMIT_S
        while time.monotonic() - since_s < SETTLED_S and time.monotonic() < deadline_s:
            time.sleep(0.05)
            if (now := look()) != graph:
                graph, since_s = now, time.monotonic()
    finally:
        spinner.close()
    return graph


def write_policy(graph: Mapping[tuple[str, str], Rules]) -> str:
    """The policy: an enclave for the bridge, one for each driver, one for programs and one for operators."""
    policy = ET.Element("policy", version="0.2.0")
    enclaves = ET.SubElement(policy, "enclaves")
    profiles: dict[str, list[tuple[str, str, Rules]]] = {}
    tasks, services = [], []
    for (space, name), rules in sorted(graph.items()):
        robot = space.strip("/")
        profiles.setdefault(f"/timely/{robot or 'bridge'}", []).append((space, name, rules))
        tasks += [one for one in rules["action", "execute"] if one.endswith("/execute_task")]
        services += [one for one in rules["service", "reply"] if one.rpartition("/")[2] in OPERATOR_SERVICES]
    robots = [task.removesuffix("/execute_task") for task in tasks]
    program: Rules = {
        ("action", "call"): tasks,
        ("topic", "publish"): [f"{robot}/new_scene" for robot in robots],
        ("topic", "subscribe"): [
            "/diagnostics",
            *(f"{robot}/{one}" for robot in robots for one in ("state", "task")),
        ],
    }
    operator: Rules = {
        ("service", "request"): sorted(services),
        ("topic", "subscribe"): ["/diagnostics", *(f"{robot}/state" for robot in robots)],
    }
    profiles["/timely/program"] = [("/", "program", program)]
    profiles["/timely/operator"] = [("/", "operator", operator)]
    for path, entries in sorted(profiles.items()):
        holder = ET.SubElement(ET.SubElement(enclaves, "enclave", path=path), "profiles")
        for space, name, rules in entries:
            profile = ET.SubElement(holder, "profile", ns=space, node=name)
            for (element, attribute), names in rules.items():
                _add(profile, element, attribute, names)
            _add(profile, "topic", "publish", ["/rosout", "/parameter_events"])
            _add(profile, "topic", "subscribe", ["/parameter_events"])
    ET.indent(policy)
    comment = "<!-- Written by scripts/write_sros2_policy.py. -->"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{comment}\n{ET.tostring(policy, encoding="unicode")}\n'


def _add(profile: ET.Element, element: str, attribute: str, names: Iterable[str]) -> None:
    if names := list(names):
        group = ET.SubElement(profile, f"{element}s", {attribute: "ALLOW"})
        for name in names:
            ET.SubElement(group, element).text = name


def main() -> int:
    """0, or 1 if ``--check`` finds an old file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--fleet", type=Path, default=CONFIG / "fleet.yaml")
    parser.add_argument("--output", type=Path, default=CONFIG / "sros2_policy.xml")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    return write_or_check(
        __file__, {options.output: write_policy(read_graph(options.fleet))}, check=options.check
    )


if __name__ == "__main__":
    sys.exit(main())
