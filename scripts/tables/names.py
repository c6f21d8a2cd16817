"""What an experiment is called: the name of its row in a table, and its make target."""

from scripts.tables.imagenet import ROWS
from scripts.tables.settings import Source


def target(experiment: str) -> str:
    """`imagenet-vit` of `reduced/imagenet_vit`."""
    return experiment.split("/")[1].replace("_", "-")


def row_name(source: Source, experiment: str) -> str:
    """The row's name in its own table, or the experiment's."""
    scale, name = experiment.split("/")
    table, _, row = name.partition("_")
    if scale == "reduced" and table == "imagenet" and row in ROWS:
        return ROWS[row]
    try:
        return source.paper(table)["rows"][target(experiment)]["name"]
    except KeyError:
        return target(experiment)
