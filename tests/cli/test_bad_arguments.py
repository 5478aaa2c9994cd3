"""Arguments that no command can use: one line that says what and where, and exit code 2."""

from __future__ import annotations

import pytest

from timely.cli.main import run_timely_command


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["bench", "routing", "--engines", ""], "timely: --engines: names no numbers of engines\n"),
        (["bench", "routing", "--engines", " , "], "timely: --engines: names no numbers of engines\n"),
        (["bench", "live", "--systems", ""], "timely: --systems: names no system\n"),
        (
            ["bench", "surge", "--live", "scripted", "--load", "3"],
            "timely: --load: a live server gets phases\n",
        ),
        (
            ["bench", "surge", "--live", "scripted", "--profile", "rtx4090-llama3-8b"],
            "timely: --profile: a live server takes its own step times\n",
        ),
        (
            ["bench", "eta", "--live", "scripted", "--profile", "rtx4090-llama3-8b"],
            "timely: --profile: a live server takes its own step times\n",
        ),
    ],
)
def test_what_names_nothing_or_makes_no_sense_is_refused(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_timely_command(arguments) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", line)


@pytest.mark.parametrize(
    "arguments",
    [
        ["surge", "--hours"],
        ["eta", "--hours"],
        ["restart", "--points"],
        ["decisions", "--points"],
        ["closed-loop", "--seconds"],
        ["disciplines-live", "--seconds"],
        ["mixed", "--seconds"],
    ],
)
@pytest.mark.parametrize("value", ["inf", "nan", "1e300", "1" + 30 * "0"])
def test_a_benchmark_that_would_not_end_is_refused(
    arguments: list[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_timely_command(["bench", *arguments, value]) == 2
    complaint = capsys.readouterr().err
    assert complaint.startswith(f"timely: bench {arguments[0]}: ")
    assert arguments[1] in complaint
    assert complaint.count("\n") == 1


SERVE = ["serve", "--engine", "scripted", "--port", "0"]


@pytest.mark.parametrize(
    "url", ["nope", "", "ftp://127.0.0.1/v1/traces", "http://", "http://:4318", "http://a:b/", "http://[::1"]
)
def test_traces_that_can_be_sent_nowhere_are_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_timely_command([*SERVE, "--otlp-endpoint", url]) == 2
    line = f"timely: --otlp-endpoint: must be like http://127.0.0.1:4318/v1/traces, not {url!r}\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    "name",
    ["", "http://robots", "robots:8000", "robots/", "*", "*.example.org", "a b", "a..b", "ä.example.org"],
)
def test_a_name_that_no_client_can_send_as_its_host_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_timely_command([*SERVE, "--allowed-host", "robots.example.org", "--allowed-host", name]) == 2
    line = f"timely: --allowed-host: must be a host name without scheme and port, not {name!r}\n"
    assert capsys.readouterr().err == line
