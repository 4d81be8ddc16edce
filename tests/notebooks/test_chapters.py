"""Chapters are pairs in step, follow the template, and run: with other parameters, and twice to the same bytes."""

import re

import jupytext
import pytest

from trnmodel import report
from trnmodel.report import form

OTHER = {
    "accuracy": {"group": "encoders, latency", "second_group": "TPOT under load", "within_share": 0.1},
    "beside-gpus": {
        "system": "trn1.32xlarge",
        "systems": ["trn3pd98.3xlarge", "hgx-a100", "tpu-v5e-pod"],
        "model": "llama-3.1-8b",
        "experts_model": "mixtral-8x7b-v0.1",
        "precisions": ["bf16"],
        "input_tokens": 512,
        "output_tokens": 64,
        "interactivity_tokens_per_s": [1000.0],
    },
    "chip-roofline": {"chip": "trainium2", "comparators": ["a100"], "intensity_flop_per_byte": 40.0},
    "cost": {
        "model": "llama-3.1-8b",
        "experts_model": "qwen3-30b-a3b",
        "tokens_per_s_per_user": [40.0],
        "input_tokens": 1024,
        "output_tokens": 256,
        "rented_system": "trn1.32xlarge",
        "system": "trn3-nl32x2-pcie160",
        "air_system": "trn2.48xlarge",
        "torus_system": "trn2-ultraserver",
        "systems": ["hgx-h100", "tpu-v6e-pod"],
        "way": "on-demand",
        "region": "us-east-1",
        "owner": "neocloud",
        "prices": ["rent[trn3-nl32x2-pcie160]=3", "chip_usd[trainium3]=5000:8000:12000", "rate_per_year=0.1"],
        "requests_per_s": 50.0,
        "duty": 1.0,
        "spare_instances": 0,
    },
    "decode-step": {
        "model": "deepseek-v3",
        "system": "trn3-nl72x2-pcie160",
        "precision": "mxfp8",
        "tp": 4,
        "ep": 64,
        "batch": 512,
    },
    "goodput": {
        "system": "trn3-nl32x2-pcie160",
        "systems": ["trn3-nl72x2-aws-lanes", "hgx-h200"],
        "chips": 1000,
        "model": "deepseek-v3",
        "swap": "drain",
        "fleet": "rsc-2-a100",
        "replica_chips": 64,
        "replicas": 3,
        "replicas_needed": 1,
    },
    "metrics": {
        "model": "llama-3.1-8b",
        "system": "trn1.32xlarge",
        "tp": 8,
        "input_tokens": 512,
        "output_tokens": 4,
        "sent_s": [0.0],
        "most_ttft_s": 0.01,
    },
    "neuroncore": {"chip": "trainium3", "m": 4096, "n": 4096, "k": 512, "dtype": "mxfp8"},
    "power": {
        "model": "llama-3.1-8b",
        "experts_model": "qwen3-30b-a3b",
        "system": "trn2-ultraserver",
        "site": "aws-air",
        "air_system": "hgx-h200",
        "air_site": "aws-chilled",
        "systems": ["hgx-h100"],
        "context": 2048,
        "tokens_per_s_per_user": [40.0],
        "claim_tolerance": 0.25,
    },
    "scale-out": {"system": "trn2-ultraserver", "models": ["llama-3.1-8b"], "cluster_chips": 4096},
    "torus-or-switch": {"system": "trn3-nl72x2-pcie160", "model": "kimi-k2-instruct", "tokens_per_chip": 8.0},
    "switch-tray": {"system": "trn3-nl32x2-pcie160", "model": "kimi-k2-instruct", "tokens_per_chip": 32.0},
    "serving": {
        "model": "deepseek-v3",
        "system": "trn3-nl72x2-pcie160",
        "precision": "mxfp8",
        "tp": 4,
        "ep": 64,
        "batch": 512,
        "experts_model": "kimi-k2-instruct",
        "prefill_systems": ["trn3-nl32x2-pcie160"],
    },
    "software": {
        "system": "trn2-ultraserver",
        "larger_system": "trn3-nl72x2-aws-lanes",
        "torus_system": "trn2.48xlarge",
        "rivals": ["hgx-h100"],
        "experts_model": "qwen3-30b-a3b",
        "model": "llama-3.1-8b",
        "grown_from": "kimi-k2-instruct",
        "context": 1024,
        "tokens_per_s_per_user": [5.0, 200.0, 1e5],
    },
    "model-needs": {
        "model": "llama-3.1-8b",
        "precision": "bf16",
        "input_tokens": 512,
        "output_tokens": 128,
        "batch": 8,
    },
    "index": {
        "system": "trn2-ultraserver",
        "small_model": "qwen3-8b",
        "dense_model": "llama-3.1-405b",
        "experts_model": "qwen3-30b-a3b",
        "tokens_per_s_per_user": [5.0, 1e5],
        "experts_tokens_per_s_per_user": 100.0,
        "input_tokens": 512,
        "output_tokens": 64,
    },
    "memory-fit": {
        "model": "deepseek-v3",
        "system": "trn3-nl32x2-pcie160",
        "precision": "fp8",
        "tp": 64,
        "lnc": 1,
        "batch": 64,
        "context": 4096,
    },
    "rack": {"system": "trn3-nl32x2-torus", "beside": "inf2.48xlarge"},
    "memory": {
        "chip": "trainium2",
        "model": "llama-3.1-70b",
        "precision": "fp8",
        "row_bytes": 4096.0,
        "storage_bytes_per_s": 8e9,
    },
}


