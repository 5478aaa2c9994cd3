"""The files of deploy/: every metric they name exists, and each has the form that its program reads."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from timely.engines.base import EngineStats
from timely.server.telemetry.metrics import ServerMetrics

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\btimely_\w+")
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def page() -> str:
    """All series that a server with an engine exposes."""
    metrics = ServerMetrics()
    metrics.count_end("complete", "urgent", response_s=0.1, waiting_s=0.1, utility=1.0, utility_max=2.0)
    metrics.reports.labels("done", "true").inc()
    stats = EngineStats(
        now_s=0.0, engine="sim", discipline="timely", mode="segmented", paces={"drone-1": 1.0}
    )
    return metrics.page(stats).decode()


def offered() -> set[str]:
    return {line.partition("{")[0].partition(" ")[0] for line in page().splitlines() if line[0] != "#"}


def expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    dashboard = json.loads((DEPLOY / "grafana" / "timely.json").read_text())
    return [
        *(rule["expr"] for group in rules["groups"] for rule in group["rules"]),
        *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"]),
    ]


def test_every_metric_exists() -> None:
    names = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(names) > 15
    assert names <= offered()


def test_an_unknown_metric_is_noticed() -> None:
    assert "timely_engine_generations" in offered()
    assert "timely_engine_generation" not in offered()


def test_no_rate_is_that_of_a_gauge() -> None:
    """It takes each fall for a restart, so a sum that falls would seem to grow."""
    gauges = set(re.findall(r"^# TYPE (\w+) gauge$", page(), re.MULTILINE))
    rated = {
        name for text in expressions() for name in re.findall(r"\b(?:rate|increase)\((timely_\w+)", text)
    }
    assert "timely_utility_sum" in gauges
    assert len(rated) > 5
    assert not rated & gauges


def test_every_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert re.fullmatch(r"\d+[sm]", rule["for"])


def test_both_sides_of_an_operator_have_the_same_labels() -> None:
    """A sum without `by` has no labels, so it meets no other series, and the alert never fires."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    for rule in rules:
        sides = re.split(r"\b(?:and|or|unless)\b(?!\s*on\b)", rule["expr"])
        assert len({bool(re.search(r"\bsum\b", side)) for side in sides}) == 1, rule["alert"]


TARGET = 'job="timely",instance="hall:8000"'
ALERT_SCENES = {
    "TimelyDown": {"up{T}": "0+0x60"},
    "TimelyEngineDied": {"timely_engine_deaths_total{T}": "0+0x20 1+0x40"},
    "TimelyUrgentTasksLate": {
        'timely_utility_sum{class="urgent",T}': "0+1x60",
        'timely_utility_max_sum{class="urgent",T}': "0+2x60",
    },
    "TimelyTasksFail": {
        'timely_tasks_total{outcome="failed",class="normal",T}': "0+1x60",
        'timely_tasks_total{outcome="complete",class="normal",T}': "0+9x60",
    },
    "TimelyTasksRefused": {'timely_tasks_total{outcome="refused",class="normal",T}': "0+1x60"},
    "TimelyMemoryFull": {
        "timely_engine_kv_usage_ratio{T}": "0.99+0x60",
        "timely_engine_evictions_total{T}": "0+1x60",
    },
    "TimelyEngineStalled": {
        'timely_engine_generations{state="waiting",T}': "3+0x60",
        'timely_engine_generations{state="running",T}': "1+0x60",
        "timely_engine_steps_total{T}": "700+0x60",
    },
    "TimelyEngineGone": {"up{T}": "1+0x60"},
    "TimelyStateUnsaved": {"timely_state_unsaved{T}": "1+0x60"},
    "TimelyDuplicateRobots": {"timely_fleet_duplicate_robots{T}": "1+0x60"},
    "TimelyCertificateExpires": {"timely_certificate_expiry_timestamp_seconds{T}": "250000+0x60"},
    "TimelyFleetStopped": {"timely_fleet_stopped{T}": "1+0x60"},
}
"""For each alert the series in which it fires, in promtool's notation: start, step and number of scrapes."""


