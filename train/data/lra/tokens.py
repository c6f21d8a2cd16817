"""Token sequences of different lengths, held as one byte a token.

Shape legend: B samples asked for, D documents a sample (1, or 2 for pairs), N the padded length.
"""

from dataclasses import dataclass

import numpy
import torch

from train.errors import UserError
from train.randomness import SUBSET, permutation

PAD = 0  # a token that the model masks


@dataclass(frozen=True)
class TokenSet:
    """n samples of D documents each.

    `bytes_` holds all documents one after another; document d of sample i is `bytes_[offsets[D·i + d] :
    offsets[D·i + d + 1]]`. A token is its byte plus `shift`, so that 256 byte values and the padding fit into a byte
    each.
    """

    bytes_: numpy.ndarray  # uint8
    offsets: numpy.ndarray  # int64 [D·n + 1]
    labels: torch.Tensor  # int64 [n]
    padded_length: int
    shift: int = 0
    documents: int = 1

    def __post_init__(self) -> None:
        if len(self.offsets) != self.documents * len(self.labels) + 1:
            raise ValueError(f"{len(self.offsets)} offsets for {len(self.labels)} samples of {self.documents}")
        longest = int(numpy.diff(self.offsets).max(initial=0))
        if longest > self.padded_length:
            raise ValueError(f"a document of {longest} tokens is longer than {self.padded_length}")

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: torch.Tensor) -> torch.Tensor:
        """The tokens of some samples, padded with zeros.

        Args:
            indices: int64 [B].

        Returns:
            int64 [B, N], or [B, 2, N] for pairs.
        """
        rows = (numpy.asarray(indices)[:, None] * self.documents + numpy.arange(self.documents)).ravel()
        starts, stops = self.offsets[rows], self.offsets[rows + 1]
        tokens = numpy.full((len(rows), self.padded_length), PAD, dtype=numpy.int64)
        for row, start, stop in zip(tokens, starts.tolist(), stops.tolist(), strict=True):
            numpy.add(self.bytes_[start:stop], self.shift, out=row[: stop - start], dtype=numpy.int64)
        shape = (-1, self.padded_length) if self.documents == 1 else (-1, self.documents, self.padded_length)
        return torch.from_numpy(tokens.reshape(shape))

    def lengths(self) -> torch.Tensor:
        """How many tokens each document has: int64 [n], or [n, 2] for pairs."""
        found = torch.from_numpy(numpy.diff(self.offsets))
        return found if self.documents == 1 else found.view(-1, self.documents)

    def subset(self, indices: torch.Tensor) -> "TokenSet":
        """Some of the samples, copied, in the order asked for."""
        rows = (numpy.asarray(indices)[:, None] * self.documents + numpy.arange(self.documents)).ravel()
        sizes = self.offsets[rows + 1] - self.offsets[rows]
        offsets = numpy.concatenate([[0], sizes.cumsum()])
        held = numpy.empty(offsets[-1], dtype=numpy.uint8)
        for row, start, stop in zip(rows, offsets, offsets[1:], strict=False):
            held[start:stop] = self.bytes_[self.offsets[row] : self.offsets[row + 1]]
        return TokenSet(held, offsets, self.labels[indices], self.padded_length, self.shift, self.documents)


class Builder:
    """A TokenSet that grows document by document; each is cut at `max_length` as it comes, so that memory holds
    what stays and no more.
    """

    def __init__(self, max_length: int, padded_length: int, shift: int = 0, documents: int = 1) -> None:
        if max_length > padded_length:
            raise UserError(f"dataset.max_length={max_length} is more than dataset.padded_length={padded_length}")
        self.max_length, self.padded_length, self.shift, self.documents = max_length, padded_length, shift, documents
        self._bytes, self._ends, self._labels = bytearray(), [0], []

    def add(self, label: int, *documents: bytes) -> None:
        """One sample; its bytes are its tokens less `shift`."""
        for document in documents:
            self._bytes += document[: self.max_length]
            self._ends.append(len(self._bytes))
        self._labels.append(label)

    def done(self) -> TokenSet:
        """Everything added, without copying the bytes."""
        return TokenSet(
            numpy.frombuffer(self._bytes, dtype=numpy.uint8),
            numpy.array(self._ends, dtype=numpy.int64),
            torch.tensor(self._labels, dtype=torch.int64),
            self.padded_length,
            self.shift,
            self.documents,
        )


def chosen(size: int, wanted: int | None, key: str) -> torch.Tensor | None:
    """The fixed subset that a config asks for, the same for every seed: int64 [wanted], or None for all.

    Args:
        key: the config key that `wanted` is the value of.

    Raises:
        UserError: there are not that many.
    """
    if wanted is None:
        return None
    if not 0 < wanted <= size:
        raise UserError(f"dataset.{key}={wanted}: there are {size} samples")
    return permutation(size, SUBSET)[:wanted]


def limited(samples: TokenSet, wanted: int | None, key: str) -> TokenSet:
    """The samples, or the fixed subset of them, see `chosen`."""
    indices = chosen(len(samples), wanted, key)
    return samples if indices is None else samples.subset(indices)
