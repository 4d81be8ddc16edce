"""What a model needs: counts, bytes and intensities against arithmetic done by hand and figures of others."""

import csv
from pathlib import Path

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import model_needs
from trnbook.shared import case
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


def test_the_largest_difference_is_the_one_that_the_chapter_names():
    """DeepSeek's FP8 file holds scales of blocks, 0.02 % of its weights."""
    others = printed.printed()
    worst = others.loc[others.error.abs().idxmax()]
    assert (worst.figure, worst.model) == ("weight bytes", "deepseek-v3")
    assert f"{abs(worst.error):.2%}" == "0.02%"
    table = model_needs.with_counts(printed.agreement(others), printed.published_counts())
    assert table.exact.iloc[0] == table.rows.iloc[0] == len(printed.published_counts())


@pytest.mark.parametrize("name", SPREAD)
def test_places_add_up(name):
    places = describe.by_place(name)
    assert sum(held for held, _ in places.values()) == model(name).total_params
    assert sum(used for _, used in places.values()) == model(name).active_params()


@pytest.mark.parametrize("name", SPREAD)
def test_operators_add_up_to_the_step(name):
    step = step_operators(name, "decode", 4, 1, 999, "bf16")
    m = model(name)
    if not m.reads_source:
        assert step.flop.sum() == pytest.approx(4 * float(m.decode_flop(1000)))
    assert step.weight_bytes.sum() == pytest.approx(float(m.weight_bytes_read(4, "bf16")))


@pytest.mark.parametrize("name", SPREAD)
def test_parts_of_a_step_are_its_weights_and_caches(name):
    m = model(name)
    table = model_needs.by_part(m.operators("decode", batch=4, past=999)).set_index("part").read_bytes
    weights = table.drop(model_needs.CACHE).sum()
    assert weights == pytest.approx(float(m.weight_bytes_read(4)))
    assert table[model_needs.CACHE] == pytest.approx(4 * (float(m.kv_bytes(1000)) + m.state_bytes()))
    assert (model_needs.EXPERTS in table) == (m.active_params() < m.total_params)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3"])
def test_operators_are_those_of_the_shared_table(name):
    ours = model_needs.by_operator(model(name).operators("decode", batch=4, past=999, logits="last"))
    theirs = step_operators(name, "decode", 4, 1, 999, "bf16")
    for column in ("flop", "weight_bytes", "cache_bytes", "intensity_flop_per_byte"):
        np.testing.assert_allclose(ours[column], theirs[column])


def test_intensity_of_attention_is_its_group():
    """64 query heads on 8 key heads of 2 bytes: 8 FLOP a byte; a latent: 2 x 128 x (576 + 512) / (2 x 576) = 241.8."""

    def attention(name):
        step = model_needs.by_operator(model(name).operators("decode", batch=16, past=1e6)).set_index("operator")
        return step.intensity_flop_per_byte["causal attention"]

    assert attention("llama-3.1-70b") == pytest.approx(8, rel=1e-4)
    assert attention("deepseek-v3") == pytest.approx(2 * 128 * (576 + 512) / (2 * 576), rel=1e-4)


def test_intensity_of_a_matrix_is_the_batch():
    """2 x 32 FLOP on a weight of 2 bytes."""
    step = model_needs.by_operator(model("llama-3.1-8b").operators("decode", batch=32, past=99)).set_index("operator")
    assert step.intensity_flop_per_byte["o"] == pytest.approx(32)


def test_the_ridge_of_the_problem_is_that_of_the_chip():
    """1,299 TFLOP/s in FP8 and 667 in BF16 over 2.9 TB/s: 448 and 230 FLOP/B."""
    chip = tm.chip("trainium2")
    assert chip.peak("fp8") / chip.hbm_bytes_per_s == pytest.approx(1299 / 2.9)
    assert chip.peak("bf16") / chip.hbm_bytes_per_s == pytest.approx(667 / 2.9)


def test_formats_have_the_bits_of_the_standard():
    """OCP MX: 32 elements and 8 bits of scale, 8.25 and 4.25 bits; head, tables, routers and norms stay at 16."""
    m = model("llama-3.1-70b")
    wide = describe.wide_params(m)
    for precision, bits in {"bf16": 16, "fp8": 8, "mxfp8": 8.25, "mxfp4": 4.25, "w4a8": 4.25}.items():
        assert m.weight_bytes(precision) == pytest.approx((m.total_params - wide) * bits / 8 + wide * 2)


