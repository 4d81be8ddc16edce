"""Three kinds of software: their order, their bands, the bars between them, one answer wherever it is asked."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import load, stacks
from trnmodel.catalog.stacks import KINDS, VALUES, efficiencies
from trnmodel.fabric.collectives import SPOKEN
from trnmodel.planner import deployments, software
from trnmodel.result import alike, tidy

FABRIC = Path(software.__file__).parents[1] / "fabric"
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
LLAMA, TP16 = "llama-3.1-70b", tm.Mapping(tp=16)
ASK = {"batch": 32, "context": 4096, "precision": "fp8"}


@pytest.fixture(scope="module")
def experts():
    return software.answers("deepseek-v3")


@pytest.fixture(scope="module")
def dense():
    return software.answers(LLAMA, software.DENSE)


def by_kind(table):
    keys = ["wanted_tokens_per_s_per_user", "system"]
    return table.set_index([*keys, "software"]).tokens_per_s_per_chip.unstack()


@pytest.mark.parametrize("which", ["experts", "dense"])
def test_public_hand_tuned_ideal_in_that_order(which, request):
    table = request.getfixturevalue(which)
    wide = by_kind(table)
    assert len(wide) == len(set(table.system)) * 2
    assert (wide.public <= wide["hand-tuned"]).all()
    assert (wide["hand-tuned"] <= wide.ideal).all()
    assert (wide.loc[20.0] >= wide.loc[50.0]).all(axis=None)  # faster for a user is never more a chip
    inside = table.tokens_per_s_per_chip.between(table.tokens_per_s_per_chip_low, table.tokens_per_s_per_chip_high)
    assert inside.all()
    hand = table[table.software == "hand-tuned"]
    assert (hand.basis == "extrapolated").all()
    assert hand.basis_reason.str.contains("parts that were measured elsewhere").all()
    assert (hand.tokens_per_s_per_chip_low < hand.tokens_per_s_per_chip).all()
    assert table.reason.str.len().min() > 10


def test_the_gap_of_experts_is_the_softwares(experts):
    """500-fold between ideal and public at 50 tokens/s; hand-tuned lies within 10 of the ideal, far from the public."""
    wide = by_kind(experts).loc[50.0]
    assert (wide.ideal / wide["hand-tuned"] < 10).all()
    assert (wide["hand-tuned"] / wide.public > 5).all()


def test_hand_tuned_is_plausible_beside_the_published_run(experts):
    """1,850 tokens/s a GPU at 21 a user on H800 (1.98 PFLOP/s of FP8, 3.35 TB/s): Trn3 has 1.3 to 1.5 of each."""
    at = experts[(experts.software == "hand-tuned") & (experts.wanted_tokens_per_s_per_user == 20)]
    ratio = at.tokens_per_s_per_chip / 1850
    assert ratio.between(1.0, 3.0).all()


def test_the_yield_is_that_of_the_frontier(dense):
    line = dense[(dense.system == "hgx-h200") & (dense.software == "public")].iloc[0]
    front = deployments.frontiers(LLAMA, ["hgx-h200"], software.CONTEXT, [line.precision])
    best = deployments.at_interactivity(front, [line.wanted_tokens_per_s_per_user]).iloc[0]
    assert best.tokens_per_s_per_chip == pytest.approx(line.tokens_per_s_per_chip)


def test_bars_add_up_and_each_is_one_step_of_another_stack():
    bars = software.waterfall(LLAMA, "trn3-nl32x2-pcie160", TP16, **ASK)
    for kind, word in KINDS.items():
        end = bars[bars.software == kind].end_s.iloc[-1]
        step = tm.decode_step(LLAMA, "trn3-nl32x2-pcie160", TP16, efficiencies=word, **ASK)
        assert end == pytest.approx(float(step.time_s), rel=1e-12)
    assert bars.end_s.iloc[:-1].tolist() == bars.start_s.iloc[1:].tolist()
    layers = bars[(bars.software == "hand-tuned") & (bars.mechanism == "layers")].iloc[0]
    assert layers.bar_s == pytest.approx(80 * (43e-6 + 116e-6) / 2)  # 80 layers of the row's middle
    assert layers.bar_s_low == pytest.approx(80 * 43e-6)
    assert (bars.mechanism != software.OTHER).all()


def test_every_value_of_a_stack_is_in_one_mechanism():
    listed = [name for names in software.PARTS.values() for name in names]
    assert sorted(listed) == sorted(VALUES)


def test_what_is_in_no_mechanism_takes_no_time_of_a_step():
    for chip in ("trainium3", "h200"):
        e, ideal = efficiencies(chip), efficiencies(chip, "ideal")
        other = replace(e, **{name: getattr(ideal, name) for name in software.PARTS[software.OTHER]})
        ask = {"system": tm.chip(chip), "mapping": tm.Mapping(tp=8), "batch": 4, "context": 4096}
        times = [tm.decode_step("mixtral-8x7b", efficiencies=one, **ask).time_s for one in (e, other)]
        assert times[0] == times[1]


def test_more_work_is_never_faster_on_the_scenario():
    batch, context = 2.0 ** np.arange(12)[:, None], 2.0 ** np.arange(7, 15)
    for system, e in (("trn3-nl32x2-pcie160", "hand-tuned"), ("gb200-nvl72", "hand-tuned")):
        ask = {"batch": batch, "context": context, "precision": "fp8", "efficiencies": e}
        time = tm.decode_step("deepseek-v3", system, tm.Mapping(tp=8, ep=8), **ask).time_s
        assert not (np.diff(time, axis=0) < 0).any()
        assert not (np.diff(time, axis=1) < 0).any()


def test_hand_tuned_is_a_word_for_every_chip_that_has_a_row():
    with_row = {chip for chip in load.chips() if load.chip(chip).hand_tuned_stack}
    assert {"trainium1", "trainium2", "trainium3", "h200", "gb200", "mi355x"} <= with_row
    for chip in with_row:
        e = efficiencies(chip, "hand-tuned")
        assert (e.kind, e.word) == ("hand-tuned", "hand-tuned")
        assert e.id.endswith("neuron") == (load.chip(chip).vendor == "AWS")
        assert all(low <= getattr(e, name) <= high for name, (low, high) in e.ranges.items())
    with pytest.raises(ValueError, match="tpu-v5e has no hand-tuned stack; give one, such as 'ideal', or add a row"):
        efficiencies("tpu-v5e", "hand-tuned")
    bare = replace(load.chip("h200"), hand_tuned_stack="")
    with pytest.raises(ValueError, match="efficiencies='hand-tuned': h200 has no hand-tuned stack"):
        tm.decode_step(LLAMA, bare, tm.Mapping(tp=8), efficiencies="hand-tuned", **ASK)


def test_a_changed_scenario_is_one_still_and_says_what_was_given():
    e = replace(efficiencies("trainium3", "hand-tuned"), layer_s=0.0)
    found = stacks.basis(e, tm.chip("trainium3"), 2, "decode")
    assert (e.kind, found.word) == ("hand-tuned", "extrapolated")
    assert "stack: given with the call (layer_s)" in found.reason


def test_three_kinds_do_not_mix_unasked():
    rows = [{"system": "a", "stack_kind": "hand-tuned"}, {"system": "b", "stack_kind": "public"}]
    with pytest.raises(ValueError, match="a: hand-tuned, b: public"):
        alike(tidy(rows))
    both = [{"system": s, "stack_kind": kind} for s in "ab" for kind in KINDS]
    assert len(alike(tidy(both))) == 6


def test_what_exchanges_take_from_a_stack_is_all_listed():
    """Stacks that send alike share their wires, so that a field which the fabric reads must be listed."""
    read = {name for path in FABRIC.glob("*.py") for name in re.findall(r"\be\.([a-z_0-9]+)", path.read_text())}
    assert read - {"shape", "id"} <= set(SPOKEN)
    shots = {f"{kind}_shot_{what}" for kind in ("one", "two") for what in ("s", "rate_share")}
    ratios = {f"{kind}_traffic_ratio" for kind in ("mesh", "rdh", "ring")}
    assert shots | ratios <= set(SPOKEN) <= set(VALUES)


def test_a_speed_that_nothing_reaches_says_so():
    table = software.answers(LLAMA, ["trn2.48xlarge"], [1e5])
    assert (table.tokens_per_s_per_chip == 0).all()
    assert table.reason.str.contains(r"at most \d+ tokens/s").all()
    assert table.tp.isna().all()


def test_chapters_six_and_ten_print_one_answer():
    """The table of the same download in both executed chapters, line by line."""
    found = {}
    for slug in ("switch-tray", "serving"):
        cells = json.loads((NOTEBOOKS / f"{slug}.ipynb").read_text())["cells"]
        (cell,) = (cell for cell in cells if 'download="three-experts"' in "".join(cell["source"]))
        (text,) = ("".join(out["data"]["text/plain"]) for out in cell["outputs"])
        found[slug] = text.splitlines()[1:]  # below the caption
    assert len(found["serving"]) == 1 + 3 * 3 * 2
    assert found["serving"] == found["switch-tray"]
