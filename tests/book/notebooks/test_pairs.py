"""Each chapter with other parameters: it answers, or with pairs of odd ones refuses in a line, and says nothing odd.

The cells run in this process, without a kernel. Of each chapter's values every pair stands in at least one case.
"""

import ast
import itertools
import json
import os

import pytest
from typer.testing import CliRunner

from trnbook.report import InputError, chapter, check_parameters, notebooks, parameters
from trnmodel.arguments import UnanswerableError
from trnmodel.cli import app as cli
from trnmodel.models.shipped import MODELS, catalog

OWN = "an own config.json"
OTHER = {
    "add-your-own": {
        "model": "llama-3.1-8b",
        "system": "trn3-nl32x2-pcie160",
        "tokens_per_s_per_user": 100.0,
        "input_tokens": 1024,
        "output_tokens": 128,
    },
    "bring-your-own": {
        "system": "trn2-ultraserver",
        "tp": 32,
        "precision": "fp8",
        "input_tokens": 1024,
        "output_tokens": 128,
        "tokens_per_s_per_user": 20.0,
        "users": 50.0,
    },
    "data": {"entity": "trainium2", "quantity": "hbm_bytes", "explained": "deepseek-v3"},
    "trainium4": {
        "system": "trn3-nl32x2-pcie160",
        "systems": ["trn4-nvlink-roadmap"],
        "model": "llama-3.1-8b",
        "tokens_per_s_per_user": 80.0,
        "experts_model": "qwen3-30b-a3b",
        "experts_tokens_per_s_per_user": 30.0,
        "input_tokens": 1024,
        "output_tokens": 128,
    },
    "accuracy": {"question": "kernel", "on_chip": "Trainium3"},
    "beside-gpus": {
        "system": "trn1.32xlarge",
        "systems": ["trn3pd98.3xlarge", "hgx-a100", "tpu-v5e-pod"],
        "model": "llama-3.1-8b",
        "experts_model": "mixtral-8x7b-v0.1",
        "input_tokens": 512,
        "output_tokens": 64,
        "tokens_per_s_per_user": 1000.0,
        "experts_tokens_per_s_per_user": 40.0,
    },
    "chip-roofline": {"chip": "trainium2", "comparators": ["a100"], "intensity_flop_per_byte": 40.0},
    "claims": {"topic": "memory"},
    "contradictions": {"entity": "trainium2", "quantity": "tdp_w"},
    "cost": {
        "model": "llama-3.1-8b",
        "experts_model": "qwen3-30b-a3b",
        "tokens_per_s_per_user": 40.0,
        "experts_tokens_per_s_per_user": 30.0,
        "input_tokens": 1024,
        "output_tokens": 256,
        "system": "trn3-nl72x2-pcie160",
        "rival": "hgx-h100",
        "systems": ["trn1.32xlarge", "tpu-v6e-pod"],
        "pricing": "on-demand",
        "region": "us-east-1",
        "owner": "neocloud",
        "prices": ["rent[trn3-nl72x2-pcie160]=3", "chip_usd[trainium3]=5000:8000:12000", "rate_per_year=0.1"],
    },
    "decode-step": {
        "model": "deepseek-v3",
        "system": "trn3-nl72x2-pcie160",
        "precision": "mxfp8",
        "tp": 2,
        "ep": 64,
        "batch": 512,
    },
    "goodput": {
        "system": "trn3-nl32x2-torus",
        "systems": ["trn3-nl72x2-aws-lanes", "hgx-h200"],
        "chips": 1000,
        "model": "deepseek-v3",
        "swap": "drain",
        "fleet": "rsc-2-a100",
    },
    "metrics": {
        "model": "llama-3.1-8b",
        "system": "trn1.32xlarge",
        "precision": "bf16",
        "tp": 8,
        "slots": 2,
        "max_context": 1024,
        "input_tokens": 512,
        "output_tokens": 4,
        "sent_s": [0.0],
        "most_ttft_s": 0.01,
    },
    "neuroncore": {"chip": "trainium3", "m": 1590, "n": 4096, "k": 512, "dtype": "mxfp8"},
    "power": {
        "model": "llama-3.1-8b",
        "experts_model": "qwen3-30b-a3b",
        "system": "trn2-ultraserver",
        "systems": ["hgx-h100"],
        "input_tokens": 2048,
        "tokens_per_s_per_user": [40.0],
        "assume": ["trainium2.tdp_w=450"],
    },
    "scale-out": {"system": "trn2-ultraserver", "models": ["llama-3.1-8b"], "cluster_chips": 4096},
    "torus-or-switch": {"system": "trn3-nl72x2-pcie160", "model": "kimi-k2-instruct", "message_bytes": 65536.0},
    "training": {
        "model": "qwen3-30b-a3b",
        "tokens": 1e11,
        "seq": 4096,
        "global_batch": 512,
        "system": "trn2-ultraserver",
        "systems": ["hgx-h200", "trn1.32xlarge"],
        "chips": 256,
        "owner": "neocloud",
        "pricing": "on-demand",
    },
    "switch-tray": {"system": "trn3-nl32x2-pcie160", "model": "kimi-k2-instruct", "tokens_per_chip": 32.0},
    "serving": {
        "model": "deepseek-v3",
        "system": "trn3-nl72x2-pcie160",
        "precision": "mxfp8",
        "tokens_per_s_per_user": 20.0,
    },
    "which-system": {
        "model": "llama-3.1-8b",
        "tokens_per_s_per_user": 100.0,
        "input_tokens": 1024,
        "output_tokens": 256,
        "users": 500,
        "pricing": "on-demand",
        "fit_model": "llama-3.3-70b",
        "fit_system": "trn1.32xlarge",
        "fit_context": 8192,
        "fit_users": 16,
    },
    "software": {
        "system": "trn2-ultraserver",
        "rivals": ["hgx-h100"],
        "experts_model": "qwen3-30b-a3b",
        "experts_tokens_per_s_per_user": 200.0,
        "model": "llama-3.1-8b",
        "tokens_per_s_per_user": 1e5,
        "input_tokens": 512,
        "output_tokens": 256,
    },
    "workbench": {
        "model": "deepseek-v3",
        "system": "trn3-nl72x2-pcie160",
        "precision": "mxfp8",
        "tokens_per_s_per_user": 20.0,
        "input_tokens": 2048,
        "output_tokens": 256,
    },
    "model-needs": {
        "model": "llama-3.1-8b",
        "precision": "bf16",
        "input_tokens": 512,
        "output_tokens": 128,
        "batch": 8,
    },
    "index": {
        "models": ["qwen3-8b", "llama-3.1-405b", "qwen3-30b-a3b"],
        "tokens_per_s_per_user": [5.0, 1e5, 100.0],
        "input_tokens": 512,
        "output_tokens": 64,
        "desk_models": ["qwen3-8b"],
        "desk_tokens_per_s_per_user": [20.0, 60.0],
        "desk_input_tokens": [512],
        "desk_output_tokens": [64],
    },
    "memory-fit": {
        "model": "deepseek-v3",
        "system": "trn3-nl32x2-pcie160",
        "precision": "mxfp8",
        "tp": 64,
        "lnc": 1,
        "batch": 64,
        "context": 4096,
    },
    "rack": {"system": "trn3-nl32x2-torus", "compared_system": "inf2.48xlarge"},
    "how-sure": {
        "models": ["llama-3.1-8b"],
        "tokens_per_s_per_user": [30.0],
        "systems": ["trn1.32xlarge", "hgx-h100"],
        "input_tokens": 1024,
        "output_tokens": 256,
    },
    "memory": {
        "chip": "trainium2",
        "model": "llama-3.1-70b",
        "precision": "fp8",
        "row_bytes": 4096.0,
        "storage_bytes_per_s": 8e9,
    },
}
FAMILIES = ["llama-3.1-8b", "deepseek-v3", "gpt-oss-120b", OWN]
SYSTEMS = ["trn1.32xlarge", "trn2-ultraserver", "trn3-nl32x2-torus", "trn3-nl72x2-pcie160", "inf2.48xlarge"]
LENGTHS = {"input_tokens": [128, 8192, 100_000], "output_tokens": [1, 1024]}
CHIPS = ["trainium1", "trainium2", "trainium3"]
VALUES = {
    "add-your-own": {
        "model": ["llama-3.1-8b", OWN],
        "system": ["trn1.32xlarge", "hgx-h100"],
        "tokens_per_s_per_user": [1e6],
    },
    "bring-your-own": {
        "file": ["example", "no-such.json"],
        "model": [OWN],
        "tokens_per_s_per_user": [2.0],
    },
    "data": {"entity": ["trainium9", "h100"], "quantity": ["hbm_bytes", "x"], "explained": ["deepseek-v3", "gpt"]},
    "trainium4": {
        "systems": [["trn4-nvlink-roadmap"], ["hgx-b200"]],
        "model": [OWN],
        "tokens_per_s_per_user": [1.0, 1e5],
    },
    "accuracy": {"question": ["first token", "power of a GPU"], "on_chip": ["all chips", "Trainium3", "GPUs and TPUs"]},
    "software": {"input_tokens": [512, 65_536], "model": ["llama-3.1-8b", OWN], "experts_model": [OWN]},
    "beside-gpus": {"model": ["llama-3.1-8b", OWN], "system": ["trn2.48xlarge", "trn3-nl32x2-torus"]},
    "chip-roofline": {"chip": CHIPS, "intensity_flop_per_byte": [1.0, 1e5], "comparators": [["h200"], ["mi355x"]]},
    "claims": {"topic": ["rack", "roadmap"]},
    "contradictions": {"entity": ["trainium3", "aws-air"], "quantity": ["hbm_bytes_per_s", "annual_pue"]},
    "cost": {
        "model": ["llama-3.1-8b", OWN],
        "experts_model": [OWN],
        "system": ["trn2-ultraserver", "hgx-h200", "trn1.32xlarge"],
        "rival": ["trn2.48xlarge", "mi355x-8"],
        "systems": [["hgx-h200"]],
        "tokens_per_s_per_user": [20.0, 1e6],
        "input_tokens": [65_536],
        "pricing": ["market-3y"],
    },
    "decode-step": {
        "model": FAMILIES,
        "system": SYSTEMS,
        "tp": [1, 32],
        "precision": ["bf16", "mxfp8"],
        "batch": [1, 64],
    }
    | LENGTHS,
    "goodput": {
        "system": ["trn3-nl32x2-torus", "trn3-nl32x2-pcie160", "inf2.48xlarge"],
        "systems": [["hgx-h200"]],
        "chips": [1, 65_536],
        "model": [OWN],
        "swap": ["drain"],
        "fleet": ["llama-3-h100"],
    },
    "index": {
        "models": [[OWN], ["llama-3.1-405b", OWN]],
        "tokens_per_s_per_user": [[1e6], [20.0], [20.0, 1.0]],
        "input_tokens": [100_000],
        "desk_models": [["qwen3-8b"], [OWN]],
        "desk_tokens_per_s_per_user": [[30.0]],
        "desk_input_tokens": [[512], [512, 64]],
        "desk_output_tokens": [[64]],
    },
    "how-sure": {
        "models": [["llama-3.1-8b"], [OWN]],
        "tokens_per_s_per_user": [[20.0], [1e4]],
        "systems": [["trn1.32xlarge"], ["hgx-h100", "trn3-nl72x2-pcie160"]],
        "input_tokens": [128, 65_536],
    },
    "memory": {"chip": CHIPS, "model": FAMILIES, "precision": ["bf16", "fp8"], "row_bytes": [2.0, 65536.0]},
    "memory-fit": {
        "model": FAMILIES,
        "system": SYSTEMS,
        "precision": ["bf16", "fp8"],
        "tp": [1, 64],
        "context": [512, 131_072],
        "batch": [1, 256],
    },
    "metrics": {"model": ["llama-3.1-8b", OWN], "sent_s": [[0.0], [5.0, 0.0, 0.0, 9.0]], "output_tokens": [2, 300]},
    "model-needs": {"model": FAMILIES, "precision": ["bf16", "mxfp8"], "batch": [1, 512]} | LENGTHS,
    "neuroncore": {"chip": ["trainium1", "trainium3"], "m": [1, 8192], "k": [1, 128], "dtype": ["bf16", "fp32"]},
    "power": {
        "model": ["llama-3.1-8b", OWN],
        "system": ["trn1.32xlarge", "hgx-h100"],
        "tokens_per_s_per_user": [[1e4]],
    },
    "rack": {
        "system": ["trn2-ultraserver", "trn3-nl32x2-pcie160"],
        "compared_system": ["trn1.32xlarge", "trn2.48xlarge"],
    },
    "scale-out": {
        "system": SYSTEMS,
        "models": [["llama-3.1-8b"], ["deepseek-v3", OWN]],
        "precision": ["bf16", "fp8"],
        "cluster_chips": [128, 100_000],
    },
    "serving": {
        "model": [OWN],
        "system": ["trn1.32xlarge", "trn3-nl72x2-pcie160", "hgx-b200"],
        "tokens_per_s_per_user": [10.0],
        "input_tokens": [8192, 128],
        "output_tokens": [1024, 1],
    },
    "switch-tray": {"system": ["trn3-nl32x2-pcie160"], "model": [OWN], "tokens_per_chip": [1.0]},
    "workbench": {"model": [OWN], "system": ["trn1.32xlarge", "hgx-b200"], "output_tokens": [1]},
    "which-system": {
        "model": [OWN],
        "tokens_per_s_per_user": [1.0, 1e5],
        "users": [1],
        "fit_model": [OWN, "deepseek-v3"],
        "fit_system": ["inf2.xlarge", "hgx-h100"],
    },
    "training": {
        "model": ["llama-3.1-8b", OWN],
        "system": ["hgx-b200", "trn3-nl32x2-torus", "inf2.48xlarge"],
        "chips": [576, 8192],
        "precision": ["mxfp8", "fp8"],
        "tokens": [1.0, 1e12],
    },
    "torus-or-switch": {
        "system": ["trn3-nl72x2-pcie160", "trn3-nl32x2-ualink"],
        "torus_system": ["trn1.32xlarge", "trn2-ultraserver"],
        "model": [OWN, "mixtral-8x7b-v0.1"],
        "message_bytes": [1024.0, 1e9],
    },
}


