"""The statistics of the tables, against SciPy."""

import math

import pytest
from scipy import stats

from scripts.seeds import mean_std, paired, shown

BASE = {0: 46.7, 1: 45.4, 2: 44.4, 3: 45.0}
OTHER = {0: 48.8, 1: 48.8, 2: 48.3, 7: 60.0}


def test_paired_difference_is_scipys_over_shared_seeds():
    found = paired(BASE, OTHER)
    reference = stats.ttest_rel([OTHER[s] for s in (0, 1, 2)], [BASE[s] for s in (0, 1, 2)])
    low, high = reference.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.seeds == 3
    assert found.decided == (reference.pvalue < 0.05)


def test_one_seed_decides_nothing():
    found = paired({0: 1.0}, {0: 5.0})
    assert found.mean == 4
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert not found.decided
    assert shown([5.0]) == "5.00"
    assert math.isnan(mean_std([5.0])[1])


def test_no_shared_seed_is_an_error():
    with pytest.raises(ValueError, match="share no seed"):
        paired({0: 1.0}, {1: 1.0})


def test_mean_and_deviation():
    assert mean_std([1.0, 2.0, 4.0]) == pytest.approx((stats.tmean([1, 2, 4]), stats.tstd([1, 2, 4])))
