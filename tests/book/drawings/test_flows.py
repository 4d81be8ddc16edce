"""Flows: bands are as wide as their parts, the parts add up to the whole, and other models and systems are drawn."""

import re
from itertools import pairwise

import pytest
from looks import parsed, svg

import trnmodel as tm
from trnbook.drawings import flows
from trnbook.drawings.amounts import wide
from trnbook.drawings.svg import WIDTH

TP64 = tm.Mapping(tp=64)


def energy(model="llama-3.3-70b", system="trn2.48xlarge", mapping=TP64, **ask):
    return tm.energy(tm.decode_step(model, system, mapping, **({"batch": 16, "context": 4352} | ask)))


def served():
    return tm.energy(tm.serve("llama-3.1-8b", tm.Request(4096, 512), "trn2.48xlarge", tm.Mapping(tp=8), max_batch=16))


ENERGIES = {"step": energy, "gpu": lambda: energy("llama-3.1-8b", "hgx-h100", tm.Mapping(tp=1)), "request": served}
COSTS = [("trn2.48xlarge", "hyperscaler"), ("trn3-nl72x2-pcie160", "neocloud"), ("hgx-h100", "neocloud")]
FP8 = {"precision": "fp8"}
MAPPINGS = {
    "dense": ("llama-3.3-70b", "trn2.48xlarge", TP64, {}),
    "latents": ("deepseek-v3", "trn2.48xlarge", TP64, FP8),
    "one rank": ("llama-3.1-8b", "hgx-h100", tm.Mapping(tp=1), {}),
    "too large": ("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=4), {}),
    "experts": ("deepseek-v3", "trn3-nl72x2-pcie160", tm.Mapping(tp=16, ep=16), FP8),
}


def draw(kind, name):
    if kind == "joule":
        return flows.where_a_joule_goes(ENERGIES[name]())
    if kind == "dollar":
        return flows.where_a_dollar_goes(tm.tco(name, owner=dict(COSTS)[name]))
    model, system, mapping, ask = MAPPINGS[name]
    return flows.where_a_byte_goes(model, system, mapping, **ask)


DRAWINGS = [("joule", name) for name in ENERGIES] + [("dollar", name) for name, _ in COSTS]
EVERY = DRAWINGS + [("byte", name) for name in MAPPINGS]


def rects(drawing, **where):
    """Boxes of a drawing, as numbers, whose attributes are those that are asked for."""
    found = [
        {name: float(one.get(name)) for name in ("x", "y", "width", "height")} | {"look": one.get("class")}
        for one in parsed(drawing.marks).iter("rect")
    ]
    return [one for one in found if all(one[name] == value for name, value in where.items())]


def ends(drawing):
    """Heights of the last parts of a flow, over that of the whole."""
    return [one["height"] / flows.TALL for one in rects(drawing, x=flows.LAST, width=flows.THICK)]


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_drawings_are_well_formed_and_texts_stay_apart_on_the_canvas(kind, name):
    drawing = draw(kind, name)
    root = svg(drawing)
    assert len(drawing.caption.split()) <= 10
    assert drawing.alt
    assert drawing.note.endswith(".")
    lines = {}
    texts = list(root.iter("text"))
    assert len(texts) <= 30
    for one in texts:
        size, x, y = (float(one.get(name)) for name in ("font-size", "x", "y"))
        assert size >= 11
        assert one.get("text-anchor") == "start"
        assert x + 0.9 * wide(one.text, size) <= WIDTH, one.text
        assert 0 < y < drawing.height
        lines.setdefault(y, []).append((x, x + 0.9 * wide(one.text, size), one.text))
    for row in lines.values():
        row.sort()
        assert all(one[1] <= other[0] for one, other in pairwise(row)), row


@pytest.mark.parametrize("name", ENERGIES)
def test_a_joule_is_its_parts(name):
    result = ENERGIES[name]()
    shares = ends(flows.where_a_joule_goes(result))
    assert sum(shares) == pytest.approx(1, abs=2e-3)
    lost = 1 - float(result.server_j_per_token / result.facility_j_per_token)
    assert shares[-1] == pytest.approx(lost, abs=1e-3)
    chip = float(result.chip_j_per_token / result.facility_j_per_token)
    assert sum(shares[:3]) == pytest.approx(chip, abs=1e-3)


def test_the_parts_of_a_chip_are_those_of_its_watts():
    result = energy()
    shares = ends(flows.where_a_joule_goes(result))
    for share, name in zip(shares, ("compute_w", "hbm_w", "idle_w"), strict=False):
        assert share == pytest.approx(float(getattr(result, name) / result.facility_w), abs=1e-3)


@pytest.mark.parametrize(("system", "owner"), COSTS)
def test_a_dollar_is_its_parts(system, owner):
    cost = tm.tco(system, owner=owner)
    drawing = flows.where_a_dollar_goes(cost)
    shares = ends(drawing)
    assert sum(shares) == pytest.approx(1, abs=2e-3)
    parts = cost.by_part().set_index("part").share
    assert shares[-1] == pytest.approx(parts.energy, abs=1e-3)
    assert shares[-2] == pytest.approx(parts.operations, abs=1e-3)
    capital = shares[-3]
    assert 0 < capital < 0.4
    rest = sum(shares[:-3])
    assert rest + capital == pytest.approx(parts.server + parts.network + parts.site, abs=2e-3)
    assert ("server as sold" in drawing.alt) == (system == "hgx-h100")
    assert ("rent of the building" in drawing.alt) == (owner == "neocloud")


@pytest.mark.parametrize(("kind", "name"), DRAWINGS)
def test_bands_are_as_wide_as_what_they_join(kind, name):
    drawing = draw(kind, name)
    paths = parsed(drawing.marks).iter("path")
    found = []
    for one in paths:
        start, *_ = (float(x) for x in re.findall(r"M[\d.]+,([\d.]+)", one.get("d")))
        low = float(re.findall(r"([\d.]+)Z", one.get("d"))[0])
        if re.search(rf" {flows.LAST:.1f},", one.get("d")):
            found.append((low - start) / flows.TALL)
    assert sorted(found) == pytest.approx(sorted(ends(drawing)), abs=2e-3)


@pytest.mark.parametrize("name", MAPPINGS)
def test_bytes_of_all_ranks_are_in_proportion(name):
    model, system, mapping, ask = MAPPINGS[name]
    drawing = draw("byte", name)
    fit = tm.memory_fit(model, system, mapping, batch=16, context=4608, **ask)
    ranks = float(mapping.ranks)
    bars = {}
    for one in rects(drawing, height=flows.BAR):
        bars.setdefault(one["y"], []).append(one)
    rows = [sum(one["width"] for one in bars[y]) for y in sorted(bars)]
    assert rows[1] / rows[0] == pytest.approx(float(fit.cache_bytes / fit.weight_bytes), rel=5e-3)
    once = tm.model(model).weight_bytes(ask.get("precision", "bf16"))
    first = bars[min(bars)][0]["width"] / rows[0]
    assert first == pytest.approx(min(once / float(fit.weight_bytes) / ranks, 1), abs=2e-3)
    assert rows[2] == pytest.approx(WIDTH - 2 * flows.INSET, abs=0.5)
    weights = bars[max(bars)][0]["width"] / rows[2]
    assert weights == pytest.approx(float(fit.weight_bytes / max(fit.capacity_bytes, fit.total_bytes)), abs=1e-3)


def test_ranks_that_hold_the_same_latents_have_one_colour():
    alike = flows.where_a_byte_goes("deepseek-v3", precision="fp8")
    assert {one["look"] for one in rects(alike, height=24)} == {"box-b"}
    heads = [one["look"] for one in rects(flows.where_a_byte_goes(), height=24)]
    assert len(heads) == 64
    assert all(len(set(heads[i : i + 8])) == 1 for i in range(0, 64, 8))
    assert all(heads[i - 1] != heads[i] for i in range(8, 64, 8))


def test_several_points_are_refused():
    with pytest.raises(ValueError, match="one point"):
        flows.where_a_joule_goes(energy(batch=[1, 2]))
