"""Sentences to padded batches of tokens: `<cls> A <sep> B <sep>`, a single sentence with an empty B.

Shape suffixes: B batch, N tokens.
"""

import numpy
import torch
from tokenizers import Tokenizer
from torch import Tensor

from train.data.corpus import wordpiece
from train.data.glue.reading import Rows

MULTIPLE = 8  # batches are padded to a multiple of so many tokens


class Features:
    """A split's tokens and labels in memory."""

    def __init__(self, rows: Rows, tokenizer: Tokenizer, length: int, regression: bool) -> None:
        """Encode every row, its longer sentence shortened where both are more than `length` tokens together."""
        tokenizer.enable_truncation(length, strategy="longest_first")
        inputs = rows.first if rows.second is None else list(zip(rows.first, rows.second, strict=True))
        encoded = tokenizer.encode_batch(inputs)
        self.tokens = [numpy.array(encoding.ids, numpy.uint16) for encoding in encoded]
        self.length = length
        self.labels = None
        if rows.labels is not None:
            self.labels = torch.tensor(rows.labels, dtype=torch.float32 if regression else torch.int64)

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, indices: list[int]) -> tuple[Tensor, Tensor | None]:
        """int64 tokens [B, N], padded to the longest of them, and labels [B]."""
        longest = max(len(self.tokens[index]) for index in indices)
        width = min(self.length, -(-longest // MULTIPLE) * MULTIPLE)
        tokens_BN = numpy.full((len(indices), width), wordpiece.PAD, numpy.int64)
        for row, index in enumerate(indices):
            tokens_BN[row, : len(self.tokens[index])] = self.tokens[index]
        return torch.from_numpy(tokens_BN), None if self.labels is None else self.labels[indices]
