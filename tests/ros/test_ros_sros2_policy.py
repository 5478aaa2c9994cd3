"""The SROS 2 policy: current, in the form that SROS 2 reads, and no wider than each part needs."""

from __future__ import annotations

import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import rclpy
from project_scripts import load_script
from timely_robots.ros.spinner import isolated_ros_context

pytestmark = [pytest.mark.ros]

ROOT = Path(__file__).parents[2]
POLICY = ROOT / "ros2_ws/src/timely_bringup/config/sros2_policy.xml"
CHILDREN = {
    "policy": {"enclaves"},
    "enclaves": {"enclave"},
    "enclave": {"profiles"},
    "profiles": {"profile"},
    "profile": {"topics", "services", "actions"},
    "topics": {"topic"},
    "services": {"service"},
    "actions": {"action"},
}
ATTRIBUTES = {
    "policy": {"version"},
    "enclave": {"path"},
    "profile": {"ns", "node"},
    "topics": {"publish", "subscribe"},
    "services": {"reply", "request"},
    "actions": {"call", "execute"},
}
"""Of SROS 2's schema for policies, version 0.2.0."""


def allowed(attribute: str) -> dict[str, set[str]]:
    """Enclave -> the names that it may use in this way."""
    return {
        enclave.attrib["path"].removeprefix("/timely/"): {
            str(name.text) for group in enclave.iter() if attribute in group.attrib for name in group
        }
        for enclave in ET.parse(POLICY).getroot().iter("enclave")
    }


def test_the_dds_of_the_wheels_has_no_security(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "enclaves/bridge").mkdir(parents=True)
    for name, value in (("ENABLE", "true"), ("STRATEGY", "Enforce"), ("KEYSTORE", str(tmp_path))):
        monkeypatch.setenv(f"ROS_SECURITY_{name}", value)
    context = isolated_ros_context(args=["--ros-args", "--enclave", "/bridge"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the half-made node
        with pytest.raises(RuntimeError, match="doesn't have the security libraries"):
            rclpy.create_node("secured", context=context)
    context.try_shutdown()


def test_the_policy_is_what_the_nodes_offer_and_use(domain_id: int) -> None:
    module = load_script("write_sros2_policy")
    module.DOMAIN = domain_id
    assert module.write_policy(module.read_graph(module.CONFIG / "fleet.yaml")) == POLICY.read_text()


def test_the_policy_has_the_form_of_sros_2() -> None:
    root = ET.parse(POLICY).getroot()
    assert (root.tag, root.attrib) == ("policy", {"version": "0.2.0"})
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        assert set(element.attrib) <= ATTRIBUTES.get(element.tag, set())
        if element.tag in ("topics", "services", "actions"):
            assert set(element.attrib.values()) == {"ALLOW"}
        assert len(element) or (element.text or "").startswith("/"), element.tag


def test_only_the_bridge_moves_robots_and_only_an_operator_resets_them() -> None:
    drivers = {"arm1", "drone1", "drone2"}
    for robot in drivers:
        callers = {
            name for name, actions in allowed("call").items() if f"/{robot}/execute_segment" in actions
        }
        assert callers == {"bridge"}
        leases = {name for name, topics in allowed("publish").items() if f"/{robot}/lease" in topics}
        assert leases == {"bridge"}
        for service in ("reset", "stop", "acquire_lease"):
            requests = {
                name
                for name, services in allowed("request").items()
                if f"/{robot}/driver/{service}" in services
            }
            assert requests == {"bridge", "operator"}
        confirming = {
            name for name, services in allowed("request").items() if f"/{robot}/driver/confirm" in services
        }
        assert confirming == {"operator"}
    resets = {name for name, services in allowed("request").items() if "/timely_bridge/reset" in services}
    assert resets == {"operator"}
    assert allowed("request")["program"] == set()
    assert allowed("reply")["program"] == set()
