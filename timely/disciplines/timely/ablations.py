"""``timely`` with its ideas one by one: for ablations, in the simulator and live; none is offered for serving."""

from __future__ import annotations

from typing import ClassVar

from timely.disciplines.timely.discipline import Timely


class Index(Timely):
    """The index alone: nothing else of ``timely``."""

    PROTECT: ClassVar[bool] = False
    CHUNK: ClassVar[bool] = False
    EARLY: ClassVar[float] = 0.0
    RIDE_S: ClassVar[float] = 0.0


class Protecting(Index):
    """And who joins must gain what the others lose."""

    PROTECT: ClassVar[bool] = True


class Chunking(Protecting):
    """And prompts are cut to the slack of those in the step."""

    CHUNK: ClassVar[bool] = True


class Hurrying(Chunking):
    """And early is better. With riding along it is ``timely``."""

    EARLY: ClassVar[float] = Timely.EARLY


class Riding(Index):
    """The index, and riding along."""

    RIDE_S: ClassVar[float] = Timely.RIDE_S


class WithoutProtection(Timely):
    """All but that."""

    PROTECT: ClassVar[bool] = False


class WithoutChunks(Timely):
    """All but that."""

    CHUNK: ClassVar[bool] = False


class WithoutHurry(Timely):
    """All but that early is better."""

    EARLY: ClassVar[float] = 0.0


class WithoutRiding(Timely):
    """All but that."""

    RIDE_S: ClassVar[float] = 0.0