def cover(values):
    """Cases in which each pair of values of two parameters stands once or more, by greed."""
    names = list(values)
    cases = [dict(zip(names, case, strict=True)) for case in itertools.product(*values.values())]
    left = {pair for case in cases for pair in pairs(case)}
    if len(names) < 2:
        yield from cases
    while left:
        best = max(cases, key=lambda case: len(left & pairs(case)))
        left -= pairs(best)
        yield best


def pairs(case):
    return {repr(pair) for pair in itertools.combinations(case.items(), 2)}


CASES = [(slug, case) for slug in notebooks() for case in cover(VALUES.get(slug, {}))]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A folder of our own with the configuration of a mixture of experts."""
    folder = tmp_path_factory.mktemp("models") / "our-experts"
    folder.mkdir()
    (folder / "config.json").write_bytes((MODELS / catalog()["qwen3-30b-a3b"].file).read_bytes())
    return os.fspath(folder)


def results(slug, given):
    """What the cells of a chapter end with, run here."""
    scope = {"__name__": "chapter"}
    for cell in chapter.read(slug).cells:
        if cell.cell_type == "code" and (body := ast.parse(cell.source).body):
            last = body.pop() if isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), slug, "exec"), scope)
            if last is not None:
                yield eval(compile(ast.Expression(last.value), slug, "eval"), scope)
            if "parameters" in cell.metadata.get("tags", []):
                scope |= given


def text(result):
    """The sentence of a result: a text, or the caption and title of a chart or table."""
    if hasattr(result, "caption"):
        return result.caption
    if hasattr(result, "to_dict") and hasattr(result, "usermeta"):
        return result.to_dict()["description"]
    return result.data if isinstance(getattr(result, "data", None), str) else ""


def test_there_are_few_cases_and_no_chapter_is_missing():
    assert len(CASES) <= 190
    assert {slug for slug, _ in CASES} == set(notebooks())


@pytest.mark.few("chip-roofline", "cost", "decode-step", "index", "memory-fit", "rack", "serving", "training")
def test_a_chapter_answers_with_other_parameters(slug, oddities):
    """And what it ends with can be shown."""
    declared = parameters(slug)
    assert all(declared[name].default != value for name, value in OTHER[slug].items())
    found = list(results(slug, check_parameters(slug, OTHER[slug])))
    assert all(result._repr_html_() for result in found if hasattr(result, "caption"))
    said = [text(result) for result in found]
    assert sum(map(bool, said)) > 4
    assert oddities(said) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{slug}-{n}" for n, (slug, _) in enumerate(CASES)])
def test_a_chapter_answers_or_refuses_and_says_nothing_odd(name, case, own, oddities):
    def named(value):
        return [named(item) for item in value] if isinstance(value, list) else own if value == OWN else value

    said = []
    try:
        given = check_parameters(name, {key: named(value) for key, value in case.items()})
        said.extend(text(result) for result in results(name, given))
    except (InputError, UnanswerableError) as refusal:
        said.append(str(refusal))
        assert "\n" not in said[-1]
    assert oddities(said) == []
    assert not [sentence for sentence in said if own.rpartition("/")[0] in sentence], "a model goes by its name"


@pytest.mark.slow
def test_a_chapter_runs_by_its_command_with_other_parameters(slug, tmp_path):
    """In a kernel, with each parameter as it is typed; the report says what it was made with."""
    typed = {
        name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in OTHER[slug].items()
    }
    words = [word for name, value in typed.items() for word in ("-p", f"{name}={value}")]
    done = CliRunner().invoke(cli.app, ["run", slug, *words, "--no-page", "-o", os.fspath(tmp_path)])
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / f"{slug}.ipynb").read_bytes())
    assert report["metadata"]["trnmodel"]["parameters"] == OTHER[slug]
    assert not [out for cell in report["cells"] for out in cell.get("outputs", ()) if out["output_type"] == "error"]