def test_every_alert_has_a_scene() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == set(ALERT_SCENES)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool, of Debian's package prometheus")
@pytest.mark.parametrize("interval_s", [15, 60])
def test_every_alert_fires_in_its_scene(tmp_path: Path, interval_s: int) -> None:
    """Every 60 s is what Prometheus does where its configuration says nothing."""
    tests = [
        {
            "name": alert,
            "interval": f"{interval_s}s",
            "input_series": [
                {"series": name.replace("T}", f"{TARGET}}}"), "values": values}
                for name, values in series.items()
            ],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": f"{30 * interval_s}s",
                    "exp_samples": [{"labels": "{}", "value": 1}],
                }
            ],
        }
        for alert, series in ALERT_SCENES.items()
    ]
    file = tmp_path / "scenes.yaml"
    rules = str(DEPLOY / "prometheus" / "alerts.yaml")
    file.write_text(yaml.safe_dump({"rule_files": [rules], "evaluation_interval": "15s", "tests": tests}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana" / "timely.json").read_text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_exists(unit: Path) -> None:
    file = configparser.ConfigParser(strict=False)
    file.optionxform = str  # type: ignore[assignment, method-assign]
    file.read(unit)
    assert set(file.sections()) == {"Unit", "Service", "Install"}
    program, *arguments = shlex.split(file["Service"]["ExecStart"])
    assert program.startswith("/opt/timely/.venv/bin/")
    if arguments[0] == "-m":
        assert (ROOT / "ros2_ws/src/timely_bridge" / (arguments[1].replace(".", "/") + ".py")).is_file()
    assert file["Service"]["KillSignal"] == "SIGTERM"


def test_the_unit_of_the_server_leaves_the_engine_to_the_server() -> None:
    """By default systemd sends SIGTERM to all processes at once, and the engine ends before the plans.

    Drivers should get it, also when their fleet was killed: they bring their robots to rest.
    """
    server, fleet = (DEPLOY / "systemd" / f"timely-{name}.service" for name in ("server", "fleet"))
    assert "KillMode=mixed" in server.read_text().splitlines()
    assert "KillMode" not in fleet.read_text()


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_outlives_a_process_that_the_system_killed(unit: Path) -> None:
    """By default systemd stops the whole unit where memory is short, though an engine or a driver is started again."""
    assert "OOMPolicy=continue" in unit.read_text().splitlines()


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_writes_where_it_may(unit: Path) -> None:
    """The home folder and most others are closed to it; without a folder for its state a stop would be forgotten."""
    lines = unit.read_text().splitlines()
    assert {"ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes"} <= set(lines)
    settings = [line.partition("=")[::2] for line in lines if "=" in line]
    folders = {"StateDirectory": "/var/lib", "CacheDirectory": "/var/cache", "LogsDirectory": "/var/log"}
    writable = tuple(
        f"{folders[name]}/{path}" for name, value in settings if name in folders for path in value.split()
    )
    environment = dict(
        word.split("=", 1) for name, value in settings if name == "Environment" for word in value.split()
    )
    assert environment["TIMELY_STATE_DIR"] == "/var/lib/timely"
    assert ("ROS_LOG_DIR" in environment) == ("fleet" in unit.name)
    assert ("XDG_CACHE_HOME" in environment) == ("server" in unit.name)
    assert all(path.startswith(writable) for path in re.findall(r"/var/[\w./-]+", unit.read_text()))


def test_containers_keep_their_state() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert "TIMELY_STATE_DIR=/var/lib/timely" in text
    assert "--owner timely --group timely /var/lib/timely" in text, "a new volume belongs to root otherwise"
    for service in yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values():
        assert "timely-state:/var/lib/timely" in service["volumes"]
        assert service["restart"] == "unless-stopped", (
            "other policies leave it down when the machine starts again"
        )


@pytest.mark.parametrize("file", [DEPLOY / "systemd" / "timely-server.service", DEPLOY / "compose.yaml"])
def test_a_long_event_log_takes_no_room_from_the_tasks(file: Path) -> None:
    (folder,) = re.findall(r"--event-log,? ([\w./-]+)/events.jsonl", file.read_text())
    assert folder == "/var/log/timely"
    assert f"{folder}/*.jsonl" in (DEPLOY / "logrotate" / "timely").read_text()


def test_logs_of_ros_are_removed_in_time() -> None:
    unit = (DEPLOY / "systemd" / "timely-fleet.service").read_text()
    (folder,) = re.findall(r"ROS_LOG_DIR=(\S+)", unit)
    assert f"\ne {folder} " in (DEPLOY / "tmpfiles.d" / "timely.conf").read_text()


@pytest.mark.process
def test_systemd_and_compose_accept_the_files() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(compose["services"]) == {"server", "fleet"}
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", *map(str, UNITS)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        wrong = [
            line for line in done.stderr.splitlines() if "is not executable" not in line and line.strip()
        ]
        assert not [line for line in wrong if "timely" in line], wrong


def test_the_container_is_built_from_files_that_exist() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert "make setup" in text
    assert "-m compileall" in text, "a new container would compile vLLM three times"
    assert {"TIMELY_ACCEL", "TIMELY_EXTRA_INDEX"} <= set(re.findall(r"^ARG (\w+)=", text, re.MULTILINE))
    assert re.search(r"^USER timely$", text, re.MULTILINE), "a server does not run as root"
    assert (DEPLOY / "fleet.yaml").is_file()


def test_no_environment_of_this_machine_gets_into_the_image() -> None:
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    excluded = {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    assert not [name for name in ignored if not any(fnmatch(name, pattern) for pattern in excluded)]
