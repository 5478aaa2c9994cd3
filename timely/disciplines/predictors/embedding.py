"""From a prompt to a unit vector in which similar prompts lie close: what the history predictor searches by.

Two embedders, one interface. ``hash`` needs numpy only: words and word pairs hashed into a fixed number of
signed buckets. It sees shared words, not shared meaning. ``wordllama`` (optional; MIT, 16 MB of token vectors
inside its package, no download, no accelerator) also brings paraphrases together. Transformer encoders such as
MiniLM take milliseconds of CPU for each prompt, several times what a scheduling decision may cost. They also come from
a download hub, so there is none here. Any object with these three members can be passed in instead.

Cosines are not comparable between embedders. Each brings the threshold at which its neighbours are worth
having, which plays the part of the 0.8 of SageSched section 3.1. Measured on 1,201 dialogues with the length of
their summary, with ``hash`` at 0.7 and ``wordllama`` at 0.8. The median of the neighbours errs by 0.75 and 0.77 of the
error of the overall median. That holds for 48% and 65% of the prompts. A prompt takes 0.03 ms and 0.2 to 0.35 ms.
``hash`` is the default: it is in every install, so a discipline decides alike on every machine.
"""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from timely.core.errors import UnknownName, Unsupported
from timely.core.json_log import unchanged_root_logger

Vectors = NDArray[np.float32]

MAX_CHARS = 1_000
"""Read of a prompt, characters: what is asked stands at the start, and the cost stays bounded."""


class Embedder(Protocol):
    """Turns texts into unit vectors.

    Attributes:
        name: names the vector space; histories of different spaces do not mix.
        dim: length of a vector.
        threshold: cosine from which two prompts count as similar in this space.
    """

    name: str
    dim: int
    threshold: float

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit rows, shape ``(len(texts), dim)``; a text without any word is a zero row."""


_WORD = np.zeros(256, dtype=np.bool_)
_WORD[[*b"abcdefghijklmnopqrstuvwxyz0123456789_", *range(128, 256)]] = True
_LONGEST_WORD = 64


class HashEmbedder:
    """Signed feature hashing of words and word pairs; vectorised over the bytes of the text.

    Short words weigh less, which does for a frequency table without having to learn one.

    Args:
        seed: of the hash function: equal seeds give equal vectors on every machine.
    """

    threshold = 0.7

    def __init__(self, dim: int = 256, seed: int = 0) -> None:
        self.name = f"hash-{dim}-{seed}"
        self.dim = dim
        rng = np.random.default_rng(seed)
        odd = rng.integers(0, 2**31, size=_LONGEST_WORD, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
        self._powers = odd
        self._pair = np.uint32(int(rng.integers(0, 2**31)) * 2 + 1)

    def embed(self, texts: Sequence[str]) -> Vectors:
        out: Vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for i, text in enumerate(texts):
            self._one(text, out[i])
        return out

    def _one(self, text: str, row: Vectors) -> None:
        data = np.frombuffer(text[:MAX_CHARS].lower().encode(errors="surrogatepass"), dtype=np.uint8)
        at = _WORD[data].nonzero()[0]
        if at.size == 0:
            return
        # A word begins where the byte before it is none of a word.
        bounds = np.concatenate(([0], (at[1:] - at[:-1] > 1).nonzero()[0] + 1, [at.size]))
        first, lengths = bounds[:-1], bounds[1:] - bounds[:-1]
        # The place of each byte within its word picks its multiplier.
        place = np.minimum(np.arange(at.size) - np.repeat(first, lengths), _LONGEST_WORD - 1)
        hashes = np.add.reduceat(data[at] * self._powers[place], first, dtype=np.uint32)
        weights = np.minimum(1.0, lengths / 6.0)
        pairs = hashes[:-1] * self._pair + hashes[1:]
        keys = _mix_embedding_keys(np.concatenate((hashes, pairs)))
        mass = np.concatenate((weights, 0.5 * np.minimum(weights[:-1], weights[1:])))
        mass = np.where(keys & np.uint32(1), mass, -mass)
        row[:] = np.bincount((keys >> np.uint32(1)) % np.uint32(self.dim), weights=mass, minlength=self.dim)
        norm = float(np.sqrt(np.dot(row, row)))
        if norm > 0.0:
            row /= norm


def _mix_embedding_keys(keys: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The finaliser of MurmurHash3: every bit of a key moves every bit of the result."""
    keys = (keys ^ (keys >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    keys = (keys ^ (keys >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return keys ^ (keys >> np.uint32(16))


class WordLlamaEmbedder:
    """Averaged token vectors of WordLlama, 256 numbers a text.

    Raises:
        Unsupported: the package is not installed (extra ``predict``).
    """

    name = "wordllama-256"
    dim = 256
    threshold = 0.8

    def __init__(self) -> None:
        self._model = _load_wordllama_embedding()

    def embed(self, texts: Sequence[str]) -> Vectors:
        # A text without any token would be divided by its zero norm.
        usable = [i for i, text in enumerate(texts) if text.strip()]
        out: Vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        if usable:
            out[usable] = self._model.embed([texts[i][:MAX_CHARS] for i in usable], norm=True)
        return out


@cache
def _load_wordllama_embedding() -> Any:
    if find_spec("wordllama") is None:
        raise Unsupported(
            "the embedder 'wordllama' is not installed: pip install 'timely-serving[predict]'",
            where="embedder",
        )
    # Its import sends every message of the process from level INFO on to standard error.
    with unchanged_root_logger():
        import wordllama

    # Its tokenizer lies beside its weights, but it looks there only when told so; never ask the network.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


def prompt_embedder(name: str = "hash") -> Embedder:
    """An embedder by name: ``hash`` or ``wordllama``.

    Raises:
        UnknownName: neither.
        Unsupported: ``wordllama`` where it is not installed.
    """
    if name == "hash":
        return HashEmbedder()
    if name == "wordllama":
        return WordLlamaEmbedder()
    raise UnknownName("embedder", name, ("hash", "wordllama"), where="embedder")
