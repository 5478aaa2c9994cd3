"""Parts of ``timely`` one by one, for ablations in the simulator and live; none is offered for serving."""

from __future__ import annotations

from typing import ClassVar

from timely.disciplines.timely.discipline import Timely


class Index(Timely):
    """The index without the other parts."""

    PROTECT: ClassVar[bool] = False
    CHUNK: ClassVar[bool] = False
    EARLY_SHARE: ClassVar[float] = 0.0
    RIDE_HORIZON_S: ClassVar[float] = 0.0


class Protecting(Index):
    """The index, and a job that joins must gain what the others lose."""

    PROTECT: ClassVar[bool] = True


class Chunking(Protecting):
    """Protection, and prompts cut to the slack of the members."""

    CHUNK: ClassVar[bool] = True


class Hurrying(Chunking):
    """Chunks, and early is better. With opportunistic decodes it is ``timely``."""

    EARLY_SHARE: ClassVar[float] = Timely.EARLY_SHARE


class Riding(Index):
    """The index, and opportunistic decodes."""

    RIDE_HORIZON_S: ClassVar[float] = Timely.RIDE_HORIZON_S


class WithoutProtection(Timely):
    """``timely`` without protection."""

    PROTECT: ClassVar[bool] = False


class WithoutChunks(Timely):
    """``timely`` without chunks."""

    CHUNK: ClassVar[bool] = False


class WithoutHurry(Timely):
    """``timely`` where being early gains nothing."""

    EARLY_SHARE: ClassVar[float] = 0.0


class WithoutRiding(Timely):
    """``timely`` without opportunistic decodes."""

    RIDE_HORIZON_S: ClassVar[float] = 0.0
