"""A plain PyTorch loop: torch's own TransformerEncoder reads scikit-learn's handwritten digits row by row.

python examples/plain_loop.py [--epochs 10] [--lam 1] [--method svd]
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import specattn


class DigitReader(nn.Module):
    """Eight tokens, one for each row of an 8 × 8 image."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.position = nn.Parameter(0.02 * torch.randn(8, width))
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[batch, 8, 8] -> [batch, 10]."""
        return self.head(self.encoder(self.embed(rows) + self.position).mean(dim=1))


def main() -> None:
    """Trains, exports, and checks that the export computes the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lam", type=float, default=1.0)
    parser.add_argument("--method", default="svd")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 8 - 1
    labels = torch.tensor(digits.target)
    train, test = torch.randperm(len(images)).split([1500, len(images) - 1500])

    model = specattn.condition(DigitReader(), lam=arguments.lam, method=arguments.method)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    for epoch in range(arguments.epochs):
        model.train()
        for batch in train[torch.randperm(len(train))].split(100):
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            accuracy = (model(images[test]).argmax(dim=1) == labels[test]).float().mean()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, test accuracy {accuracy:.3f}")

    before = model(images[test])
    specattn.fold(model, "digit_reader.safetensors")
    print(f"folded: outputs differ by at most {(model(images[test]) - before).abs().max():.1e}")


if __name__ == "__main__":
    main()
