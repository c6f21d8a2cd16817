"""Every page, and the files that it is written to."""

from scripts.tables import ablations, coco, cost, glue, imagenet, long_range
from scripts.tables.model import Page
from scripts.tables.settings import Source
from scripts.tables.writers import csv_text, latex, markdown

MAKERS = (imagenet.page, coco.page, long_range.page, glue.page, ablations.over_lam, ablations.layer_norm, cost.page)


def pages(source: Source) -> list[Page]:
    """Each table of the paper at the paper's scale, then each at the reduced one."""
    return [maker(source, scale) for scale in ("paper", "reduced") for maker in MAKERS]


def files(made: list[Page]) -> dict[str, str]:
    """name → text of each file in results/tables."""
    found = {}
    for page in made:
        found[f"{page.name}.md"] = markdown(page)
        for table in page.tables:
            found[f"{table.name}.csv"], found[f"{table.name}.tex"] = csv_text(table), latex(page, table)
    return found
