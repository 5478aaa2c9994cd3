"""Parts of ``weighted-tardiness`` one by one, for ablations in the simulator and live; none is offered for serving."""

from typing import ClassVar

from timely.disciplines.tardiness.discipline import WeightedTardiness


class Index(WeightedTardiness):
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
    """Chunks, and early is better. With opportunistic decodes it is ``weighted-tardiness``."""

    EARLY_SHARE: ClassVar[float] = WeightedTardiness.EARLY_SHARE


class Riding(Index):
    """The index, and opportunistic decodes."""

    RIDE_HORIZON_S: ClassVar[float] = WeightedTardiness.RIDE_HORIZON_S


class WithoutProtection(WeightedTardiness):
    """``weighted-tardiness`` without protection."""

    PROTECT: ClassVar[bool] = False


class WithoutChunks(WeightedTardiness):
    """``weighted-tardiness`` without chunks."""

    CHUNK: ClassVar[bool] = False


class WithoutHurry(WeightedTardiness):
    """``weighted-tardiness`` where being early gains nothing."""

    EARLY_SHARE: ClassVar[float] = 0.0


class WithoutRiding(WeightedTardiness):
    """``weighted-tardiness`` without opportunistic decodes."""

    RIDE_HORIZON_S: ClassVar[float] = 0.0
