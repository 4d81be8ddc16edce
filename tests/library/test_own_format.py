"""Four bits in the format of each chip, and structured sparsity where a chip has it."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog.load import precision
from trnmodel.search.grid import computes, in_own_format

DENSE = {"model": "llama-3.3-70b", "mapping": tm.Mapping(tp=8), "efficiencies": "ideal"}


@pytest.mark.parametrize(
    ("chip", "asked", "own"),
    [
        *[(chip, asked, "nvfp4") for chip in ("b200", "gb200", "b300", "gb300") for asked in ("mxfp4", "nvfp4")],
        *[(chip, asked, "mxfp4") for chip in ("trainium3", "mi355x") for asked in ("mxfp4", "nvfp4")],
        ("h100", "mxfp4", "mxfp4"),  # has none, and is refused
        ("trainium3", "bf16", "bf16"),
        ("gb200", "w4a8", "mxfp8"),  # four bits are stored alone
    ],
)
def test_each_chip_is_asked_in_the_four_bits_that_it_multiplies(chip, asked, own):
    found = in_own_format(asked, tm.chip(chip))
    assert found.compute == own
    if own in ("mxfp4", "nvfp4"):
        assert (found.name, found.weights, found.experts) == (own, own, own)


def test_bytes_of_the_two_formats():
    """32 elements share 8 bits of scale in MXFP4, 16 in NVFP4: 4.25 and 4.5 bits."""
    assert [precision(name).storage_bytes("weights") * 8 for name in ("mxfp4", "nvfp4")] == [4.25, 4.5]


def test_a_plan_in_four_bits_asks_each_rack_in_its_own():
    ask = {"model": "llama-3.3-70b", "request": tm.Request(2048, 256, 20), "chips": 144}
    for asked in ("mxfp4", "nvfp4"):
        found = {
            name: tm.plan(**ask, systems=[name], precision=asked).best
            for name in ("gb200-nvl72", "trn3-nl72x2-pcie160")
        }
        assert [one.precision for one in found.values()] == ["nvfp4", "mxfp4"]
    assert not computes("hgx-h100", "mxfp4")
    assert computes("gb200-nvl72", "mxfp4")
    with pytest.raises(ValueError, match="precision"):
        tm.plan(**ask, systems=["hgx-h100"], precision="mxfp4")


def test_a_sparse_step_multiplies_at_the_printed_sparse_peak():
    """Trainium2: 2,563 TFLOP/s of sparse BF16 and 667 of dense; attention, memory and exchanges stay."""
    ask = DENSE | {"system": "trn2.48xlarge", "input_tokens": 4096}
    bf16 = precision("bf16")
    dense, sparse = (tm.prefill(**ask, precision=replace(bf16, sparse=on)) for on in (False, True))
    chip = tm.chip("trainium2")
    assert chip.peak("bf16", sparse=True) == pytest.approx(2563e12)
    rates = [step.question.setting.rates for step in (dense, sparse)]
    assert rates[1].linear_flop_per_s / rates[0].linear_flop_per_s == pytest.approx(2563e12 / chip.peak("bf16"))
    assert rates[1].pair_flop_per_s == rates[0].pair_flop_per_s
    assert (sparse.memory_s, sparse.network_s) == (dense.memory_s, dense.network_s)
    assert sparse.compute_s < dense.compute_s
    assert tm.prefill(**ask).time_s == tm.prefill(**ask, precision=bf16).time_s == dense.time_s  # off by default


@pytest.mark.parametrize(
    ("system", "name"),
    [("trn1.32xlarge", "bf16"), ("hgx-h100", "bf16"), ("trn3-nl72x2-pcie160", "mxfp8"), ("gb200-nvl72", "nvfp4")],
)
def test_a_chip_without_a_sparse_peak_refuses(system, name):
    one = replace(precision(name), sparse=True)
    assert not computes(system, one)
    with pytest.raises(ValueError, match="sparse peak"):
        tm.decode_step("llama-3.1-8b", system, batch=1, context=128, precision=one, efficiencies="ideal")


def test_odd_words_for_sparse_are_refused():
    with pytest.raises(ValueError, match="sparse"):
        tm.Precision(sparse="yes")
    sparse = replace(precision("bf16"), sparse=True)
    with pytest.raises(ValueError, match="training keeps all weights"):
        tm.train_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), global_batch=64, seq=4096, precision=sparse)


def test_sparsity_never_makes_a_step_slower():
    rng = np.random.default_rng(2)
    for system in ("trn2.48xlarge", "trn3-nl72x2-pcie160"):
        for _ in range(8):
            ask = {"system": system, "mapping": tm.Mapping(tp=2 ** rng.integers(0, 6)), "model": "llama-3.1-8b"}
            ask |= {"batch": 2.0 ** rng.integers(0, 9), "context": 2.0 ** rng.integers(7, 13)}
            dense, sparse = (
                tm.decode_step(**ask, precision=replace(precision("bf16"), sparse=on)).time_s for on in (False, True)
            )
            assert np.isnan(dense) or sparse <= dense
