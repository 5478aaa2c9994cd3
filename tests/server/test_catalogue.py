"""Names that come over a network find skill sets and profiles, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fleet import DRONE, TINY, MemoryCatalogue

from timely.core.errors import InvalidInput, UnknownName
from timely.plans.robot_profiles import RobotProfile
from timely.server.catalogue import ServerCatalogue
from timely.server.tasks.admission import TaskAdmission
from timely.server.tasks.request import TaskRequest


async def test_what_ships_is_found_and_read_once() -> None:
    catalogue = ServerCatalogue()
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
    catalogue = ServerCatalogue()
    with pytest.raises(UnknownName, match=r"known: .*drone"):
        await catalogue.skill_set(name)
    with pytest.raises(UnknownName, match=r"known: .*tello"):
        await catalogue.profile(name)


async def test_a_broken_profile_says_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\nrobot: x\nsource: y\nskills: 3\n")
    monkeypatch.setenv("LRTRACE_PROFILES_PATH", str(tmp_path))
    with pytest.raises(InvalidInput) as caught:
        await ServerCatalogue().profile("bad")
    assert caught.value.where == f"{tmp_path}/bad.yaml:4"


@pytest.mark.parametrize(
    ("by_profile", "by_request", "expected_s"), [(0.0, None, 0.0), (None, None, 0.008), (0.0, 0.02, 0.02)]
)
async def test_a_profile_may_say_that_a_robot_is_at_the_server(
    by_profile: float | None, by_request: float | None, expected_s: float
) -> None:
    """No delay is a delay of the profile's own, not one that it leaves to the skill set."""
    fields = TINY.model_dump(exclude={"network_s"}, exclude_unset=True)
    if by_profile is not None:
        fields["network_s"] = by_profile
    catalogue = MemoryCatalogue([DRONE], [RobotProfile.model_validate(fields)])
    nothing: Any = None
    admission = TaskAdmission(nothing, catalogue, nothing, nothing)
    request = TaskRequest.model_validate({"task": "Fly.", "skill_set": "tiny-drone", "network_s": by_request})
    assert DRONE.network_s == 0.008
    assert (await admission.look_up_robot(request)).network_s == expected_s
