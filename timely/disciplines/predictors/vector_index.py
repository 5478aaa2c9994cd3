"""A window of unit vectors, first in first out, searched by cosine: numpy alone, or FAISS.

Both give the same answer to the last bit. A search uses the fast single-precision products. Rows so close to the
threshold that rounding could decide are decided again in double precision.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from timely.core.errors import UnknownName, Unsupported
from timely.disciplines.predictors.embedding import Vectors

Places = NDArray[np.int64]

_DOUBT = 1e-4
"""Distance from the threshold within which single precision is not trusted."""


class FlatIndex(Protocol):
    """Vectors by slot; the owner says which slot a new vector takes."""

    def put(self, slot: int, vector: Vectors) -> None:
        """Store ``vector``, shape ``(dim,)``, at ``slot``, over what was there."""
        ...

    def search(self, query: Vectors, threshold: float) -> Places:
        """Slots whose cosine with ``query`` is at least ``threshold``, ascending."""
        ...


def _decide(rows: Vectors, slots: Places, scores: Vectors, query: Vectors, threshold: float) -> Places:
    sure = scores >= threshold + _DOUBT
    doubtful = np.flatnonzero(~sure & (scores >= threshold - _DOUBT))
    if doubtful.size:
        # A sum for each row, not a matrix product: that one rounds by how many rows there are.
        exact = (rows[slots[doubtful]].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        sure[doubtful] = exact >= threshold
    nearest: Places = slots[sure]
    return nearest


class NumpyFlat:
    """One matrix, one product for each search: 0.07 ms at 10,000 rows of 256 on one core.

    Args:
        capacity: number of slots.
        dim: length of a vector.
    """

    def __init__(self, capacity: int, dim: int) -> None:
        self._rows: Vectors = np.zeros((capacity, dim), dtype=np.float32)
        self._used = 0

    def put(self, slot: int, vector: Vectors) -> None:
        """See ``FlatIndex.put``."""
        self._rows[slot] = vector
        self._used = max(self._used, slot + 1)

    def search(self, query: Vectors, threshold: float) -> Places:
        """See ``FlatIndex.search``."""
        rows = self._rows[: self._used]
        scores: Vectors = rows @ query
        return _decide(rows, np.arange(self._used, dtype=np.int64), scores, query, threshold)


class FaissFlat:
    """FAISS ``IndexFlatIP`` (extra ``predict``), overwritten in place: removal would move the whole window.

    Raises:
        Unsupported: FAISS is not installed.
    """

    def __init__(self, capacity: int, dim: int) -> None:
        if find_spec("faiss") is None:
            raise Unsupported(
                "the index 'faiss' is not installed: pip install 'timely-serving[predict]'", where="index"
            )
        import faiss

        self._faiss: Any = faiss
        self._index: Any = faiss.IndexFlatIP(dim)
        self._index.add(np.zeros((capacity, dim), dtype=np.float32))
        self._rows: Vectors = faiss.rev_swig_ptr(self._index.get_xb(), capacity * dim).reshape(capacity, dim)

    def put(self, slot: int, vector: Vectors) -> None:
        """See ``FlatIndex.put``."""
        self._rows[slot] = vector

    def search(self, query: Vectors, threshold: float) -> Places:
        """See ``FlatIndex.search``."""
        _, scores, slots = self._index.range_search(query[None, :], threshold - 2.0 * _DOUBT)
        order = np.argsort(slots)
        return _decide(self._rows, slots[order].astype(np.int64), scores[order], query, threshold)


def flat_index(name: str, capacity: int, dim: int) -> FlatIndex:
    """An index by name: ``numpy`` or ``faiss``.

    Raises:
        UnknownName: neither.
        Unsupported: ``faiss`` where it is not installed.
    """
    if name == "numpy":
        return NumpyFlat(capacity, dim)
    if name == "faiss":
        return FaissFlat(capacity, dim)
    raise UnknownName("index", name, ("faiss", "numpy"), where="index")
