"""The runs of the study: one line a setting. docs/evidence.md says why each is there; nothing outside is evidence.

A setting is a model with words for Hydra, run once for each of its seeds. `against` names the setting that it is
compared with, seed by seed. What differs between the scales, the experiments and some numbers, stands in `SCALES`.
"""

from dataclasses import dataclass, field

FIVE, THREE = (0, 1, 2, 3, 4), (0, 1, 2)
VIT, MEAN, SWIN, XCIT = "vit", "mean", "swin", "xcit"
SCALES = {
    "reduced": {
        VIT: "reduced/evidence_vit", MEAN: "reduced/evidence_vit_mean",
        SWIN: "reduced/evidence_swin", XCIT: "reduced/evidence_xcit",
        "rate": 1e-3, "epochs": 5,
    },
    "gpu": {
        VIT: "gpu/evidence_vit", MEAN: "gpu/evidence_vit_mean", SWIN: "gpu/evidence_swin", XCIT: "gpu/evidence_xcit",
        "rate": 1e-3, "epochs": 100,
    },
}  # fmt: skip
SVD = ("conditioning=svd",)
TEN = ("conditioning=identity", "conditioning.lam=10")
OFF = ("conditioning=off",)
NO_SCALE = "model.attention_scale=1"
NO_NORM = "model.norm=false"


@dataclass(frozen=True)
class Setting:
    """One line of the plan."""

    name: str
    part: str  # primary | factor | pooling | model | long
    model: str
    words: tuple[str, ...]
    against: str | None = "baseline"
    seeds: tuple[int, ...] = field(default=THREE)
    rate: float = 1  # times the model's learning rate
    length: int = 1  # times its epochs
    warmup: float | None = None  # share of them

    def command(self, seed: int, scale: str) -> list[str]:
        """The words of one run."""
        held = SCALES[scale]
        words = [f"experiment={held[self.model]}", *self.words, f"seed={seed}"]
        if self.rate != 1:
            words.append(f"optimizer.lr={self.rate * held['rate']:g}")
        if self.length != 1:
            words.append(f"schedule.epochs={self.length * held['epochs']}")
        if self.warmup is not None:
            words.append(f"schedule.warmup_epochs={self.warmup * held['epochs']:g}")
        return words

    def folder(self, scale: str) -> tuple[str, str]:
        """The experiment and the tag of its records, as train/folder.py names them (a test compares)."""
        given = dict(word.split("=", 1) for word in self.command(0, scale))
        experiment, method = given.pop("experiment"), given.pop("conditioning")
        given.pop("seed")
        lam = given.pop("conditioning.lam", "10" if method == "identity" else "1")
        parts = ["baseline" if method == "off" else f"{method}-lam{lam}"]
        parts += [f"{key.split('.')[1]}={value}" for key, value in given.items() if key.startswith("conditioning.")]
        others = {key: value for key, value in given.items() if not key.startswith("conditioning.")}
        return experiment, ",".join(parts + [f"{key}={spelt(others[key])}" for key in sorted(others)])


def spelt(value: str) -> str:
    """A word's value as the config has it."""
    return {"true": "True", "false": "False"}.get(value) or str(float(value))


PLAN = (
    Setting("baseline", "primary", VIT, OFF, None, FIVE),
    Setting("svd", "primary", VIT, SVD, seeds=FIVE),
    Setting("identity λ = 10", "primary", VIT, TEN, seeds=FIVE),
    Setting("control: orthogonal", "primary", VIT, ("conditioning=orthogonal",), seeds=FIVE),
    Setting("control: rescale", "primary", VIT, ("conditioning=rescale",), seeds=FIVE),
    *(
        Setting(f"identity λ = {lam}", "factor", VIT, ("conditioning=identity", f"conditioning.lam={lam}"))
        for lam in (0.1, 0.3, 1, 3)
    ),
    Setting("relative λ = 1", "factor", VIT, ("conditioning=relative",)),
    Setting("svd, each head", "factor", VIT, (*SVD, "conditioning.layout=head")),
    Setting("svd on q and k", "factor", VIT, (*SVD, "conditioning.targets=qk")),
    Setting("svd on v", "factor", VIT, (*SVD, "conditioning.targets=v")),
    Setting("svd, start only", "factor", VIT, (*SVD, "conditioning.when=init")),
    Setting("baseline without LayerNorm", "factor", VIT, (*OFF, NO_NORM)),
    Setting("svd without LayerNorm", "factor", VIT, (*SVD, NO_NORM), "baseline without LayerNorm"),
    Setting("baseline without 1/√d", "factor", VIT, (*OFF, NO_SCALE)),
    Setting("svd without 1/√d", "factor", VIT, (*SVD, NO_SCALE), "baseline without 1/√d"),
    Setting("baseline, half the rate", "factor", VIT, OFF, rate=0.5),
    Setting("baseline, twice the rate", "factor", VIT, OFF, rate=2),
    Setting("mean pooling: baseline", "pooling", MEAN, OFF, None),
    Setting("mean pooling: svd", "pooling", MEAN, SVD, "mean pooling: baseline"),
    Setting("mean pooling: identity λ = 10", "pooling", MEAN, TEN, "mean pooling: baseline"),
    *(
        setting
        for name, model in (("Swin", SWIN), ("XCiT", XCIT))
        for setting in (
            Setting(f"{name}: baseline", "model", model, OFF, None),
            Setting(f"{name}: svd", "model", model, SVD, f"{name}: baseline"),
            Setting(f"{name}: identity λ = 10", "model", model, TEN, f"{name}: baseline"),
        )
    ),
    Setting("identity λ = 10, four times as long", "long", VIT, TEN, length=4),
    Setting("identity λ = 10, half of it warm-up", "long", VIT, TEN, warmup=0.5),
    Setting("identity λ = 10, a tenth of the rate", "long", VIT, TEN, rate=0.1),
)


def setting(name: str) -> Setting:
    """The setting of that name."""
    return next(found for found in PLAN if found.name == name)
