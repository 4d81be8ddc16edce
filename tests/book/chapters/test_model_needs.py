"""What a model needs: counts, bytes and intensities against arithmetic done by hand and figures of others."""

import csv
from pathlib import Path

import numpy as np
import pytest

from trnbook.chapters import model_needs
from trnbook.shared import ledger as printed
from trnbook.shared.operators import step_operators
from trnmodel.models import describe
from trnmodel.models.transformer import model, model_ids

GOLDEN = Path(__file__).parents[2] / "golden" / "workload.csv"
SPREAD = ["llama-3.1-8b", "deepseek-v3", "gpt-oss-120b", "jamba-v0.1", "llama-4-scout", "opt-13b", "t5-3b"]


def test_printed_figures_are_the_goldens_and_agree():
    with GOLDEN.open(newline="") as stream:
        goldens = {row["id"]: row for row in csv.DictReader(stream) if row["id"][:3] not in ("RL_", "RB_")}
    with printed.PRINTED.open(newline="") as stream:
        shipped = {row["id"]: row for row in csv.DictReader(stream)}
    assert shipped.keys() == goldens.keys()
    compared = ("quantity", "inputs", "expected", "rel_tol")
    assert all(shipped[key][name] == goldens[key][name] for key in goldens for name in compared)
    assert printed.printed().agrees.all()


def test_publishers_counts_are_met_to_the_unit():
    counts = printed.published_counts()
    assert len(counts) >= 13
    assert (counts.computed == counts.published).all()


@pytest.mark.parametrize("name", SPREAD)
def test_places_add_up(name):
    table = model_needs.places([name])
    assert table.parameters.sum() == model(name).total_params
    assert table.active.sum() == model(name).active_params()
    assert table.share.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", SPREAD)
def test_operators_add_up_to_the_step(name):
    step = step_operators(name, "decode", 4, 1, 999, "bf16")
    m = model(name)
    if not m.reads_source:
        assert step.flop.sum() == pytest.approx(4 * float(m.decode_flop(1000)))
    assert step.weight_bytes.sum() == pytest.approx(float(m.weight_bytes_read(4, "bf16")))


def test_intensity_of_attention_is_its_group():
    """64 query heads on 8 key heads of 2 bytes: 8 FLOP a byte; a latent: 2 x 128 x (576 + 512) / (2 x 576) = 241.8."""

    def attention(name):
        step = step_operators(name, "decode", 16, 1, 1e6, "bf16").set_index("operator")
        return step.intensity_flop_per_byte["causal attention"]

    assert attention("llama-3.1-70b") == pytest.approx(8, rel=1e-4)
    assert attention("deepseek-v3") == pytest.approx(2 * 128 * (576 + 512) / (2 * 576), rel=1e-4)


def test_intensity_of_a_matrix_is_the_batch():
    """2 x 32 FLOP on a weight of 2 bytes."""
    step = step_operators("llama-3.1-8b", "decode", 32, 1, 99, "bf16").set_index("operator")
    assert step.intensity_flop_per_byte["o"] == pytest.approx(32)


def test_ridges_are_printed_ones():
    """667 TFLOP/s over 2.9 TB/s."""
    chart = model_needs.against_ridges(model_needs.phases("llama-3.1-8b", 1, 128, 256, "bf16"), ["trainium2"], "bf16")
    ridge = chart[chart["of"] == "ridge point"].iloc[0]
    assert ridge.intensity_flop_per_byte == pytest.approx(667 / 2.9)
    assert (chart.intensity_flop_per_byte_low <= chart.intensity_flop_per_byte).all()
    assert not chart.estimate.any()


def test_the_ridge_of_plain_fp8_is_ours_and_twice_that_of_bf16():
    """2 x 671 TFLOP/s over 4.9 TB/s: 274 FLOP/B, where MXFP8 needs 2,517 / 4.9 = 514."""
    table = model_needs.phases("llama-3.1-8b", 1, 128, 256, "fp8")
    ridges = {dtype: model_needs.against_ridges(table, ["trainium3"], dtype).iloc[0] for dtype in ("fp8", "mxfp8")}
    assert ridges["fp8"].intensity_flop_per_byte == pytest.approx(2 * 671 / 4.9)
    assert ridges["mxfp8"].intensity_flop_per_byte == pytest.approx(2517 / 4.9)
    assert (ridges["fp8"].estimate, ridges["mxfp8"].estimate) == (True, False)


def test_formats_have_the_bits_of_the_standard():
    """OCP MX: 32 elements and 8 bits of scale, 8.25 and 4.25 bits; what stays wide is the same in each."""
    table = model_needs.formats("llama-3.1-70b", ["bf16", "fp8", "mxfp8", "mxfp4", "w4a8"]).set_index("precision")
    assert table.element_bits.to_dict() == {"bf16": 16, "fp8": 8, "mxfp8": 8.25, "mxfp4": 4.25, "w4a8": 4.25}
    assert table.wide_bytes.nunique() == 1
    narrow = model("llama-3.1-70b").total_params - describe.wide_params("llama-3.1-70b")
    assert table.weight_bytes["mxfp8"] == pytest.approx(narrow * 8.25 / 8 + table.wide_bytes["mxfp8"])


def test_caches_end_with_the_model_and_hold_states():
    table = model_needs.caches(["opt-13b", "nemotron-h-56b"], [2048.0, 4096.0]).set_index(["model", "context"])
    assert np.isnan(table.cache_bytes["opt-13b", 4096.0])  # its positions end at 2,048
    assert table.cache_bytes["nemotron-h-56b", 2048.0] == table.state_bytes.iloc[-1] + 2048 * 40960  # bf16, 10 layers


def test_step_bytes_of_experts_are_ordered():
    """64 of 256 x (1 - (1 - 8/256)^64) = 222.4 experts once; never more than all."""
    table = model_needs.step_bytes("deepseek-v3", [1.0, 64.0], 4096, "fp8").pivot(
        index="batch", columns="what", values="read_bytes"
    )
    once, anew, everything = (table[f"weights, {words}"] for words in model_needs.POLICIES.values())
    assert once[1.0] == pytest.approx(anew[1.0])
    assert once[64.0] < anew[64.0]
    assert (once < everything).all()
    assert len(model_needs.step_bytes("llama-3.1-8b", [1.0], 4096, "bf16")) == 2


def test_experts_met():
    table = model_needs.experts_met(["deepseek-v3", "llama-3.1-8b"], [64.0])
    assert table.distinct.tolist() == [pytest.approx(256 * (1 - (1 - 8 / 256) ** 64))]
    assert model_needs.experts_met(["llama-3.1-8b"], [1.0]).empty


def test_masks_start_alike_and_part():
    table = model_needs.masks("llama-3.1-8b", [2048.0]).set_index("counted")
    assert table.prefill_flop["full attention, all logits"] == 32938104193024  # golden F_full_llama-3.1-8b
    assert table.prefill_flop["causal attention, last logits"] == 29688401494016  # golden F_caus_llama-3.1-8b


@pytest.mark.parametrize("name", [name for name in model_ids() if model(name).generates])
def test_every_model_that_generates_has_words_for_its_attention(name):
    assert describe.attention_kind(name)


def test_attention_that_keeps_no_cache_has_no_intensity():
    table = step_operators("bert-large-uncased", "prefill", 1, 128, 0, "bf16").set_index("operator")
    assert np.isnan(table.intensity_flop_per_byte["bidirectional attention"])
    assert table.flop["bidirectional attention"] > 0
