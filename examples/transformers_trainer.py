"""The transformers Trainer, with checkpoints and resuming, on a conditioned BERT.

    python examples/transformers_trainer.py [--epochs 16] [--lam 1] [--method svd] [--output bert-digits]

A small BERT reads scikit-learn's handwritten digits as 16 tokens: the brightness (0 to 16) of each 2 × 2 pixels.
Needs the package accelerate, as the Trainer always does.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import specattn


def build(lam: float, method: str) -> BertForSequenceClassification:
    """The conditioned model; the same call before training and before resuming."""
    config = BertConfig(
        vocab_size=17,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=16,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=10,
    )
    return specattn.condition(BertForSequenceClassification(config), lam=lam, method=method)


def main() -> None:
    """Trains half of the epochs, resumes in a new Trainer for the rest, and exports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--lam", type=float, default=1.0)
    parser.add_argument("--method", default="svd")
    parser.add_argument("--output", type=Path, default=Path("bert-digits"))
    arguments = parser.parse_args()
    if arguments.output.exists():
        parser.error(f"{arguments.output} exists: remove it, or name another folder with --output")

    torch.manual_seed(0)
    digits = load_digits()
    tokens = digits.images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).round().astype(int).reshape(-1, 16)
    examples = [
        {"input_ids": torch.tensor(row), "labels": int(label)} for row, label in zip(tokens, digits.target, strict=True)
    ]
    order = torch.randperm(len(examples)).tolist()
    train, test = [examples[i] for i in order[:1500]], [examples[i] for i in order[1500:]]

    def trainer(epochs: int) -> Trainer:
        settings = TrainingArguments(
            output_dir=str(arguments.output),
            num_train_epochs=epochs,
            per_device_train_batch_size=50,
            per_device_eval_batch_size=50,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            weight_decay=0.05,
            save_strategy="epoch",
            logging_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        return Trainer(
            build(arguments.lam, arguments.method),
            settings,
            train_dataset=train,
            eval_dataset=test,
            compute_metrics=lambda p: {"accuracy": float(np.mean(p.predictions.argmax(axis=1) == p.label_ids))},
        )

    trainer(arguments.epochs // 2).train()
    resumed = trainer(arguments.epochs)
    resumed.train(resume_from_checkpoint=True)
    print(f"test accuracy {resumed.evaluate()['eval_accuracy']:.3f}")

    model = specattn.fold(resumed.model)
    model.save_pretrained(arguments.output / "export")
    plain = BertForSequenceClassification.from_pretrained(arguments.output / "export")
    inputs = torch.stack([example["input_ids"] for example in test])
    difference = (plain.eval()(inputs).logits - model.eval()(inputs).logits).abs().max()
    print(f"transformers loads the export: outputs differ by at most {difference:.1e}")


if __name__ == "__main__":
    main()
