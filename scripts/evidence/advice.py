"""What the study recommends to practitioners: a rule from the primary comparison to advice, laid down before it.

Each piece of advice repeats the difference that it rests on, with its interval and seeds.
"""

from scripts.evidence.answers import above, finished, primary, told
from scripts.evidence.findings import LEVEL, Study
from scripts.tables.model import Cell, cell

UNCERTAIN = {
    "reduced": "All of this is one small ViT on 10,000 images of 32 pixels for five epochs, untuned: a small effect "
    "can go unseen with so few seeds, and nothing here says what happens at the scale of ImageNet, where none of our "
    "runs has been made.",
    "gpu": "All of this is one ViT on CIFAR-10, untuned: nothing here says what happens at the scale of ImageNet.",
}
LOOK = (
    "Before a long run with any λ, look at the attention of the first batch: where most rows are one-hot (entropy near "
    "0), λ is too large for these weights and this scale of q·k, whatever κ has become."
)


def recommendation(study: Study) -> list[Cell]:
    """The advice; nothing before every primary run has its result."""
    if not study.judged:
        return []
    return [*of_ten(study), *of_svd(study), cell(LOOK), cell(UNCERTAIN[study.scale])]


def of_ten(study: Study) -> list[Cell]:
    """Whether to condition as the paper runs it."""
    found = primary(study, "identity λ = 10", "baseline")
    if found is None:
        if study.numbers("baseline") and not study.numbers("identity λ = 10"):
            return [cell("Do not use W + 10 I as it stands: none of its runs ended with a result (see above).")]
        return [cell("Nothing is recommended about W + 10 I: too few runs have a result to compare (see above).")]
    if above(*found):
        what = "W + 10 I, as the paper runs it, is worth its one line"
    elif found[1] < LEVEL:
        what = "do not use W + 10 I as it stands on a model like this"
    else:
        what = "there is no reason for or against W + 10 I here"
    return [finished([cell(what), told(found[0], "which is decided" if found[1] < LEVEL else "undecided")])]


def of_svd(study: Study) -> list[Cell]:
    """Whether to condition by the theorem, or to choose larger initial weights."""
    gain, plain = primary(study, "svd", "baseline"), primary(study, "control: rescale", "baseline")
    beside = primary(study, "svd", "control: rescale")
    if gain is None or plain is None or beside is None:
        return [cell("Nothing is recommended about the theorem's correction: not every setting has a result.")]
    parts = [told(gain[0], "decided" if gain[1] < LEVEL else "undecided")]
    if not above(*gain):
        advice = "do not expect a gain of the theorem's correction on a model like this" if gain[1] >= LEVEL else (
            "do not use the theorem's correction on a model like this")  # fmt: skip
    elif above(*beside):
        advice = "use the theorem's correction (svd, λ = 1): it does more than larger initial weights"
        parts.append(told(beside[0], "decided"))
    else:
        advice = "try larger initial q, k and v weights first, which need no correction; svd is not shown to do more"
        parts += [
            told(plain[0], "decided" if plain[1] < LEVEL else "undecided"),
            told(beside[0], "svd is not above it"),
        ]
    return [finished([cell(advice), *parts])]
