"""Principals: their roles, the robots they may command, and the limits of what they may claim."""

import hashlib
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from lrtrace.errors import BadInput
from lrtrace.yaml_file import REASONS, YamlFile, read_plain_yaml
from timely.core.clock import Clock
from timely.core.errors import InvalidInput, NotAllowed
from timely.core.files import file_stamp
from timely.core.utility import NORMAL, URGENT, TimeUtility

log = logging.getLogger(__name__)

Role = Literal["robot", "program", "operator", "viewer"]
ROLES: tuple[Role, ...] = get_args(Role)

MIN_TOKEN_CHARS = 20
VISIBLE_ASCII = re.compile(r"[!-~]+")
"""What a header can carry unchanged."""

CHECK_INTERVAL_S = 1.0
"""How often the principals' file is compared with the one that was read, seconds."""


class PrincipalClaims(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """The most that a request may claim; a larger claim is reduced to it.

    Attributes:
        max_beta: initial utility. max_slope: utility lost per second.
        most_urgent: smallest urgency level. min_priority: smallest (most important) priority.
    """

    max_beta: Annotated[float, Field(gt=0)] = 1e6
    max_slope: Annotated[float, Field(ge=0)] = 1e6
    most_urgent: Annotated[int, Field(ge=0, le=4)] = 0
    min_priority: float = -1e6

    def utility(self, claim: TimeUtility) -> TimeUtility:
        """The claimed time-utility function within the limits."""
        return TimeUtility(claim.ert_s, max(claim.alpha, -self.max_slope), min(claim.beta, self.max_beta))

    def urgency(self, claim: int | None) -> int | None:
        """The claimed urgency level within the limits."""
        return None if claim is None else max(claim, self.most_urgent)

    def priority(self, claim: float) -> float:
        return max(claim, self.min_priority)


UNLIMITED = PrincipalClaims()


class PrincipalLimits(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """How much of the server one principal may use; None: as much as there is.

    Attributes:
        requests_per_s: requests for generations, in the long run; ``burst`` of them at once.
        live_plans: generations at once, those of chat requests among them.
        kv_tokens: KV cache that these may hold, tokens; each counts its prompt and its longest answer.
        connections: HTTP requests in progress at once, event streams among them. Reports and stops do not count.
        plan_s: longest life of a plan in generation, seconds.
        value_wait_s: how long a plan waits for a value after the expected end of the skill that returns it, seconds.
    """

    requests_per_s: Annotated[float | None, Field(ge=1e-6)] = None
    burst: Annotated[int, Field(ge=1)] = 10
    live_plans: Annotated[int | None, Field(ge=1)] = None
    kv_tokens: Annotated[int | None, Field(ge=1)] = None
    connections: Annotated[int | None, Field(ge=1)] = None
    plan_s: Annotated[float | None, Field(gt=0)] = None
    value_wait_s: Annotated[float | None, Field(gt=0)] = None


NO_LIMITS = PrincipalLimits()

CLAIMS: Mapping[Role, PrincipalClaims] = {
    "robot": PrincipalClaims(max_beta=URGENT.beta, max_slope=-URGENT.alpha, min_priority=0.0),
    "program": PrincipalClaims(
        max_beta=NORMAL.beta, max_slope=-NORMAL.alpha, most_urgent=1, min_priority=0.0
    ),
    "operator": UNLIMITED,
    "viewer": PrincipalClaims(max_beta=NORMAL.beta, max_slope=0.0, most_urgent=4, min_priority=0.0),
}
"""Limits of a principal that has none of its own, by role."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or program that the server has identified.

    Attributes:
        agents: patterns of the robots it may command and report on; ``*`` is every robot.
        overrides_tokens: acts on any task without the task's token.
        named: identified by a token; its applications get its name as a prefix.
    """

    name: str
    roles: frozenset[Role]
    agents: tuple[str, ...] = ()
    claims: PrincipalClaims = UNLIMITED
    limits: PrincipalLimits = NO_LIMITS
    overrides_tokens: bool = False
    named: bool = True

    def require(self, *roles: Role, action: str) -> None:
        """Raise NotAllowed unless the principal has one of the roles."""
        if self.roles.isdisjoint(roles):
            raise NotAllowed(
                f"{self.name} may not {action}: it needs the role {' or '.join(roles)}", where="role"
            )

    def commands(self, agent: str) -> bool:
        return any(fnmatchcase(agent, pattern) for pattern in self.agents)

    @property
    def commands_all(self) -> bool:
        return "*" in self.agents

    def sees(self, owner: str, agent: str) -> bool:
        """Whether the principal may see a task of that owner and robot."""
        if not self.roles.isdisjoint(("operator", "viewer")):
            return True
        return owner == self.name or ("robot" in self.roles and bool(agent) and self.commands(agent))

    def app(self, app: str | None) -> str | None:
        """The application's name, which no other principal can use."""
        return f"{self.name}/{app}" if app is not None and self.named else app


LOCAL = Principal("local", frozenset(ROLES), ("*",), named=False)
"""Every client of a server on loopback without configured principals."""

LOCAL_PAGE = Principal("local-page", frozenset(ROLES), ("*",), overrides_tokens=True, named=False)
"""The live page of such a server."""


class _PrincipalEntry(BaseModel, extra="forbid"):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    roles: Annotated[list[Role], Field(min_length=1)]
    token_sha256: Annotated[list[Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]], Field(min_length=1)]
    agents: list[Annotated[str, Field(min_length=1, max_length=128)]] | None = None
    claims: PrincipalClaims | None = None
    limits: PrincipalLimits = NO_LIMITS

    def principal(self) -> Principal:
        roles = frozenset(self.roles)
        agents = self.agents
        if agents is None:
            agents = ["*"] if "operator" in roles else [self.name]
        widest = max((CLAIMS[role] for role in self.roles), key=attrgetter("max_beta", "max_slope"))
        claims = self.claims or widest
        return Principal(
            self.name, roles, tuple(agents), claims, self.limits, overrides_tokens="operator" in roles
        )


_ENTRIES = TypeAdapter(list[_PrincipalEntry])


@dataclass(slots=True)
class PrincipalFile:
    """The principals of a file by the digest of each token, and the file's stamp."""

    by_digest: dict[str, Principal] = field(default_factory=dict)
    stamp: tuple[int, int, int] | None = None


class PrincipalRegistry:
    """Finds the principal of a bearer token.

    Only SHA-256 digests are kept. The file is read again when it changes. A file that cannot be used changes nothing
    and is an error in the log.

    Args:
        path: a YAML list of principals, or None.
        api_key: a token of a principal ``api-key`` with every role, or None.

    Raises:
        InvalidInput: the file cannot be used, or the key is too short.
    """

    def __init__(self, path: Path | None, api_key: str | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._fixed_principals: dict[str, Principal] = {}
        if api_key is not None:
            if len(api_key) < MIN_TOKEN_CHARS:
                raise InvalidInput(f"the key needs at least {MIN_TOKEN_CHARS} characters", where="api_key")
            if not VISIBLE_ASCII.fullmatch(api_key):
                raise InvalidInput("a client cannot send it: it has spaces or no ASCII", where="api_key")
            operator = Principal("api-key", frozenset(ROLES), ("*",), overrides_tokens=True)
            self._fixed_principals[principal_token_digest(api_key)] = operator
        self._file = read_principal_file(path) if path is not None else PrincipalFile()
        self._checked_s = clock.now()
        self._problem = ""
        """Why the file could not be read again; it is looked at every second."""

    def find(self, token: str) -> Principal | None:
        return self.find_digest(principal_token_digest(token))

    def find_digest(self, value: str) -> Principal | None:
        self._refresh()
        return self._fixed_principals.get(value) or self._file.by_digest.get(value)

    def _refresh(self) -> None:
        now = self._clock.now()
        if self._path is None or now - self._checked_s < CHECK_INTERVAL_S:
            return
        self._checked_s = now
        try:
            if file_stamp(self._path) != self._file.stamp:
                self._file = read_principal_file(self._path)
                log.warning("principals read again from %s: %s tokens", self._path, len(self._file.by_digest))
            self._problem = ""
        except (OSError, InvalidInput) as error:
            if str(error) != self._problem:
                log.error("principals stay as they were: %s", error)
            self._problem = str(error)


def principal_token_digest(token: str) -> str:
    """The SHA-256 of a token; tokens are long and random, so no slower function is needed."""
    return hashlib.sha256(token.encode()).hexdigest()


def new_principal_entry(name: str, roles: Iterable[str], agents: Iterable[str] = ()) -> tuple[str, str]:
    """A new token, and the YAML entry of its principal; raises InvalidInput for an unusable name or role."""
    token = secrets.token_urlsafe(32)
    entry = {"name": name, "roles": list(roles), "token_sha256": [principal_token_digest(token)]}
    if agents:
        entry["agents"] = list(agents)
    try:
        _PrincipalEntry.model_validate(entry)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(first["msg"], where=".".join(map(str, first["loc"]))) from error
    return token, yaml.safe_dump([entry], sort_keys=False)


def _principal_file_problem(error: ValidationError, file: YamlFile) -> InvalidInput:
    """The first problem of a file: its line, the principal by name, the field and the reason."""
    first = error.errors()[0]
    field = [str(part) for part in first["loc"]]
    entry = file.value[first["loc"][0]] if field else None
    if isinstance(entry, dict) and "name" in entry:
        field[0] = str(entry["name"])[:64]
    reason = REASONS.get(first["type"], first["msg"])
    if first["type"] == "literal_error":
        reason += f", not {str(first['input'])[:64]!r}"
    return InvalidInput(reason, where=", ".join(filter(None, (file.where(first["loc"]), ".".join(field)))))


def read_principal_file(path: Path) -> PrincipalFile:
    """Read a file of principals, as server, bridges and drivers do; raises InvalidInput if it cannot be used."""
    try:
        stamp = file_stamp(path)
        file = read_plain_yaml(path)
        entries = _ENTRIES.validate_python(file.value)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error
    except ValidationError as error:
        raise _principal_file_problem(error, file) from error
    except BadInput as error:
        raise InvalidInput(error.message, where=error.where) from error
    by_digest: dict[str, Principal] = {}
    names: set[str] = set()
    for entry in entries:
        if entry.name in names:
            # Its tokens would share one name and not its roles and limits.
            raise InvalidInput(f"{entry.name} has two entries: list its digests in one", where=str(path))
        names.add(entry.name)
        for value in entry.token_sha256:
            if value in by_digest:
                raise InvalidInput(f"{entry.name} shares a token with another entry", where=str(path))
            by_digest[value] = entry.principal()
    return PrincipalFile(by_digest, stamp)
