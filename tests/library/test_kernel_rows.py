"""Rows of kernels beside other kernels: FP32 products on Trainium2, and an expert layer under several mappings."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.evidence.collections import collected
from trnmodel.evidence.rows import THIRD

ALONE, HALVES, QUARTERS = {"lnc": 2}, {"lnc": 2, "busy_cores": 4}, {"lnc": 2, "busy_cores": 8}
MIXTRAL = {"hidden_size": 4096, "intermediate_size": 14336, "experts": 8}
LAYER = "MoE layer: 8 experts, top 2, hidden 4096, intermediate 14336"


@pytest.fixture(scope="module")
def nkibench():
    rows = pd.read_csv(THIRD, dtype=str, keep_default_na=False)
    return tm.validate(rows[rows.source.str.contains("kda-for-trainium")])


@pytest.fixture(scope="module")
def layers():
    rows = collected()
    return tm.validate(rows[rows.source.str.contains("trn2-moe")])


def test_every_engine_of_the_page_is_twice_as_fast_as_one_printed_core():
    """What the pages print, against AWS's figures of one core: TensorE in two formats, DMA and ScalarE."""
    core = tm.chip("trainium2").core
    product = 2 * 4096 * 5120 * 12288
    limbs = 3 * product / 10.656e-3 / core.tensor.peak_flop_per_s["bf16"]
    fp32 = product / 13.3517e-3 / core.tensor.peak_flop_per_s["fp32"]
    moved = 2 * 4096 * 7168 * 4 / 0.2940e-3 / (core.dma_engines * core.dma_engine_bytes_per_s)
    scalar = (4096 * 7168 / 128 / core.scalar.clock_hz) / (0.34 * 0.3009e-3)
    assert [limbs, fp32, moved, scalar] == pytest.approx([1.84, 1.93, 2.17, 1.87], abs=0.01)


def test_products_in_fp32_are_those_of_two_physical_cores(nkibench):
    tuned = nkibench[(nkibench.use == "tuned-nki") & (nkibench.skipped == "")]
    assert len(tuned) == 18
    assert set(tuned.unknown) == {"cores"}
    errors = tuned.error.abs()
    assert errors.median() < 0.05
    assert errors.max() < 0.08
    limbs = tuned[tuned.note.str.contains("split")].error.abs()
    assert len(limbs) >= 4
    assert limbs.max() < 0.06


def test_a_product_of_limbs_is_three_in_bf16(nkibench):
    row = nkibench[nkibench.note.str.startswith("matmul_v3_bf16_split")].iloc[0]
    by_hand = tm.kernel.matmul("trainium2", 4096, 12288, 3 * 5120, "bf16", lnc=2)
    assert row.predicted == pytest.approx(float(by_hand.time_s) * 1e3, rel=1e-6)
    four = nkibench[nkibench.note.str.contains("4-PRODUCT split")].iloc[0]
    assert four.error == pytest.approx(0, abs=0.05)


def test_the_same_row_of_another_page_is_of_the_one_core_that_it_names(nkibench):
    row = nkibench[nkibench.note.str.startswith("matmul_v2_b4.py")].head(1)
    again = tm.validate(row.assign(source="a page of somebody")[list(pd.read_csv(THIRD, nrows=0))])
    assert again.predicted.item() == pytest.approx(2 * row.predicted.item(), rel=1e-2)
    assert again.unknown.item() == ""


def test_versions_that_the_page_dropped_are_no_tuned_kernels(nkibench):
    uses = nkibench.set_index("id").use
    assert uses["cdd13bb37e"] == "kernels not kept"  # "Far slower -> REJECT"
    assert uses["cbab5ac8f2"] == "tuned-nki"  # "BEATS baseline -> PROMOTED"
    assert uses["de37332cd0"] == "kernels before tuning"  # "first correct fp32 NKI kernel"
    assert uses["2da580c58e"] == "kernels before tuning"  # "NKIBench baseline kernel"


def test_an_expert_layer_alone_and_beside_others(layers):
    ran = layers[layers.refused == ""]
    assert len(ran) == 33
    assert (ran.skipped == "").all()
    sure = ran[ran.unknown == ""]
    assert len(sure) == 24
    assert sure.error.abs().median() < 0.065
    assert sure.error.abs().max() < 0.17
    assert (ran[ran.unknown == "tokens"].sequence_parallel == "on").all()


@pytest.mark.parametrize(
    ("ask", "tokens", "experts", "intermediate", "measured_ms"),
    [
        (ALONE, 16384, 8, 14336, 325.903),
        (ALONE, 4096, 8, 14336, 82.166),
        (HALVES, 16384, 4, 14336, 213.904),
        (HALVES, 4096, 4, 14336, 50.331),
        (HALVES, 16384, 8, 7168, 212.191),
        (QUARTERS, 16384, 2, 14336, 100.821),
        (QUARTERS, 4096, 2, 14336, 25.910),
    ],
)
def test_an_expert_layer_against_its_printed_medians(ask, tokens, experts, intermediate, measured_ms):
    answer = tm.kernel.experts("trainium2", tokens, 4096, intermediate, experts, **ask)
    assert float(answer.time_s) * 1e3 == pytest.approx(measured_ms, rel=0.075)
    assert answer.flop == 6 * tokens * experts * 4096 * intermediate


