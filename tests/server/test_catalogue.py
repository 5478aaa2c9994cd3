"""Names that come over a network find skill sets and profiles, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from timely.core.errors import InvalidInput, UnknownName
from timely.server.catalogue import Catalogue


async def test_what_ships_is_found_and_read_once() -> None:
    catalogue = Catalogue()
    assert {"drone", "arm", "chat"} <= set(await catalogue.skill_set_names())
    assert {"tello", "indy7"} <= set(await catalogue.profile_names())
    for name in await catalogue.skill_set_names():
        skill_set = await catalogue.skill_set(name)
        assert await catalogue.skill_set(name) is skill_set
        profile = await catalogue.profile(skill_set.profile)
        assert await catalogue.profile(skill_set.profile) is profile


@pytest.mark.parametrize(
    "name", ["", "nope", "../drone", "/etc/passwd", "drone.yaml", "skills/drone", "x\0y", "."]
)
async def test_what_is_no_name_is_unknown(name: str) -> None:
    catalogue = Catalogue()
    with pytest.raises(UnknownName, match=r"known: .*drone"):
        await catalogue.skill_set(name)
    with pytest.raises(UnknownName, match=r"known: .*tello"):
        await catalogue.profile(name)


async def test_a_broken_profile_says_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\nrobot: x\nsource: y\nskills: 3\n")
    monkeypatch.setenv("LRTRACE_PROFILES_PATH", str(tmp_path))
    with pytest.raises(InvalidInput) as caught:
        await Catalogue().profile("bad")
    assert caught.value.where == f"{tmp_path}/bad.yaml:4"
