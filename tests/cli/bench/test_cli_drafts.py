"""``timely bench drafts``: refused where the texts are not at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.cli.bench import drafts
from timely.core.errors import InvalidInput


def test_a_folder_without_the_texts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "require_cli_package", lambda package: None)
    with pytest.raises(InvalidInput, match="MTS-Dialog"):
        drafts.command(tmp_path)
