"""Models whose matrices the theory table looks at: at initialisation, and really trained.

Nothing is downloaded: the handwritten digits come with scikit-learn, the trained ALBERT with the PyPI package
`rxnmapper` (a chemical-reaction language model, Schwaller et al. 2021, MIT licence), where that is installed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specattn import condition
from train.data.small import digits

#: A Fischer esterification, as a reaction SMILES: what the trained ALBERT reads.
REACTION = "CC(=O)O.OCC1CCCCC1.OS(=O)(=O)O>>CC(=O)OCC1CCCCC1"
# The tokenisation of reaction SMILES that the model was trained with (Schwaller et al.).
_SMILES = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%\d\d|[A-Za-z]|[0-9]|[().=#+\-\\/:~@?*$]")


def digits_vit(seed: int = 0) -> nn.Module:
    """A ViT for 8 × 8 images: 17 tokens, width 48, depth 2, 3 heads of 16; timm's initialisation."""
    import timm

    torch.manual_seed(seed)
    return timm.create_model(
        "vit_tiny_patch16_224",
        img_size=8,
        patch_size=2,
        in_chans=1,
        num_classes=10,
        embed_dim=48,
        depth=2,
        num_heads=3,
    )


def digits_batch(count: int = 1) -> Tensor:
    """The first test digits, normalised."""
    _, (images, _) = digits()
    return images[:count].float() / 127.5 - 1


def train_digits_vit(
    lam: float, method: str, stops: tuple[int, ...], seed: int = 0
) -> Iterator[tuple[int, nn.Module, float]]:
    """(step, model, test accuracy) at each of `stops` while training on the digits with AdamW (lr 1e-3, decay 0.05).

    The model is conditioned before step 0, persistently; the yielded model goes on training afterwards.
    """
    (images, labels), (test, truth) = digits()
    images, test = images.float() / 127.5 - 1, test.float() / 127.5 - 1
    model = condition(digits_vit(seed), lam=lam, method=method)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    order = torch.Generator().manual_seed(seed)
    for step in range(max(stops) + 1):
        if step in stops:
            model.eval()
            with torch.no_grad():
                accuracy = float((model(test).argmax(1) == truth).float().mean())
            yield step, model, accuracy
            model.train()
        batch = torch.randint(len(images), (64,), generator=order)
        optimizer.zero_grad()
        F.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()


def reaction_albert() -> tuple[nn.Module, dict[str, Tensor]] | None:
    """The trained ALBERT (256 wide, 8 heads of 32, one shared layer) and a reaction; None without `rxnmapper`."""
    spec = find_spec("rxnmapper")
    if spec is None:
        return None
    import transformers

    (folder,) = (Path(spec.submodule_search_locations[0]) / "models" / "transformers").glob("albert*")
    settings = json.loads((folder / "config.json").read_text())
    keys = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    keys += ("intermediate_size", "max_position_embeddings", "type_vocab_size", "hidden_act", "layer_norm_eps")
    model = transformers.AlbertModel(transformers.AlbertConfig(**{k: settings[k] for k in keys}))
    weights = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    own = {k.removeprefix("albert."): v for k, v in weights.items() if k.startswith("albert.")}
    known = model.state_dict()
    missing = [k for k in known if k not in own and "position_ids" not in k]
    if missing:
        raise ValueError(f"{folder.name} lacks {missing}: this is not the model that the table was made for")
    model.load_state_dict({k: own[k] for k in known if k in own}, strict=False)
    vocabulary = {token: i for i, token in enumerate((folder / "vocab.txt").read_text().splitlines())}
    tokens = ["[CLS]", *_SMILES.findall(REACTION), "[SEP]"]
    return model, {"input_ids": torch.tensor([[vocabulary[t] for t in tokens]])}
