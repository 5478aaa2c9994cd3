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
    ],
)
def test_what_names_nothing_or_makes_no_sense_is_refused(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_timely_command(arguments) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", line)