def test_a_layer_is_its_three_products_with_one_launch():
    chip = replace(tm.chip("trainium2"), core=replace(tm.chip("trainium2").core, fill_s=1.0))
    layer = tm.kernel.experts(chip, 4096, **MIXTRAL, lnc=2)
    up = tm.kernel.matmul(chip, 4096, 2 * 14336, 4096, groups=8, lnc=2)
    down = tm.kernel.matmul(chip, 4096, 4096, 14336, groups=8, lnc=2)
    assert layer.tensor_s == pytest.approx(float(up.tensor_s + down.tensor_s), rel=1e-3)  # one ramp less
    assert layer.hbm_read_bytes == up.hbm_read_bytes + down.hbm_read_bytes
    assert layer.fixed_s == up.fixed_s == down.fixed_s


@pytest.mark.parametrize("chip", ["trainium1", "inferentia2", "trainium2", "trainium3"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_more_of_a_layer_never_takes_less_time(chip, dtype):
    rising = {
        "tokens_per_expert": [1, 2, 127, 128, 129, 4096, 1e6],
        "hidden_size": [1, 64, 128, 4096, 1e5],
        "intermediate_size": [1, 100, 14336, 1e5],
        "experts": [1, 2, 64, 1000],
    }
    for name, values in rising.items():
        sizes = {"tokens_per_expert": 300, **MIXTRAL} | {name: np.array(values, float)}
        answer = tm.kernel.experts(chip, dtype=dtype, **sizes)
        assert answer.time_s.shape == (len(values),)
        assert np.all(np.diff(answer.time_s) >= 0)
        assert np.all(answer.roofline_s <= answer.tile_s * (1 + 1e-2))
        assert np.all((answer.lower_s <= answer.time_s) & (answer.time_s <= answer.upper_s))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tokens_per_expert": 0}, "tokens_per_expert"),
        ({"experts": 0.5}, "experts"),
        ({"dtype": "int8"}, "multiplies in"),
        ({"chip": "h100"}, "NeuronCore"),
        ({"busy_cores": 16}, "from 1 to 8"),
        ({"tokens_per_expert": [1, 2], "experts": [1, 2, 3]}, "tokens_per_expert"),
    ],
)
def test_a_layer_that_cannot_be_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        tm.kernel.experts(**{"chip": "trainium2", "tokens_per_expert": 128, **MIXTRAL} | wrong)


def asked(**cells):
    """A row of somebody's expert layer, with some cells changed."""
    row = {"instance": "trn2.3xlarge", "workload": LAYER, "kind": "kernel", "metric": "latency", "value": "100"}
    row |= {"unit": "ms", "lnc": "2", "n_chips": "1", "batch": "1", "seq_len": "4096", "precision": "BF16"}
    return tm.validate(pd.DataFrame([row | cells])).iloc[0]


def test_a_layer_of_anybody_computes_what_its_routing_sends():
    """Two of eight experts a token: a quarter of the tokens for each; and every token where the row says so."""
    routed, masked = asked(), asked(kernels="masked-dense")
    assert routed.predicted == pytest.approx(float(tm.kernel.experts("trainium2", 1024, **MIXTRAL, lnc=2).time_s) * 1e3)
    assert masked.predicted == pytest.approx(float(tm.kernel.experts("trainium2", 4096, **MIXTRAL, lnc=2).time_s) * 1e3)


def test_the_cores_of_a_layer_are_those_of_one_chip():
    """Sixteen chips with two logical cores each at work: two logical cores share a chip's bandwidth and power."""
    chips = asked(n_cores_used="64", n_chips="16", expert_ranks="4")
    here = tm.kernel.experts("trainium2", 1024, 4096, 14336, 2, **HALVES)
    assert chips.predicted == pytest.approx(float(here.time_s) * 1e3)
    mapped = asked(tp="2", expert_ranks="2")  # no cores are named: those of the mapping
    here = tm.kernel.experts("trainium2", 1024, 4096, 7168, 4, **QUARTERS)
    assert mapped.predicted == pytest.approx(float(here.time_s) * 1e3)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"seq_len": ""}, "does not state tokens_per_expert"),
        ({"workload": "MoE layer: 8 experts"}, "names no kernel with a shape"),
        ({"expert_ranks": "16"}, "experts"),
        ({"inside": "launch"}, "launch"),
        ({"metric": "happiness"}, "happiness"),
        ({"instance": "p5.48xlarge"}, "NeuronCore|instance"),
    ],
)
def test_a_layer_without_an_answer_says_what_it_lacks(cells, reason):
    row = asked(**cells)
    assert np.isnan(row.predicted)
    assert pd.Series([row.skipped]).str.contains(reason).item()


def test_launches_that_overlap_are_not_in_the_time():
    assert asked(inside="launch host", launches="overlapped").predicted == pytest.approx(asked().predicted)
