"""Which documents stay: long enough, not trash, not nearly a repetition of an earlier one.

Trash is what a tokenizer cuts into many tokens for its length (the recipe's filter: tokens < .25 × characters).
Near-duplicates are found by MinHash: documents that share most of their 32-character windows. (The legacy recipe
removed repeated stretches of 75 characters with a suffix array; ours removes whole documents instead.)
"""

import hashlib

import numpy

WINDOW = 32  # characters
BANDS, ROWS = 5, 4  # two documents of Jaccard similarity s meet in a band with probability 1 - (1 - s^4)^5
_ODD = 0x9E3779B97F4A7C15  # base of the rolling hash: odd, so that it has an inverse modulo 2^64
_INVERSE = pow(_ODD, -1, 1 << 64)
_DRAWN = numpy.random.default_rng(0).integers(1, 1 << 62, (2, BANDS * ROWS), numpy.uint64)
_SCALE, _SHIFT = _DRAWN[0] * numpy.uint64(2) + numpy.uint64(1), _DRAWN[1]


def held_out_by_hash(text: str, share: float) -> bool:
    """Whether a document is among the held-out share: a function of its text alone."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    return number < share * 2**64


def is_trash(tokens: int, characters: int, ratio: float | None) -> bool:
    """The recipe's filter."""
    return ratio is not None and not tokens < ratio * characters


def signature(text: str) -> numpy.ndarray:
    """uint64 [BANDS]: two documents that agree in any of them are taken for near-duplicates.

    Texts shorter than a window are compared as wholes.
    """
    content = numpy.frombuffer(text.lower().encode(), numpy.uint8)
    window = min(WINDOW, len(content))
    with numpy.errstate(over="ignore"):
        powers, inverses = _powers(_ODD, len(content)), _powers(_INVERSE, len(content) - window + 1)
        sums = numpy.concatenate([[numpy.uint64(0)], numpy.cumsum(content * powers, dtype=numpy.uint64)])
        windows = (sums[window:] - sums[:-window]) * inverses  # the same for the same characters, wherever they stand
        windows ^= windows >> numpy.uint64(31)
        least = numpy.array([(windows * a + b).min() for a, b in zip(_SCALE, _SHIFT, strict=True)])
    return numpy.array(
        [
            int.from_bytes(hashlib.blake2b(band.tobytes() + bytes([i]), digest_size=8).digest())
            for i, band in enumerate(least.reshape(BANDS, ROWS))
        ],
        numpy.uint64,
    )


def _powers(base: int, count: int) -> numpy.ndarray:
    return numpy.cumprod(numpy.r_[numpy.uint64(1), numpy.full(count - 1, base, numpy.uint64)], dtype=numpy.uint64)


class Seen:
    """The bands of the documents so far: five numbers a document, the one thing that grows with the corpus."""

    def __init__(self) -> None:
        self.bands: set[int] = set()

    def repeated(self, bands: numpy.ndarray) -> bool:
        """Whether an earlier document is nearly this one; takes it down."""
        numbers = bands.tolist()
        found = any(number in self.bands for number in numbers)
        self.bands.update(numbers)
        return found
