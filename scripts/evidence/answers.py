"""The study's questions answered in sentences, each with its interval and its seeds, by the protocol's rules alone."""

from scripts.evidence import correlation
from scripts.evidence.findings import EQUAL, LEVEL, PRIMARY, Compared, Study, interval
from scripts.evidence.plan import PLAN, setting
from scripts.tables.model import Cell, Piece, cell, sentence

PLAINLY = {
    "identity λ = 10": "the paper's correction (λ = 10)",
    "svd": "the correction of Theorem 3.5 (svd)",
    "baseline": "the baseline",
    "control: orthogonal": "a random orthogonal matrix of the same norm",
    "control: rescale": "initial weights scaled to the same norm, κ unchanged",
}
BETTER_STEP = ("baseline, half the rate", "baseline, twice the rate")
OF_SVD = ("svd, each head", "svd on q and k", "svd on v", "svd, start only")


def verdicts(study: Study) -> list[Cell]:
    """What the protocol concludes from the primary comparison, three sentences."""
    return [*claims(study), *controls(study)]


def claims(study: Study) -> list[Cell]:
    """Questions 1 and 2: the paper's claim and the theorem's correction, primary."""
    said = []
    for name, what in (("identity λ = 10", "the paper's claim"), ("svd", "the theorem's correction")):
        if (found := primary(study, name, "baseline")) is not None:
            one, adjusted = found
            judged = (
                ("supports" if one.told.mean > 0 else "speaks against") if adjusted < LEVEL else "decides nothing on"
            )
            said.append(finished([told(one, f"{judged} {what}")]))
    return said


def controls(study: Study) -> list[Cell]:
    """Question 3: svd beside both controls, primary, one sentence."""
    pairs = [primary(study, *pair) for pair in PRIMARY if pair[0] == "svd" and pair[1] != "baseline"]
    every = enumerate(filter(None, pairs))
    parts = [told(one, beside(one, adjusted), named=place == 0) for place, (one, adjusted) in every]
    return [finished(parts)] if parts else []


def primary(study: Study, name: str, against: str) -> tuple[Compared, float] | None:
    """One of the primary comparisons with its p-value after Holm; None where it has no records."""
    return next((pair for pair in study.primary() if (pair[0].name, pair[0].against) == (name, against)), None)


def beside(one: Compared, adjusted: float) -> str:
    """What a control says of conditioning."""
    if adjusted < LEVEL:
        return "conditioning does more than this control" if one.told.mean > 0 else "this control does more"
    if max(abs(one.told.low), abs(one.told.high)) <= EQUAL:
        return f"equal for practical purposes (within {EQUAL:g} point)"
    return "not told apart, so this control explains a gain as well as conditioning does"


def elsewhere(study: Study) -> list[Cell]:
    """Questions 1 and 2 on the other models, secondary."""
    return secondary(study, *(asked.name for asked in PLAN if asked.part in ("pooling", "model") and asked.against))


def reasons(study: Study) -> list[Cell]:
    """Question 3: what the controls gain themselves (primary, after Holm), and another step (secondary)."""
    gains = [
        finished([told(one, outcome(one.told.mean, adjusted < LEVEL) + " after Holm")])
        for one, adjusted in study.primary()
        if one.name.startswith("control") and one.against == "baseline"
    ]
    return [*gains, *secondary(study, *BETTER_STEP)]


def readings(study: Study) -> list[Cell]:
    """Question 4: the factors that are decided, the undecided by name, and the variants of svd beside svd itself."""
    factors = [asked.name for asked in PLAN if asked.part == "factor" and asked.name not in BETTER_STEP]
    compared = {name: one for name in factors if (one := compare(study, name)) is not None}
    sure = [name for name, one in compared.items() if one.told.decided]
    open_ones = [name for name in compared if name not in sure]
    said = secondary(study, *sure)
    if open_ones:
        said.append(cell(f"Not told from their reference with three seeds: {'; '.join(open_ones)} (intervals below)."))
    said += [finished([cell(f"{name}: {study.absent(name)}")]) for name in factors if study.failed.get(name)]
    return said + secondary(study, *OF_SVD, against="svd")


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
    return said


def recovery(study: Study) -> list[Cell]:
    """Question 6: beside the baseline of the usual length, and beside λ = 10 as it stands."""
    names = [asked.name for asked in PLAN if asked.part == "long"]
    return [*secondary(study, *names), *secondary(study, *names, against="identity λ = 10")]


def compare(study: Study, name: str, against: str | None = None) -> Compared | None:
    """A setting beside another, by default what the plan compares it with."""
    return study.compared(name, against or setting(name).against)


def secondary(study: Study, *names: str, against: str | None = None) -> list[Cell]:
    """A sentence each, not corrected for how many there are."""
    every = [one for name in names if (one := compare(study, name, against)) is not None]
    return [finished([told(one, outcome(one.told.mean, one.told.decided))]) for one in every]


def outcome(mean: float, decided: bool) -> str:
    """In words."""
    return ("better" if mean > 0 else "worse") if decided else "not told from zero"


def told(one: Compared, what: str, named: bool = True) -> Cell:
    """`the baseline against ..., 5 seeds: +2.31 points (95 % interval +1.0 to +3.6): supports ...`."""
    ours, theirs = (PLAINLY.get(name, name) for name in (one.name, one.against))
    number = Piece(f"{one.told.mean:+.2f} points", one.home)
    start = f"{ours} against {theirs}" if named else f"against {theirs}"
    seeds = f"{one.told.seeds} seed{'s' if one.told.seeds > 1 else ''}"
    return sentence(f"{start}, {seeds}: ", number, f" (95 % interval {interval(one.told)}): {what}")


def finished(parts: list[Cell]) -> Cell:
    """One sentence of parts: a capital, semicolons between, a full stop."""
    pieces = [piece for place, part in enumerate(parts) for piece in ((Piece("; "),) if place else ()) + part.pieces]
    first = pieces[0].text
    return Cell((Piece(first[:1].upper() + first[1:], pieces[0].link), *pieces[1:], Piece(".")))