@pytest.fixture
def text(root, slug):
    return jupytext.read(root / "notebooks" / "py" / f"{slug}.py")


def facts(cell):
    return cell.cell_type, cell.source, cell.metadata.get("tags", [])


def test_pair_is_in_step(root, slug, text):
    notebook = jupytext.read(root / "notebooks" / f"{slug}.ipynb")
    assert [facts(cell) for cell in notebook.cells] == [facts(cell) for cell in text.cells], "run `make notebooks`"


def test_notebook_has_its_text(root):
    stems = [sorted(path.stem for path in (root / "notebooks").glob(kind)) for kind in ("*.ipynb", "py/*.py")]
    assert stems[0] == stems[1]


@pytest.mark.chapters
def test_template(text):
    prose = "\n\n".join(cell.source for cell in text.cells if cell.cell_type == "markdown")
    headings = re.findall(r"^#{1,2} (.+)$", prose, re.MULTILINE)
    assert headings[0].endswith("?"), "the title is a question"
    (given,) = [cell.source for cell in text.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(given.splitlines()) > 1, "IPython takes a single line such as `system: ...` for its magic of that name"
    assert "Notation" in headings
    assert any(heading.startswith("Check") for heading in headings)
    assert "{admonition} Takeaway" in prose
    assert "Problems" in headings
    assert len(re.findall(r"\{admonition\} Answer\n:class: dropdown", prose)) >= 3
    assert headings[-1] == "Sources"


def test_a_caption_names_the_estimates_that_its_chart_rests_on(root, slug):
    cells = jupytext.read(root / "notebooks" / f"{slug}.ipynb").cells
    shown = [spec for cell in cells for out in cell.get("outputs", []) for spec in out.get("data", {}).values()]
    titles = [spec["title"] for spec in shown if isinstance(spec, dict) and isinstance(spec.get("title"), dict)]
    unsaid = [title["text"] for title in titles if "estimate" in title.get("subtitle", "")]
    unsaid = [text for text in unsaid if "estimate" not in " ".join(text)]
    assert unsaid == []


def test_runs_with_other_parameters(slug, tmp_path, oddities):
    given = OTHER[slug]
    declared = report.parameters(slug)
    assert all(declared[name].default != value for name, value in given.items())
    (outcome,) = report.run([slug], given, tmp_path, progress=False)
    assert outcome.ran
    assert oddities(form.sentences(jupytext.read(outcome.path))) == []


def test_runs_twice_to_the_same_bytes(slug, tmp_path):
    first, second = (report.run([slug], out_dir=tmp_path / name, progress=False)[0].path for name in "ab")
    assert first.read_bytes() == second.read_bytes()
