"""Under its headline a chapter names every estimate of ours (confidence D) that the numbers there rest on."""

import ast
import base64
import io
import re

import nbformat
import pandas as pd
import pytest

import trnmodel as tm
from trnbook import report
from trnmodel.catalog import load

pytestmark = pytest.mark.chapters
AWS, TORUS = "trn3-nl72x2-aws-lanes", "trn3-nl32x2-torus/scaleup_bytes_per_s_per_dir"
WAITS = ["trainium3/hop_s/project", "trn3-switched/switch_s/project"]
# Facts of confidence D, or stacks whose constants are, that the headline of each chapter reads with its defaults.
NAMED = {
    "accuracy": [],
    "add-your-own": ["vllm-neuron-2026"],
    "data": [],
    "beside-gpus": [],
    "bring-your-own": [],
    "chip-roofline": [],
    "claims": [],
    "contradictions": [],
    "cost": ["vllm-neuron-2026"],
    "decode-step": ["vllm-neuron-2026"],
    "goodput": [
        f"borrowed/{name}/project"
        for name in (
            *("interruptions_per_chip_s", "repaired_share", "lane_failures_per_s", "cable_failures_per_s"),
            "switch_failures_per_s",
            *("restart_s", "swap_s", "repair_s", "checkpoint_bytes_per_s", "exposed_share"),
        )
    ],
    "how-sure": [],
    "memory": [],
    "memory-fit": ["vllm-neuron-2026"],
    "metrics": ["vllm-neuron-2026"],
    "model-needs": [],
    "neuroncore": ["stack-nki", "stack-torch-compile-beta2"],
    "power": [
        *("trainium3/tdp_w/project", "neuron-power/idle_share/project", "neuron-power/host_w_per_chip/project"),
        *("neuron-power/compute_activity/project", "neuron-power/hbm_activity/project", "vllm-neuron-2026"),
    ],
    "rack": [f"{AWS}/pcb_switches_per_tray/project", f"{AWS}/switches_per_plane/project"],
    "scale-out": [],
    "serving": ["vllm-neuron-2026"],
    "software": [],
    "switch-tray": WAITS,
    "torus-or-switch": [f"{TORUS}:instance/project", f"{TORUS}:ultraserver/project"],
    "training": ["optimum-neuron-training"],
    "trainium4": [
        *("trainium4-roadmap/tdp_w/project", "trainium4-roadmap/scaleup_bytes_per_s_per_dir/project"),
        "neuron-roadmap",
    ],
    "which-system": ["vllm-neuron-2026"],
    "workbench": ["vllm-neuron-2026"],
}
# Estimates of a chapter's chips and systems that its headline does not read: power, host, storage, banks and FP8
# nowhere, the sum of links where lanes are counted, stacks where none runs or they are named, a rate inside a chip, and
# what a collective takes that a host launches.
NOWHERE = """busy_core_share collective_launch_s collective_pass_bytes_per_s[1] collective_pass_bytes_per_s[2]
    cpus_per_cpu_tray default_stack encoder_stack hand_tuned_stack hbm_bank_cores intra_chip_bytes_per_s
    nvme_bytes peak_flop_per_s[fp8] tdp_w training_stack hand_tuned_training_stack"""
LATENCY, LINKS = "hop_s switch_s", "scaleup_bytes_per_s_per_dir scaleup_bytes_per_s_per_dir[instance]"
UNREAD = {
    "accuracy": "",
    "add-your-own": LINKS,
    "data": "",
    "bring-your-own": "",
    "beside-gpus": f"{LATENCY} {LINKS}",
    "chip-roofline": f"{LATENCY} {LINKS}",
    "claims": "",
    "contradictions": "",
    "cost": f"{LATENCY} {LINKS} scaleup_bytes_per_s_per_dir[ultraserver]",
    "decode-step": LINKS,
    "goodput": f"{LATENCY} {LINKS}",
    "how-sure": "",
    "memory": f"{LATENCY} {LINKS}",
    "memory-fit": LINKS,
    "metrics": LINKS,
    "model-needs": "",
    "neuroncore": LINKS,
    "power": f"{LATENCY} {LINKS}",
    "rack": f"{LATENCY} {LINKS}",
    "scale-out": f"{LATENCY} {LINKS}",
    "serving": LINKS,
    "software": f"{LATENCY} {LINKS} scaleup_bytes_per_s_per_dir[ultraserver]",
    "switch-tray": LINKS,
    "torus-or-switch": f"{LATENCY} {LINKS}",
    "training": f"{LATENCY} {LINKS}",
    "trainium4": f"{LATENCY} {LINKS}",
    "which-system": "",
    "workbench": LINKS,
}


def headline(root, slug):
    """The first text that a chapter prints, and the captions of its cell."""
    for cell in nbformat.read(root / "notebooks" / f"{slug}.ipynb", 4).cells:
        for output in cell.get("outputs", ()):
            if "text/markdown" in output.get("data", {}):
                return "".join(output.data["text/markdown"])
    raise AssertionError(f"{slug} prints no headline")


def test_every_chapter_is_listed(slug):
    assert slug in NAMED
    assert slug in UNREAD


