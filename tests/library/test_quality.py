"""What a number format loses of a model's score: rows against what is printed, and the rule that picks them."""

from dataclasses import replace
from math import isnan
from statistics import median

import pytest

import trnmodel as tm
from trnmodel.catalog import load
from trnmodel.catalog.scores import ScoreRow, scores, scores_of
from trnmodel.catalog.tables import DataError
from trnmodel.models.shipped import MODELS, known

# Printed scores, copied again from their pages: start of a row's id, score in BF16, score, loss in percent by hand
PRINTED = [
    # card of Mixtral-8x22B-FP8: 79.04, "whereas the unquantized model achieves 79.93"; 1 - 79.04/79.93
    ("mixtral-8x22b-v0.1/fp8/openllm-v1", "79.93", "79.04", 1.1135),
    # Qwen2-72B GPTQ-Int8 on MMLU: 82.3 to 81.3
    ("qwen2-72b-instruct/int8-bf16/mmlu", "82.3", "81.3", 1.2151),
    # DeepSeek-R1 in NVFP4 on MATH-500: 95.4 to 94.2
    ("deepseek-r1/nvfp4/math-500", "95.4", "94.2", 1.2579),
    # torchao, Llama-3.1-8B in MXFP8 on Winogrande: 0.7380 to 0.7316
    ("llama-3.1-8b/mxfp8/winogrande/torchao-inference", "0.7380", "0.7316", 0.8672),
    # Llama-2-70B in INT8 by SmoothQuant: printed as a loss of 2.75 % too, of 69.1 and 67.2
    ("llama-2-70b/int8/mmlu", "69.1", "67.2", 2.7496),
    # the same in FP8: printed as 0.87 %
    ("llama-2-70b/fp8/mmlu", "69.1", "68.5", 0.8683),
    # AutoRound's round to nearest in MXFP4, Llama-3.1-8B on GSM8K: 75.28 to 46.70
    ("llama-3.1-8b/mxfp4/gsm8k-strict/autoround-opt-rtn", "75.28", "46.7", 37.9649),
    # Model Optimizer prints the loss itself
    ("llama-3.1-70b/int4-bf16/mmlu/modelopt", "", "1.07", 1.07),
    # vLLM: "recovering about 97-98% of the baseline AUC"
    ("llama-3.3-70b/bf16-kvfp8/mrcr", "", "97-98", 2.5),
]


@pytest.mark.parametrize(("start", "base", "value", "loss"), PRINTED)
def test_rows_are_what_is_printed(start, base, value, loss):
    row = next(row for name, row in scores().items() if name.startswith(start))
    assert (row.baseline_printed, row.value_printed) == (base, value)
    assert row.loss_percent == pytest.approx(loss, abs=1e-4)
    assert row.source in load.sources()


def test_there_are_rows_of_many_formats_and_families():
    rows = list(scores().values())
    assert len(rows) >= 40
    assert len({row.model for row in rows}) >= 20
    architectures = {row.architecture or tm.model(row.model).architecture for row in rows}
    assert {"llama", "qwen2", "qwen3", "mixtral", "deepseek_v3", "gemma4_text", "granite"} <= architectures
    weights = {row.weights for row in rows}
    assert {"fp8", "int8", "int4", "mxfp8", "mxfp4", "nvfp4"} <= weights
    assert any(row.kv == "fp8" for row in rows)


def test_a_model_of_a_row_is_in_the_catalogue_or_is_described():
    for row in scores().values():
        assert (known(row.model) == row.model) is (row.architecture == "")


def losses(model, **formats):
    """Losses of the rows of one model and format."""
    return [
        row.loss_percent
        for row in scores().values()
        if row.model == model and all(getattr(row, name) == word for name, word in formats.items())
    ]


def test_the_very_model_and_format_is_measured():
    """Llama-3.1-70B in FP8: 0.38 % by Model Optimizer, and 87.3 of 86.3 on GSM8K, which is -1.16 %."""
    one = tm.quality("llama-3.1-70b", "fp8")
    assert one.basis == "measured"
    assert one.loss_percent == pytest.approx((0.38 - 100 * (87.3 / 86.3 - 1)) / 2)
    assert len(one.rows) == 2
    three = tm.quality("llama-2-70b", tm.Precision("int8", compute="int8"))
    assert (three.basis, three.loss_percent) == ("measured", pytest.approx(2.7496, abs=1e-4))


def test_rows_of_a_source_count_once_in_the_median():
    """NVFP4 of Llama-3.1-8B: the mean of each source's rows, and the median of these means."""
    rows = [row for row in scores().values() if row.model == "llama-3.1-8b" and row.weights == row.compute == "nvfp4"]
    means = [
        sum(some) / len(some)
        for source in {row.source for row in rows}
        if (some := [row.loss_percent for row in rows if row.source == source])
    ]
    one = tm.quality("llama-3.1-8b", tm.Precision("nvfp4", compute="nvfp4"))
    assert one.loss_percent == pytest.approx(median(means))
    assert one.loss_percent_low == min(row.loss_percent for row in rows)
    assert one.loss_percent_high == max(row.loss_percent for row in rows)
    assert len(one.rows) == len(rows)