def test_experts_met_and_read():
    """256 x (1 - (1 - 8/256)^16) = 102.1 of 256 experts a layer; never more than all, never fewer than one's own."""
    m = model("deepseek-v3")
    experts = 58 * 256 * 3 * 7168 * 2048
    met = 256 * (1 - (1 - 8 / 256) ** 16)
    table = (
        model_needs.by_part(m.operators("decode", batch=16, past=4351, precision="fp8")).set_index("part").read_bytes
    )
    assert table[model_needs.EXPERTS] == pytest.approx(met / 256 * experts)
    assert f"{met:.0f}" == "102"
    assert f"{table[model_needs.EXPERTS] / 1e9:.0f} of {experts / 1e9:.0f}" == "260 of 654"
    assert [f"{table[part] / 1e9:.0f}" for part in (model_needs.SHARED, model_needs.CACHE)] == ["17", "5"]
    once, anew, everything = (m.weight_bytes_read(64, "fp8", policy) for policy in ("distinct", "per_token", "all"))
    assert once < anew <= everything
    assert m.weight_bytes_read(1, "fp8") == pytest.approx(float(m.weight_bytes_read(1, "fp8", "per_token")))


def test_the_dense_line_of_the_case_is_its_weights_and_caches():
    """70.555 GB of weights, four caches of 4,608 x 327,680 B, and norms and rows on each of four ranks."""
    line = next(one for one in case.LINES if one.chapter == "model-needs")
    read = case.value(line, "llama-3.3-70b", "trn2.48xlarge")
    assert read == pytest.approx(70_555_090_944 + 4 * 4608 * 327_680, rel=1e-3)


@pytest.mark.parametrize("system", case.SYSTEMS)
@pytest.mark.parametrize("name", case.PROMISES)
def test_a_step_reads_no_less_than_it_needs(name, system):
    line = next(one for one in case.LINES if one.chapter == "model-needs")
    step, read = case.choice(name, system).step, case.value(line, name, system)
    m = model(name)
    cache = step.batch * m.kv_bytes(4352, step.precision.kv)
    table = model_needs.breakdown(name, system, m.weight_bytes_read(step.batch, step.precision), cache, 0.0, 0.0, read)
    assert table.read_bytes.sum() == pytest.approx(read)
    assert (table.read_bytes >= 0).all()


def test_counting_the_whole_square_is_more_work():
    m = model("llama-3.1-8b")
    assert m.prefill_flop(2048, attention="full", logits="all") == 32938104193024  # golden F_full_llama-3.1-8b
    assert m.prefill_flop(2048) == 29688401494016  # golden F_caus_llama-3.1-8b


def test_a_model_stands_once_among_the_others():
    own = model("llama-3.1-8b")
    assert model_needs.models_compared(own)[-1] is own
    mixed = model_needs.models_compared(model("deepseek-v3"))
    assert len(mixed) == len(model_needs.KINDS)
    assert mixed[2] is model("deepseek-v3")


def test_the_drawing_colours_what_a_batch_reads():
    drawing = model_needs.step_of_experts("deepseek-v3", [1, 16])
    one, sixteen = ("".join(marks) for marks in drawing.frames.values())
    assert (one.count("box-b"), one.count("box-a")) == (8, 1)  # 8 experts a token, a cache a sequence
    assert sixteen.count("box-a") == 16
    assert 8 < sixteen.count("box-b") < 16 * 8
    assert "".join(drawing.marks).count("<rect") == 256 + 1  # experts of a layer, and what all tokens use
    with pytest.raises(ValueError, match="only models with routed experts"):
        model_needs.step_of_experts("llama-3.1-8b")


@pytest.mark.parametrize("name", [name for name in model_ids() if model(name).generates])
def test_every_model_that_generates_has_words_for_its_attention(name):
    assert model_needs.attention_kind(name)


def test_attention_that_keeps_no_cache_has_no_intensity():
    table = step_operators("bert-large-uncased", "prefill", 1, 128, 0, "bf16").set_index("operator")
    assert np.isnan(table.intensity_flop_per_byte["bidirectional attention"])
    assert table.flop["bidirectional attention"] > 0
