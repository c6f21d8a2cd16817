"""The statistics of the tables, against SciPy."""

import math

import numpy
import pytest
from scipy import stats

from scripts.seeds import holm, mean_std, paired, shown

BASE = {0: 46.7, 1: 45.4, 2: 44.4, 3: 45.0}
OTHER = {0: 48.8, 1: 48.8, 2: 48.3, 7: 60.0}


def test_paired_difference_is_scipys_over_shared_seeds():
    found = paired(BASE, OTHER)
    reference = stats.ttest_rel([OTHER[s] for s in (0, 1, 2)], [BASE[s] for s in (0, 1, 2)])
    low, high = reference.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.seeds == 3
    assert found.p == pytest.approx(reference.pvalue)
    assert found.decided == (reference.pvalue < 0.05)


@pytest.mark.parametrize("count", [2, 3, 5, 20])
@pytest.mark.parametrize("shift", [0.0, 0.3, 3.0])
def test_interval_and_verdict_are_scipys_on_any_number_of_seeds(count, shift):
    draws = numpy.random.default_rng(count).normal(size=(2, count))
    base = dict(enumerate(draws[0].tolist()))
    other = {seed: value + shift for seed, value in enumerate((draws[0] + 0.3 * draws[1]).tolist())}
    reference = stats.ttest_rel(list(other.values()), list(base.values()))
    found = paired(base, other)
    assert found.mean == pytest.approx(numpy.mean(list(other.values())) - numpy.mean(list(base.values())))
    assert (found.low, found.high) == pytest.approx(tuple(reference.confidence_interval(0.95)))
    assert found.decided == (reference.pvalue < 0.05)


def test_seeds_pair_by_name_not_by_place():
    assert paired({0: 1.0, 1: 5.0}, {1: 6.0, 0: 2.0}) == paired({0: 1.0, 1: 5.0}, {0: 2.0, 1: 6.0})
    assert paired({0: 1.0, 1: 5.0}, {1: 6.0, 0: 2.0}).mean == 1


def test_p_values_looked_at_together():
    """The example of Holm (1979) as textbooks give it, by hand; order kept, never below the one before, at most 1."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    assert holm([]) == []


def test_one_seed_decides_nothing():
    found = paired({0: 1.0}, {0: 5.0})
    assert found.mean == 4
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert math.isnan(found.p)
    assert not found.decided
    assert shown([5.0]) == "5.00"
    assert math.isnan(mean_std([5.0])[1])


def test_no_shared_seed_is_an_error():
    with pytest.raises(ValueError, match="share no seed"):
        paired({0: 1.0}, {1: 1.0})


def test_mean_and_deviation():
    assert mean_std([1.0, 2.0, 4.0]) == pytest.approx((stats.tmean([1, 2, 4]), stats.tstd([1, 2, 4])))
    assert shown([1.0, 2.0, 4.0]) == "2.33 ± 1.53"
