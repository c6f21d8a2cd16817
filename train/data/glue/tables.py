"""What is particular to each of the nine tasks: folder, columns, labels, evaluation sets, metric.

Labels are numbered as on the hub. WNLI is loadable, but outside the average, as in the recipe and the paper.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Table:
    """One task.

    The columns are those of the GLUE download's header; the hub calls them otherwise (`hub`) and calls the label
    `label` throughout.
    """

    folder: str  # of the GLUE download, also the name that the server gives to its predictions
    columns: tuple[str, ...]  # one sentence or two
    label: str
    metric: str
    labels: tuple[str, ...] = ()  # in the order of the classes; none: a number (a regression)
    hub: tuple[str, ...] = ()  # the sentences' names in the hub's parquet, where they differ
    header: tuple[str, ...] | None = None  # of train and dev, where the files have none
    dev: dict[str, str] = field(default_factory=lambda: {"": "dev"})  # suffix of the metric → file
    test: dict[str, str] = field(default_factory=dict)  # name of the server's file → file; none: folder → test
    tolerant: bool = False  # rows that lack columns are in the official file, and are passed over

    @property
    def classes(self) -> int:
        """Outputs of the model."""
        return len(self.labels) or 1

    @property
    def tests(self) -> dict[str, str]:
        """The server's name for each test set → its file."""
        return self.test or {self.folder: "test"}

    def shards(self, split: str) -> str:
        """The hub's name of a split."""
        return split.replace("dev", "validation")


BINARY = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
TABLES = {
    "cola": Table("CoLA", ("sentence",), "label", "mcc", BINARY, header=("source", "label", "star", "sentence")),
    "sst2": Table("SST-2", ("sentence",), "label", "accuracy", BINARY),
    "mrpc": Table("MRPC", ("#1 String", "#2 String"), "Quality", "f1", BINARY, hub=("sentence1", "sentence2")),
    "stsb": Table("STS-B", ("sentence1", "sentence2"), "score", "pearson"),
    "qqp": Table("QQP", ("question1", "question2"), "is_duplicate", "f1", BINARY, tolerant=True),
    "mnli": Table(
        "MNLI",
        ("sentence1", "sentence2"),
        "gold_label",
        "accuracy",
        ("entailment", "neutral", "contradiction"),
        hub=("premise", "hypothesis"),
        dev={"": "dev_matched", "_mm": "dev_mismatched"},
        test={"MNLI-m": "test_matched", "MNLI-mm": "test_mismatched"},
    ),
    "qnli": Table("QNLI", ("question", "sentence"), "label", "accuracy", ENTAILMENT),
    "rte": Table("RTE", ("sentence1", "sentence2"), "label", "accuracy", ENTAILMENT),
    "wnli": Table("WNLI", ("sentence1", "sentence2"), "label", "accuracy", BINARY),
}
AVERAGED = tuple(name for name in TABLES if name != "wnli")  # nine numbers, since MNLI gives two
