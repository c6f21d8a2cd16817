"""GLUE's metrics in percent, also where they are not defined: then they are 0, with a warning.

SciPy and scikit-learn compute them; what is decided here is what they say of predictions without any variation.
"""

import warnings

import numpy
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef


def accuracy(labels: numpy.ndarray, predictions: numpy.ndarray) -> float:
    """The share of right predictions."""
    return float((labels == predictions).mean())


def f1(labels: numpy.ndarray, predictions: numpy.ndarray) -> float:
    """F1 of class 1; 0 where it is neither predicted nor there."""
    if not (predictions == 1).any():
        _warn("F1", "class 1 is never predicted")
    return float(f1_score(labels, predictions, average="binary", zero_division=0.0))


def mcc(labels: numpy.ndarray, predictions: numpy.ndarray) -> float:
    """Matthews' correlation of two classes; 0 where the predictions (or the labels) are all of one class."""
    if len(numpy.unique(predictions)) < 2:
        _warn("Matthews' correlation", "all predictions are of one class")
    return float(matthews_corrcoef(labels, predictions))


def pearson(labels: numpy.ndarray, predictions: numpy.ndarray) -> float:
    """Pearson's correlation; 0 where the predictions (or the labels) do not vary."""
    return _correlation(stats.pearsonr, "Pearson's correlation", labels, predictions)


def spearman(labels: numpy.ndarray, predictions: numpy.ndarray) -> float:
    """Spearman's rank correlation; 0 where the predictions (or the labels) do not vary."""
    return _correlation(stats.spearmanr, "Spearman's correlation", labels, predictions)


def _correlation(compute, name: str, labels: numpy.ndarray, predictions: numpy.ndarray) -> float:
    if len(labels) < 2 or numpy.ptp(labels) == 0 or numpy.ptp(predictions) == 0:
        _warn(name, "the scores do not vary")
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant scores: the value is what it is
        value = float(compute(labels, predictions)[0])
    return value if numpy.isfinite(value) else 0.0


def _warn(name: str, reason: str) -> None:
    warnings.warn(f"{name} is not defined ({reason}): taken as 0", stacklevel=3)


#: The metric of a task → all that are reported of it.
REPORTED = {
    "mcc": {"mcc": mcc, "accuracy": accuracy},
    "accuracy": {"accuracy": accuracy},
    "f1": {"f1": f1, "accuracy": accuracy},
    "pearson": {"pearson": pearson, "spearman": spearman},
}


def report(metric: str, labels: numpy.ndarray, predictions: numpy.ndarray) -> dict[str, float]:
    """name → percent, the task's own metric first."""
    return {name: 100 * compute(labels, predictions) for name, compute in REPORTED[metric].items()}


def majority(metric: str, train: numpy.ndarray, labels: numpy.ndarray) -> float:
    """In percent, what always answering the training set's most frequent class gets; for a regression its mean."""
    if metric == "pearson":
        return 0.0
    answer = numpy.full(len(labels), numpy.bincount(train.astype(int)).argmax())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return next(iter(report(metric, labels, answer).values()))
