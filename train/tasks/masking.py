"""Which tokens a masked language model has to predict, and what it sees in their places.

Shape suffixes: B batch, N tokens, K chosen tokens of a sequence.
"""

import torch
from torch import Tensor

MASKED, RANDOM = 0.8, 0.1  # of the chosen tokens: seen as <mask>, as a random token; the rest as they are


def chosen_by_chance(tokens_BN: Tensor, share: float, specials: int, generator: torch.Generator) -> Tensor:
    """The legacy rule: each token for itself with probability `share`; never one of the first `specials` tokens."""
    drawn_BN = torch.rand(tokens_BN.shape, generator=generator)
    return (drawn_BN < share) & (tokens_BN >= specials)


def chosen_by_count(tokens_BN: Tensor, share: float, specials: int, generator: torch.Generator) -> Tensor:
    """The current rule: in every sequence the same number of tokens, round(share · N), specials among them."""
    del specials
    drawn_BN = torch.rand(tokens_BN.shape, generator=generator)
    chosen_BK = drawn_BN.topk(round(share * tokens_BN.shape[1]), dim=1).indices
    return torch.zeros(tokens_BN.shape, dtype=torch.bool).scatter_(1, chosen_BK, True)


RULES = {"legacy": chosen_by_chance, "current": chosen_by_count}


def corrupted(tokens_BN: Tensor, chosen_BN: Tensor, mask: int, vocabulary: int, generator: torch.Generator) -> Tensor:
    """The input: of the chosen tokens 80 % are `mask`, 10 % any token of the vocabulary, 10 % stay."""
    kind_BN = torch.rand(tokens_BN.shape, generator=generator)
    random_BN = torch.randint(vocabulary, tokens_BN.shape, generator=generator)
    seen_BN = torch.where(kind_BN < MASKED, mask, torch.where(kind_BN < MASKED + RANDOM, random_BN, tokens_BN))
    return torch.where(chosen_BN, seen_BN, tokens_BN)
