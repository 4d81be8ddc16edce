"""Models that measured rows name: their sizes against what others print and against bytes that a profiler counted."""

import pytest

from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.readings import model_of
from trnmodel.models.shipped import catalog
from trnmodel.models.transformer import model


@pytest.mark.parametrize(
    ("name", "total", "active", "cache"),
    [  # what publishers print; bytes per token by hand
        ("hy3", 295e9, 21e9, 80 * 8 * 2 * 128 * 2),
        ("qwen3.5-9b", 9e9, 9e9, 8 * 4 * 2 * 256 * 2),
        ("qwen3.5-0.8b", 752_393_024, 752_393_024, 6 * 2 * 2 * 256 * 2),
        ("minicpm4-8b", 8.2e9, 8.2e9, 32 * 2 * 2 * 128 * 2),
        ("olmo-2-1b", 1.485e9, 1.485e9, 16 * 16 * 2 * 128 * 2),
        ("janus-1.3b", 1.65e9, 1.65e9, 24 * 16 * 2 * 128 * 2),
    ],
)
def test_totals_that_publishers_print(name, total, active, cache):
    m = model(name)
    assert m.total_params == pytest.approx(total, rel=0.006)
    assert m.active_params() == pytest.approx(active, rel=0.02)
    assert m.kv_bytes_per_token("bf16") == cache


def test_a_checkpoint_with_its_prediction_layer():
    """298.8 thousand million elements in the BF16 file of Hy3, of which 3.8 in the prediction layer."""
    m = model("hy3")
    prediction = sum(layer.params for layer in m.prediction) - 2 * m.hidden_size * m.vocab_size  # shared with the model
    assert prediction == pytest.approx(3.8e9, rel=0.02)
    assert m.total_params + prediction == pytest.approx(298.8e9, rel=0.001)


@pytest.mark.parametrize(
    ("name", "ranks", "context", "read_gb"),
    [  # HBM reads of one core and one decode step, as the profiler prints them
        ("janus-1.3b", 1, 512, 2.99),
        ("minicpm4-8b", 2, 512, 7.90),
        ("olmo-2-1b", 2, 128, 1.29),
    ],
)
def test_a_step_reads_all_weights_but_the_table_of_embeddings(name, ranks, context, read_gb):
    m = model(name)
    weights = 2 * (m.total_params - m.vocab_size * m.hidden_size)
    assert (weights + context * m.kv_bytes_per_token("bf16")) / ranks / 1e9 == pytest.approx(read_gb, abs=0.02)


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        ("OLMo-2-0425-1B-Instruct", "olmo-2-1b"),
        ("Janus-1.3B", "janus-1.3b"),
        ("MiniCPM4-8B", "minicpm4-8b"),
        ("Qwen3.5-0.8B", "qwen3.5-0.8b"),
        ("Qwen3.5-9B", "qwen3.5-9b"),
        ("tencent/Hy3-FP8", "hy3"),
        ("Hy3-preview-Base", "hy3"),
        ("GTP3-6.7B pre-training", "gpt3-6.7b"),
        ("GPT 23B (NeMo-Megatron)", "gpt3-23b"),
        ("MiniMax-M2", "minimax-m2.5"),
        ("GLM-5.3-Flash", "glm-5.3-flash"),
    ],
)
def test_whose_model_a_workload_is(workload, name):
    assert catalog()[model_of(workload)].id == name


@pytest.mark.parametrize(
    "workload", ["MiniMax-M3", "Ministral-4b-instruct", "lfm2-2.6b", "recurrentgemma-2b-it", "Hy3.5", "GPT 230B"]
)
def test_a_model_without_a_formula_or_a_public_file_is_none_of_ours(workload):
    with pytest.raises(UnreadableRowError, match="no configuration of"):
        model_of(workload)
