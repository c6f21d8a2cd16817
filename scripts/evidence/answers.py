"""The study's questions answered in sentences, each with its interval and its seeds, by the protocol's rules alone."""

from scripts.evidence import correlation
from scripts.evidence.findings import EQUAL, LEVEL, PRIMARY, Compared, Study, interval
from scripts.evidence.plan import PLAN, setting
from scripts.tables.model import Cell, Piece, cell, sentence

PLAINLY = {
    "identity λ = 10": "the paper's correction (λ = 10)",
    "svd": "the theorem's correction (svd)",
    "baseline": "the baseline",
    "control: orthogonal": "a random orthogonal matrix of the same norm",
    "control: rescale": "scaling the initial weights to the same norm (κ unchanged)",
    "baseline, half the rate": "half the learning rate",
    "baseline, twice the rate": "twice the learning rate",
}
CLAIMS = {"identity λ = 10": "the paper's claim", "svd": "the theorem's correction"}
CONTROLS = {  # what it says where svd is above a control, and where it is below
    "control: orthogonal": ("this correction does more than any of its norm", "any of its norm does more"),
    "control: rescale": ("κ does more than the size of the weights alone", "the size of the weights does more"),
}
BETTER_STEP = ("baseline, half the rate", "baseline, twice the rate")
OF_SVD = ("svd, each head", "svd on q and k", "svd on v", "svd, start only")


def verdicts(study: Study) -> list[Cell]:
    """What the protocol concludes from the primary comparison, three sentences."""
    return [*claims(study), *controls(study)]


def claims(study: Study) -> list[Cell]:
    """Questions 1 and 2: the paper's claim and the theorem's correction, primary."""
    said = []
    for name, claim in CLAIMS.items():
        if (found := primary(study, name, "baseline")) is None:
            said += (study.numbers("baseline") and ended(study, name)) or [numberless(study, name, "baseline")]
            continue
        one, adjusted = found
        judged = f"{'supports' if one.told.mean > 0 else 'speaks against'} {claim} at this scale"
        said.append(finished([told(one, (judged if adjusted < LEVEL else "undecided") + corrected(adjusted))]))
    return said


def controls(study: Study) -> list[Cell]:
    """Question 3: svd beside both controls, primary, one sentence that concludes only where both are there."""
    pairs = [found for name in CONTROLS if (found := primary(study, "svd", name)) is not None]
    parts = [
        told(one, beside(one, adjusted) + corrected(adjusted), named=place == 0)
        for place, (one, adjusted) in enumerate(pairs)
    ]
    gain = primary(study, "svd", "baseline")
    if gain is not None and len(pairs) == len(CONTROLS):
        if not above(*gain):
            what = "svd has no decided gain over the baseline that would need a reason"
        elif all(above(*pair) for pair in pairs):
            what = "conditioning is supported as the reason of svd's gain"
        else:
            what = "conditioning is not shown to be the reason of svd's gain"
        parts.append(cell(what))
    if len(pairs) < len(CONTROLS):
        lacking = [name for name in CONTROLS if primary(study, "svd", name) is None]
        parts += [cell(numberless(study, "svd", name).text.rstrip(".")) for name in lacking]
    return [finished(parts)]


def numberless(study: Study, name: str, against: str) -> Cell:
    """Why a primary comparison has no number: which side lacks it, and what became of it."""
    lacking = [one for one in (name, against) if len(study.numbers(one)) < 2]
    why = "; ".join(f"{plain(one)}: {study.absent(one)}" for one in lacking) or "too few seeds that both have"
    return finished([cell(f"{plain(name)} against {plain(against)} has no result ({why})")])


def above(one: Compared, adjusted: float) -> bool:
    """Whether a primary difference is above zero after Holm."""
    return adjusted < LEVEL and one.told.mean > 0


def beside(one: Compared, adjusted: float) -> str:
    """What a control says."""
    if adjusted < LEVEL:
        return CONTROLS[one.against][one.told.mean < 0]
    return undecided(one)


def undecided(one: Compared) -> str:
    """What is said of a difference that is not told from zero: that it is small, where its whole interval is."""
    equal = max(abs(one.told.low), abs(one.told.high)) <= EQUAL
    return f"equal for practical purposes, within {EQUAL:g} point" if equal else "undecided"


def primary(study: Study, name: str, against: str) -> tuple[Compared, float] | None:
    """One of the primary comparisons with its p-value after Holm; None where it has no records."""
    return next((pair for pair in study.primary() if (pair[0].name, pair[0].against) == (name, against)), None)


