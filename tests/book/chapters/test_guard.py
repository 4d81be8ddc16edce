"""A chapter's first cell refuses in one line what the chapter cannot answer, and lets everything else through."""

import pytest

from trnbook.chapters import guard
from trnbook.report import chapter
from trnmodel.models.shipped import MODELS, catalog


def first_cells(slug, **given):
    """What the cell of parameters, other values for some of them, and the next cell leave behind."""
    cells = [cell for cell in chapter.read(slug).cells if cell.cell_type == "code"]
    assert "parameters" in cells[0].metadata.tags
    names = {}
    exec(cells[0].source, names)
    assert given.keys() <= names.keys()
    names |= given
    exec(cells[1].source, names)
    return names


def test_every_chapter_asks_the_guard_first_and_answers_for_its_defaults(slug):
    assert "guard" in first_cells(slug)


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("chip-roofline", {"intensity_flop_per_byte": -1.0}, "intensity_flop_per_byte = -1.0 must be from"),
        ("chip-roofline", {"intensity_flop_per_byte": 0.0}, "intensity_flop_per_byte = 0.0 must be from"),
        ("chip-roofline", {"comparators": []}, "comparators = [] must hold at least one item"),
        ("chip-roofline", {"chip": "mi210"}, "chip = 'mi210' has no printed peak in bf16"),
        ("neuroncore", {"chip": "h100"}, "chip = 'h100' has no NeuronCore"),
        ("neuroncore", {"dtype": "fp9"}, "dtype = 'fp9' must be one of bf16"),
        ("neuroncore", {"m": 0}, "m = 0 must be from 1"),
        ("neuroncore", {"chip": "trainium4-roadmap"}, "chip = 'trainium4-roadmap': nobody says"),
        ("memory", {"chip": "b200"}, "chip = 'b200' has no NeuronCore"),
        ("memory", {"row_bytes": 0.0}, "row_bytes = 0.0 must be from"),
        ("rack", {"system": "tpu-v7-pod"}, "system = 'tpu-v7-pod': 9216 chips are too many to draw"),
        ("rack", {"compared_system": "tpu-v5e-pod"}, "compared_system = 'tpu-v5e-pod': 256 chips are too many to draw"),
        ("rack", {"compared_system": "mi210-4"}, "compared_system = 'mi210-4': no rate of its links is published"),
        ("rack", {"system": "trn2.3xlarge"}, "system = 'trn2.3xlarge' is a single chip"),
        ("torus-or-switch", {"system": "gb200-nvl72"}, "system = 'gb200-nvl72' has no NeuronCore"),
        ("torus-or-switch", {"torus_system": "inf2.xlarge"}, "torus_system = 'inf2.xlarge' is a single chip"),
        ("torus-or-switch", {"system": "trn2.48xlarge"}, "system = 'trn2.48xlarge' has no switches"),
        ("torus-or-switch", {"torus_system": "trn3-nl32x2-ualink"}, "torus_system = 'trn3-nl32x2-ualink' is no torus"),
        ("torus-or-switch", {"model": "gpt2"}, "model = 'gpt2' ends at 1024 tokens; 4608 are asked for"),
        ("torus-or-switch", {"message_bytes": 0.0}, "message_bytes = 0.0 must be from"),
        ("switch-tray", {"model": "bert-base-cased"}, "model = 'bert-base-cased' is an encoder"),
        ("switch-tray", {"model": "llama-3.1-8b"}, "model = 'llama-3.1-8b' has no routed experts"),
        ("switch-tray", {"grown_from": "gpt2"}, "grown_from = 'gpt2' must be one of deepseek-v3"),
        ("switch-tray", {"context": 1e9}, "context = 1000000000.0 must be from 1 to 163840"),
        (
            "switch-tray",
            {"model": "mixtral-8x7b-v0.1"},
            "no step on trn3-nl32x2-pcie160 and trn3-nl72x2-pcie160 exists",
        ),
        ("switch-tray", {"pays_at": 0.0}, "pays_at = 0.0 must be from 1"),
        ("scale-out", {"system": "inf2.48xlarge"}, "system = 'inf2.48xlarge': no scale-out rate"),
        ("scale-out", {"models": []}, "models = [] must hold at least one item"),
        ("scale-out", {"models": ["gpt2", "roberta-base"]}, "models = 'roberta-base' is an encoder"),
        ("scale-out", {"cluster_chips": -1}, "cluster_chips = -1 must be from 1"),
        ("software", {"system": "hgx-h200"}, "system = 'hgx-h200' has no NeuronCore"),
        ("software", {"rivals": []}, "rivals = [] must hold at least one item"),
        ("software", {"model": "bert-base-cased"}, "model = 'bert-base-cased' is an encoder"),
        ("software", {"experts_model": "llama-3.3-70b"}, "are both 'llama-3.3-70b': name two models"),
        ("software", {"input_tokens": 500_000}, "model = 'llama-3.3-70b' ends at 131072 tokens; 500512 are asked for"),
        ("software", {"tokens_per_s_per_user": 0.0}, "tokens_per_s_per_user = 0.0 must be from"),
        ("beside-gpus", {"systems": ["trn3-nl72x2-pcie160"]}, "must hold a GPU or a TPU"),
        ("beside-gpus", {"system": "hgx-h100"}, "system = 'hgx-h100' has no NeuronCore"),
        ("beside-gpus", {"experts_model": "llama-3.3-70b"}, "are both 'llama-3.3-70b': name two models"),
        ("model-needs", {"model": "bert-base-cased"}, "model = 'bert-base-cased' is an encoder"),
        ("model-needs", {"model": "t5-base"}, "model = 't5-base' has no longest context; 128 tokens are needed"),
        (
            "model-needs",
            {"model": "gpt2", "input_tokens": 1000},
            "model = 'gpt2' ends at 1024 tokens; 1512 are asked for",
        ),
        ("model-needs", {"batch": 0}, "batch = 0 must be from 1"),
        ("memory-fit", {"model": "electra-base-discriminator"}, "is an encoder: it has no decode step"),
        ("memory-fit", {"system": "trn1.32xlarge", "lnc": 2}, "lnc = 2 must be one of 0, 1"),
        ("memory-fit", {"system": "trn1.32xlarge"}, "precision = 'fp8' computes in fp8, which trainium1 does not"),
        ("memory-fit", {"tp": 1024}, "tp = 1024 must be from 0 to 64"),
        ("memory-fit", {"context": 64}, "context = 64 must be from 128 to 524288"),
        ("memory-fit", {"batch": -1}, "batch = -1 must be from 1"),
        ("serving", {"model": "distilbert-base-cased"}, "model = 'distilbert-base-cased' is an encoder"),
        ("serving", {"model": "gpt2", "input_tokens": 1000}, "model = 'gpt2' ends at 1024 tokens; 1512 are asked for"),
        ("serving", {"tokens_per_s_per_user": 0.0}, "tokens_per_s_per_user = 0.0 must be from"),
        ("serving", {"tokens_per_s_per_user": 5000.0}, "gives no user 5,000 tokens/s on trn2.48xlarge: at most "),
        ("serving", {"model": "deepseek-v3", "system": "trn1.32xlarge"}, "on trn1.32xlarge: does not fit: "),
        ("serving", {"system": "trn1.32xlarge", "precision": "fp8"}, "computes in fp8, which trainium1 does not"),
        ("which-system", {"model": "bert-base-cased"}, "model = 'bert-base-cased' is an encoder"),
        ("which-system", {"fit_model": "bert-base-cased"}, "fit_model = 'bert-base-cased' is an encoder"),
        ("which-system", {"users": 0}, "users = 0 must be from 1"),
        ("which-system", {"tokens_per_s_per_user": 1e5}, "no Trainium system gives each user 100,000 tokens/s"),
        ("decode-step", {"system": "hgx-h100"}, "system = 'hgx-h100' has no NeuronCore"),
        ("decode-step", {"stack": "nope"}, "stack = 'nope' must be one of ideal"),
        (
            "decode-step",
            {"model": "llama-3.1-405b", "tp": 1},
            "tp = 1, ep = 1, batch = 4, context = 4608: does not fit: 394 of 24 GiB per rank; tp = 32 holds it",
        ),
        (
            "decode-step",
            {"input_tokens": 200_000},
            "model = 'llama-3.3-70b' ends at 131072 tokens; 200512 are asked for",
        ),
        ("decode-step", {"system": "trn1.32xlarge", "precision": "bf16"}, "tp = 16 holds it"),
        ("decode-step", {"stack": "gpu-serving"}, "stack = 'gpu-serving' does not run on trainium2"),
        ("decode-step", {"precision": "w4a8"}, "precision = 'w4a8' computes in mxfp8, which trainium2 does not"),
    ],
)
def test_what_a_chapter_cannot_answer_is_one_line(name, given, why):
    with pytest.raises(guard.UnanswerableError) as raised:
        first_cells(name, **given)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 560
    assert raised.value._render_traceback_() == [f"This chapter cannot answer: {raised.value}"]


def test_a_model_of_ones_own_is_the_one_that_is_asked(tmp_path):
    """A folder named as a shipped model does not become it."""
    (tmp_path / "deepseek-v3").mkdir()
    (tmp_path / "deepseek-v3" / "config.json").write_bytes((MODELS / catalog()["kimi-k2-instruct"].file).read_bytes())
    kimi = first_cells("torus-or-switch", model="kimi-k2-instruct")["m"]
    own = {"model": str(tmp_path / "deepseek-v3")}
    for slug in ("torus-or-switch", "switch-tray", "model-needs", "memory-fit", "memory"):
        m = first_cells(slug, **own)["m"]
        assert (m.id, m.total_params) == ("deepseek-v3", kimi.total_params)
    assert [one.total_params for one in first_cells("model-needs", **own)["everyone"] if not isinstance(one, str)] == [
        kimi.total_params
    ]
    with pytest.raises(guard.UnanswerableError, match="is a file; only shipped models grow"):
        first_cells("switch-tray", grown_from=own["model"])
