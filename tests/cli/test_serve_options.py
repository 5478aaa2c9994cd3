"""Options of ``timely serve`` that contradict each other or have no effect: one line, before anything starts."""

from __future__ import annotations

import logging
import subprocess
import time
from pathlib import Path

import pytest

from timely.cli import serve
from timely.cli.main import run_timely_command
from timely.core.errors import InvalidInput
from timely.core.files import STATE_DIR_VARIABLE
from timely.server.listener import DAY_S, RenewedServerTls, ServerTlsFiles, server_tls

SERVE = ["serve", "--engine", "scripted", "--port", "0"]


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that would start is a failure."""

    def start(*arguments: object, **options: object) -> int:
        raise AssertionError("it starts")

    monkeypatch.setattr("timely.server.run.run_server", start)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--flush-segments"],
            "--flush-segments: a server on a free port keeps no tasks; name a --state-dir",
        ),
        (["--predict-wait", "2"], "--predict-wait: only --predict full waits"),
        (["--client-grammars"], "--client-grammars: needs --engine vllm"),
        (["--objective", "a=1"], "--objective: needs --engine vllm"),
        (["--objective", "a=1", "--objective", "a=2"], "--objective: a has two priorities"),
        (["--api-key", ""], "--api-key: is empty"),
        (["--event-log", "x", "--audit-log", "./x"], "--audit-log: x is that of --event-log"),
        (["--engine", "vllm", "--event-log", "x", "--journal", "x"], "--journal: x is that of --event-log"),
    ],
)
def test_options_without_an_effect_are_refused(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_timely_command([*SERVE, *arguments]) == 2
    assert capsys.readouterr().err == f"timely: {line}\n"


def test_an_empty_variable_names_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE_DIR_VARIABLE, "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert serve._cli_state_folder(None, 8000) == tmp_path / ".local/state/timely/server-8000"


# ---------------------------------------------------------------------- TLS


def make_certificate(folder: Path, *arguments: str) -> tuple[Path, Path]:
    certificate, key = folder / "server.pem", folder / "server.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -subj /CN=localhost -days 1"
    command = [*words.split(), "-keyout", str(key), "-out", str(certificate), *(arguments or ("-nodes",))]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return certificate, key


@pytest.mark.parametrize("absent", ["certificate", "key", "authority"])
def test_the_file_that_cannot_be_used_is_named(tmp_path: Path, absent: str) -> None:
    certificate, key = make_certificate(tmp_path)
    files = {"certificate": certificate, "key": key, "authority": certificate}
    files[absent] = tmp_path / "nothing.pem"
    with pytest.raises(InvalidInput) as caught:
        server_tls(*files.values())
    assert str(caught.value) == f"{files[absent]}: cannot be read: No such file or directory"


def test_a_key_with_a_pass_phrase_is_refused_without_a_question(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path, "-passout", "pass:secret")
    with pytest.raises(InvalidInput, match=r"server\.key: .*pass phrase"):
        server_tls(certificate, key, None)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificate, _ = make_certificate(tmp_path)
    _, key = make_certificate(tmp_path / "other")
    with pytest.raises(InvalidInput, match=r"server\.pem, .*server\.key: unusable: .*KEY_VALUES_MISMATCH"):
        server_tls(certificate, key, None)


def test_an_expired_certificate_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A robot's computer may have a wrong clock at its start, so it is no error."""
    certificate, key = make_certificate(tmp_path)
    request = tmp_path / "server.csr"
    for command in (
        f"openssl req -new -key {key} -subj /CN=localhost -out {request}",
        f"openssl x509 -req -in {request} -signkey {key} -days -1 -out {certificate}",
    ):
        subprocess.run(command.split(), check=True, capture_output=True, timeout=30)
    assert server_tls(certificate, key, None) is not None
    assert f"{certificate}: clients will refuse it: certificate has expired" in caplog.text


def test_a_certificate_that_will_expire_is_a_warning_three_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = make_certificate(tmp_path, "-nodes", "-days", "100")
    now_s = time.time()
    tls = RenewedServerTls(ServerTlsFiles(certificate, key), epoch_s=lambda: now_s)
    for days_left, warning in (
        (100.0, ""),
        (14.1, ""),
        (13.9, "expires in 13.9 days"),
        (1.1, ""),
        (0.9, "expires in 0.9 days"),
        (0.01, ""),
        (-0.01, "clients will refuse it: certificate has expired"),
        (-5.0, ""),
    ):
        caplog.clear()
        now_s = tls.expires_s - days_left * DAY_S
        for _ in range(3):
            tls.refresh()
        assert caplog.messages == ([f"{certificate}: {warning}"] if warning else [])


def test_a_certificate_of_a_day_is_no_warning_for_most_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is renewed every few hours, so 14 days would always be a warning."""
    certificate, key = make_certificate(tmp_path)
    now_s = time.time()
    tls = RenewedServerTls(ServerTlsFiles(certificate, key), epoch_s=lambda: now_s)
    now_s += 0.6 * DAY_S
    tls.refresh()
    assert caplog.messages == []
    now_s += 0.1 * DAY_S
    tls.refresh()
    assert caplog.messages == [f"{certificate}: expires in 0.3 days"]


def test_a_certificate_that_is_not_yet_valid_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = make_certificate(tmp_path)
    early_s = time.time() - DAY_S
    RenewedServerTls(ServerTlsFiles(certificate, key), epoch_s=lambda: early_s).refresh()
    assert caplog.messages == [f"{certificate}: clients will refuse it: certificate is not yet valid"]


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_key_that_all_users_can_read_is_a_warning(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture, *, warns: bool
) -> None:
    certificate, key = make_certificate(tmp_path)
    key.chmod(mode)
    tls = server_tls(certificate, key, certificate)
    assert tls is not None
    tls.refresh()  # the server's start says it no second time
    assert ("every user of this machine can read it" in caplog.text) is warns
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == warns


@pytest.mark.parametrize(
    ("arguments", "end"),
    [("--discpline edf", " --discpline edf (did you mean --discipline?)"), ("--quux", " --quux")],
)
def test_a_misspelt_option_is_told_the_one_that_it_resembles(
    arguments: str, end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM, which gets every argument that we do not have, knows nothing of ours."""

    def refuse(*_: object) -> None:
        raise InvalidInput(f"unrecognized arguments: {arguments}", where="vllm arguments")

    monkeypatch.setattr(serve, "make_cli_engine", refuse)
    assert run_timely_command([*SERVE, *arguments.split()]) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"unrecognized arguments:{end}")