def test_the_same_format_on_like_models_is_interpolated_and_on_others_extrapolated():
    near = tm.quality("llama-3.2-3b", "mxfp8")
    assert (near.basis, near.loss_percent_low <= near.loss_percent <= near.loss_percent_high) == ("interpolated", True)
    far = tm.quality("deepseek-v3", "mxfp8")
    assert far.basis == "extrapolated"
    assert "llama-3.1-8b" in far.basis_reason
    size = tm.quality("gemma-7b", "mxfp8")  # 8.54 to 8.03 billion parameters, another architecture
    assert size.basis == "interpolated"


def test_wide_formats_and_published_ones_lose_nothing():
    for precision in ("bf16", "fp16", "fp32"):
        one = tm.quality("llama-3.1-8b", precision)
        assert (one.loss_percent, one.loss_percent_low, one.loss_percent_high, one.basis) == (0, 0, 0, "ideal")
    assert tm.quality("gpt-oss-20b", "mxfp4-moe").basis == "ideal"
    assert tm.quality("deepseek-v3", "fp8").loss_percent == 0
    assert tm.quality("llama-3.1-8b", "mxfp4-moe").basis == "ideal"  # no experts, so that nothing is narrow
    assert tm.quality("qwen3-235b-a22b", "mxfp4-moe").basis == "extrapolated"


def test_a_precision_that_nobody_measured_is_unknown():
    for model in ("llama-3.1-8b", "deepseek-v3"):
        for precision in ("w4a8", "w4fp8", "w4a8-kvfp8"):
            one = tm.quality(model, precision)
            assert isnan(one.loss_percent)
            assert (one.loss_percent_high, one.basis) == (100, "extrapolated")
            assert 0 <= one.loss_percent_low < 5
            assert not one.known
            assert "no published score" in one.basis_reason
            assert one.exceeds(99)
            assert not one.exceeds(100)


def test_losses_of_products_and_cache_add_up_where_nobody_has_both():
    products, cached = (tm.quality("qwen3-30b-a3b", one) for one in ("mxfp8", tm.Precision(kv="fp8")))
    both = tm.quality("qwen3-30b-a3b", "mxfp8-kvfp8")
    assert both.loss_percent == pytest.approx(products.loss_percent + cached.loss_percent)
    assert both.loss_percent_high == pytest.approx(products.loss_percent_high + cached.loss_percent_high)
    assert both.basis == "extrapolated"
    published = tm.quality("llama-3.3-70b", "fp8-kvfp8")  # AWS prints both together: 0.95 and 0.95
    assert (published.loss_percent, published.basis) == (0, "measured")


def test_a_single_row_tells_no_range():
    """The one row of Llama-3.3-70B with a cache in FP8 takes its ends from rows of other models."""
    one = tm.quality("llama-3.3-70b", tm.Precision(kv="fp8"))
    assert (one.basis, one.loss_percent, len(one.rows)) == ("measured", 2.5, 1)
    every = [row.loss_percent for row in scores_of(("bf16", "bf16", "fp8", "bf16"))]
    assert (one.loss_percent_low, one.loss_percent_high) == (min(every), max(every)) == (1.0, 7.0)


def test_a_limit():
    one = tm.quality("llama-3.1-8b", "mxfp4")
    assert one.exceeds(one.loss_percent - 0.1)
    assert not one.exceeds(one.loss_percent)
    for wrong in (-1, float("nan"), "2", None, 101, True):
        with pytest.raises(ValueError, match="limit="):
            one.exceeds(wrong)


def test_a_file_of_one_s_own_is_no_published_model(tmp_path):
    path = tmp_path / "config.json"
    path.write_text((MODELS / "llama-3.1-8b.json").read_text())
    own = tm.model(path, name="llama-3.1-8b")
    assert tm.quality(own, "fp8").basis == "interpolated"
    assert tm.quality(replace(tm.model("gpt-oss-20b"), path="mine.json"), "mxfp4-moe").basis != "ideal"


def test_hostile_names_are_refused():
    for hostile in ("", "fp9", "<b>", "x" * 10_000, 8, None, ["fp8"]):
        with pytest.raises(ValueError, match="precision="):
            tm.quality("llama-3.1-8b", hostile)
        with pytest.raises(ValueError, match="model="):
            tm.quality(hostile, "fp8")


def test_every_preset_of_every_kind_of_model_has_an_answer():
    for precision in load.precisions():
        for model in ("llama-3.1-8b", "deepseek-v3", "gpt-oss-120b", "bert-base-cased", "jamba-v0.1", "t5-base"):
            one = tm.quality(model, precision)
            assert isnan(one.loss_percent) or one.loss_percent_low <= one.loss_percent <= one.loss_percent_high
            assert len(one.to_frame()) == len(one.rows)
            assert set(one.sources) <= load.sources().keys()
            assert one.card()[0].startswith("Quality: ")


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("unit_printed", "points", "Invalid enum value"),
        ("weights", "fp5", "fp5"),
        ("source", "nobody", "nobody"),
        ("baseline_printed", "", "baseline_printed"),
        ("params_b", "", "params_b"),
    ],
)
def test_a_wrong_row_is_an_error_on_load(column, value, what, changed_row):
    changed_row("evidence/quality.csv", column, value)
    with pytest.raises(DataError, match=what):
        scores()


def test_a_row_is_what_its_fields_say():
    row = next(iter(scores().values()))
    assert isinstance(row, ScoreRow)
    assert row.dtypes == (row.weights, row.experts, row.kv, row.compute)
