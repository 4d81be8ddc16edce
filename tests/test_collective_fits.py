"""Published runs of collectives: every row has a use or a reason, and what is shipped is what they give."""

import numpy as np
import pytest

from trnmodel.catalog import load
from trnmodel.evidence import collective_fits
from trnmodel.evidence.score import excluded, shipped
from trnmodel.units import GB, US


def test_every_row_is_used_or_set_aside_with_a_reason():
    rows = collective_fits.contract()
    assert len(rows) == 185
    assert ((rows.use == "") == (rows.reason != "")).all()
    assert len(excluded(shipped("collective"))) == (rows.use == "").sum()


def test_two_constants_by_hand():
    # nccom-test -r 32 allg: 6.16 us at 1 KiB, 23.16 us at 512 KiB; 31/32 of the buffer moves. Through these two points:
    # rate = 31/32 x (524288 - 1024) B / 17.00 us = 29.8 GB/s, floor 6.13 us
    rate = 31 / 32 * (524288 - 1024) / 17.00e-6
    run = collective_fits.fits().set_index("series").loc["allg-32"]
    assert run.busbw_bytes_per_s == pytest.approx(rate, rel=0.01)
    assert run.floor_s == pytest.approx(6.16 * US - 31 / 32 * 1024 / rate, rel=0.02)


def test_printed_rates_are_bytes_over_time():
    table = collective_fits.recomputed()
    exact = table[table.printed >= 1]
    assert exact.error.abs().max() < 0.01  # two decimals of at least 1.00
    # 1 GiB over 2 ranks in 18,930 us: 56.7 GB/s, printed as 52.83: GiB/s
    large = table[(table.series == "allr-2") & (table.message_bytes == 2**30) & (table.metric == "busbw")].iloc[0]
    assert large.unit == "GiB/s"
    assert large.as_gb == pytest.approx(2**30 / 18930e-6 / GB)
    assert large.as_gib == pytest.approx(52.83, rel=1e-3)


def test_leaving_out_a_size_between_the_ends():
    points = collective_fits.points()
    ends = points.groupby("series").message_bytes.transform("max")
    inside = points[(points.message_bytes < ends) & ~points.series.isin(["allr-16"])]
    assert inside.left_out_error.abs().median() < 0.02
    assert inside.left_out_error.abs().max() < 0.21


def test_no_run_outruns_the_machine_that_it_fits():
    shares = collective_fits.shares()
    assert (shares[shares.system == "trn2.48xlarge"].share < 1).all()
    two = shares.set_index(["series", "system"]).loc[("allr-64-two-nodes", "trn1.32xlarge")]
    assert 0.5 < two.share < 1


def test_by_how_much_the_public_call_misses_by_hand():
    """1 GiB over two cores of a Trainium1 chip in 18,930 us; at 117.1 / 2 GB/s a core it is 18.34 ms: 1.03 times.

    16 engines of 17 GB/s would move it in 3.95 ms: 4.8 times.
    """
    table = collective_fits.misses()
    table = table[table.system == "trn1.32xlarge"]
    large = table[(table.series == "allr-2") & (table.message_bytes == 2**30)].ratio.item()
    assert large == pytest.approx(18930e-6 * 58.55e9 / 2**30, rel=1e-3)


def test_the_misses_that_the_chapter_prints():
    table = collective_fits.misses()
    times = table.groupby("system").ratio.quantile([0.25, 0.5, 0.75]).round(1).unstack()
    assert times.loc["trn1.32xlarge"].tolist() == [1.5, 5.7, 17.8]
    assert times.loc["trn2.48xlarge"].tolist() == [3.0, 11.2, 33.8]
    assert (table.ratio > 1).all()  # no run is faster than the fabric allows
    assert table.groupby("system").size().tolist() == [36, 36]
    last = table[(table.series == "allr-64-two-nodes") & (table.system == "trn1.32xlarge")].ratio.iloc[-1]
    assert round(last, 1) == 1.3


def test_shipped_constants_are_the_fitted_ones():
    rows = load.facts_rows()
    fitted = collective_fits.fitted_facts()
    assert {name: rows[name].value_printed for name in fitted} == fitted


def test_twelve_collectives_cost_as_much_as_one():
    # 16 ranks of Trn2: 1.982 ms with one, 2.030 ms with twelve: 4.4 us each
    row = collective_fits.barriers().set_index(["runtime", "ranks"]).loc[("trn2", 16)]
    assert row.each_s == pytest.approx((2.030 - 1.982) / 11 * 1e-3)
    assert np.all(collective_fits.barriers().error.abs() < 0.03)