def elsewhere(study: Study) -> list[Cell]:
    """Questions 1 and 2 on the other models, secondary."""
    return secondary(study, *(asked.name for asked in PLAN if asked.part in ("pooling", "model") and asked.against))


def reasons(study: Study) -> list[Cell]:
    """Question 3: what the controls gain themselves (primary), and another step (secondary)."""
    said = []
    for name, against in PRIMARY:
        if name in CONTROLS and (found := primary(study, name, against)) is not None:
            one, adjusted = found
            said.append(finished([told(one, outcome(one.told.mean, adjusted < LEVEL) + corrected(adjusted))]))
        elif name in CONTROLS:
            said += ended(study, name)
    return [*said, *secondary(study, *BETTER_STEP)]


def readings(study: Study) -> list[Cell]:
    """Question 4: every factor beside its reference, and the variants of svd beside svd itself."""
    factors = [asked.name for asked in PLAN if asked.part == "factor" and asked.name not in BETTER_STEP]
    return [*secondary(study, *factors), *secondary(study, *OF_SVD, against="svd")]


def of_kappa(study: Study) -> list[Cell]:
    """Question 5: the correlations that are decided, and how many are not."""
    rows = [[one.text for one in row] for row in correlation.table(study).rows]
    sure = [row for row in rows if row[-1] == correlation.DECIDED]
    said = [
        cell(f"{measure}, {which}: Spearman's ρ {rho} (95 % interval {reach}, {count}): a lower κ goes with a "
             f"{'worse' if rho.startswith('+') else 'better'} accuracy.")
        for measure, which, count, rho, reach, _ in sure
    ]  # fmt: skip
    if len(sure) < len(rows):
        said.append(cell(f"{len(rows) - len(sure)} of {len(rows)} correlations are not told from none."))
    if sure:
        chance = f"{0.05 * len(rows):.1f} of {len(rows)}"
        said.append(cell(f"Not corrected for how many there are: about {chance} would be decided by chance alone."))
    return said


def recovery(study: Study) -> list[Cell]:
    """Question 6: beside the baseline of the usual length, and beside λ = 10 as it stands."""
    names = [asked.name for asked in PLAN if asked.part == "long"]
    said = [*secondary(study, *names), *secondary(study, *names, against="identity λ = 10")]
    note = cell("The baseline is the one of the usual length and rate: four times the training favours λ = 10 here.")
    return [note, *said] if said else []


def secondary(study: Study, *names: str, against: str | None = None) -> list[Cell]:
    """A sentence each beside `against`, by default what the plan compares it with; not corrected for how many."""
    said = []
    for name in names:
        if (one := study.compared(name, against or setting(name).against)) is not None:
            said.append(finished([told(one, outcome(one.told.mean, True) if one.told.decided else undecided(one))]))
        else:
            said += ended(study, name)
    return said


def ended(study: Study, name: str) -> list[Cell]:
    """What became of a setting without a number: `svd on v: 3 diverged.`; nothing where it was not run."""
    return [finished([cell(f"{plain(name)}: {study.absent(name)}")])] if study.failed.get(name) else []


def outcome(mean: float, decided: bool) -> str:
    """In words."""
    return ("better" if mean > 0 else "worse") if decided else "undecided"


def corrected(p: float) -> str:
    """The p-value of a primary comparison."""
    return f" (p = {p:.2g} after Holm)"


def plain(name: str) -> str:
    """A setting in words; the baseline of another model is `its baseline`."""
    return "its baseline" if name.endswith(": baseline") else PLAINLY.get(name, name)


def told(one: Compared, what: str, named: bool = True) -> Cell:
    """`svd changes top-1 by +2.31 points against the baseline (95 % interval +1.0 to +3.6, 5 seeds): ...`."""
    start = f"{plain(one.name)} changes top-1 by " if named else "by "
    seeds = f"{one.told.seeds} seed{'s' if one.told.seeds > 1 else ''}"
    end = f" against {plain(one.against)} (95 % interval {interval(one.told)}, {seeds}): {what}"
    return sentence(start, Piece(f"{one.told.mean:+.2f} points", one.home), end)


def finished(parts: list[Cell]) -> Cell:
    """One sentence of parts: a capital, semicolons between, a full stop."""
    pieces = [piece for place, part in enumerate(parts) for piece in ((Piece("; "),) if place else ()) + part.pieces]
    first = pieces[0].text
    return Cell((Piece(first[:1].upper() + first[1:], pieces[0].link), *pieces[1:], Piece(".")))
