"""Every picture that there are records for, in the order of the report."""

from scripts.evidence import chapter
from scripts.figures import conditioning, over_lam, training
from scripts.figures.picture import Picture
from scripts.tables.settings import Source


def pictures(source: Source) -> list[Picture]:
    """Accuracy over λ, training curves of each table, conditioning along training, and the study's."""
    return [
        *over_lam.pictures(source),
        *training.pictures(source),
        *conditioning.pictures(source),
        *chapter.pictures(source),
    ]