def test_headline_names_what_it_rests_on(root, slug):
    said, facts = headline(root, slug), load.facts_rows()
    for name in NAMED[slug]:
        assert "own estimate" in said, f"the headline of {slug} says of nothing that it is an estimate of ours"
        if name in facts:
            row = facts[name]
            assert row.confidence == "D"
            assert f"{row.value_printed} {row.unit_printed}".removesuffix(" 1") in said
            assert load.quantities()[row.quantity].description.lower() in said.lower()
        else:
            assert load.entities()[name].kind in ("stack", "trainer")
            assert name in said


def test_every_estimate_of_the_defaults_is_named_or_not_read(slug):
    """A new D row of a chapter's chip or system fails here until somebody says whether the headline reads it."""
    defaults = {name: given.default for name, given in report.parameters(slug).items()}
    systems = [tm.system(defaults[name]) for name in ("system", "torus_system") if defaults.get(name)]
    chips = [tm.chip(defaults["chip"])] if "chip" in defaults else []
    unread = {*NOWHERE.split(), *UNREAD[slug].split()}
    for spec in [*systems, *chips, *(found.chip for found in systems)]:
        for label in spec.estimates - unread:
            assert set(spec.sources[label]) & set(NAMED[slug]), f"{spec.id}: {label}"


@pytest.mark.parametrize("name", sorted({name for names in NAMED.values() for name in names}))
def test_what_is_named_is_in_force(name):
    """A ruling that sets an estimate aside fails here, so that the headline does not go on naming it."""
    facts = load.facts_rows()
    if name in facts:
        row = facts[name]
        assert load.fact_in_force(row.entity, row.quantity, row.qualifier)[0].id == name


def outputs(root, slug):
    """Everything that a committed chapter shows, as text."""
    cells = nbformat.read(root / "notebooks" / f"{slug}.ipynb", 4).cells
    return "\n".join(str(output.get("data", "")) for cell in cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("chapter", ["rack", "scale-out", "switch-tray", "torus-or-switch"])
def test_lane_map_of_aws_is_shown(root, chapter):
    """Where all-to-all, switches or exchanges of an NL72x2 stand, those of AWS's own page stand too."""
    assert tm.system(AWS).name in outputs(root, chapter)


def test_no_default_stands_in_for_a_figure(root):
    """`.get(name, 0)` printed 0 % for a system that a table had left out."""
    for path in (root / "notebooks" / "py").glob("*.py"):
        found = re.findall(r"\.get\([^()]*, 0\)(?! >)", path.read_text())
        assert not found, f"{path.name}: {found}"


def test_cases_of_the_claim_sum_to_what_is_printed(root):
    """4 rules of growth, 2 contexts, 3 speeds and 3 formats for each kind of software."""
    html = outputs(root, "switch-tray")
    data = re.search(r'download=\\?"verdicts\.csv\\?" href=\\?"data:text/csv;base64,([\w+/=]+)', html)[1]
    table = pd.read_csv(io.BytesIO(base64.b64decode(data))).set_index("software")
    verdicts = table[["agrees", "earlier", "later", "no rate"]]
    assert (verdicts.sum(axis=1) == table.cases).all()
    assert (table.drop("all").sum() == table.loc["all"]).all()
    assert table.drop("all").cases.tolist() == [4 * 2 * 3 * 3] * 3


def test_steps_on_ranks_that_are_chips_say_that_this_is_announced(root):
    """They stand below the headline, which rests on what the SDK allows."""
    said = (root / "notebooks" / "py" / "switch-tray.py").read_text()
    assert "has announced and its software does not allow yet" in said
    assert "LNC 8" not in headline(root, "switch-tray")


def test_many_estimates_are_folded_below_their_number_and_one_is_a_sentence():
    from trnbook.shared.ledger import cited, rests_on

    one, both = rests_on(WAITS[0]), rests_on(*WAITS, "ideal", "vllm-neuron-2026")
    assert "1-2 us" in one
    assert "\n" not in one
    assert rests_on("ideal") == rests_on() == ""
    head, *items, end = both.split("\n\n")
    assert head.startswith("<details><summary>")
    assert head.endswith("</summary>")
    assert end == "</details>"
    assert len(items) == 3
    assert "1-2 us" in items[0]
    source = load.sources()["trainium3-deep-dive"]
    assert cited("trainium3-deep-dive") == f"[{source.title}]({source.url})"


def test_no_prose_has_a_line_number(root):
    """`L314` is for tables; a page would print it as "line 314"."""
    for path in (root / "notebooks" / "py").glob("*.py"):
        prose = [line for line in path.read_text().splitlines() if line.startswith("# ") or 'f"' in line]
        assert not [line for line in prose if re.search(r"(?<![\w-])L\d{2,}\b", line)], path.name


COUNT = re.compile(r"\b\d[\d,]*\s+(?:chips|GPUs|servers|racks|jobs|runs|configurations)\b")


def test_no_sentence_of_a_code_cell_types_a_count(root, slug):
    """A count in a computed sentence is read from its table; a worked example ("By hand") fixes its inputs."""
    tree = ast.parse((root / "notebooks" / "py" / f"{slug}.py").read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert [text for text in texts if COUNT.search(text) and "By hand" not in text] == []
