"""Drawings of a chip: their sizes are those of the spec, and in no frame is anything out of place."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from looks import Area, area, boxes, crosses, faults, frames, texts

import trnmodel as tm
from trnbook.drawings import chip as drawings
from trnbook.drawings.svg import Drawing, line, rect, text
from trnmodel.units import format_digits, format_quantity

CHIPS = ("trainium1", "inferentia2", "trainium2", "trainium3")
OF_A_CHIP = (
    drawings.neuroncore,
    drawings.product_by_tile,
    drawings.ways_to_hbm,
    drawings.memory_of_a_chip,
    drawings.roofline_idea,
)
STEPS = (
    ("llama-3.3-70b", "trn2.48xlarge", 4096),
    ("llama-3.3-70b", "trn2.48xlarge", 131072),
    ("deepseek-v3", "trn3-nl72x2-pcie160", 4096),
)


def words(drawing, frame=None):
    """All labels of a frame, of the first one where none is named."""
    shown = texts(drawing)
    return " | ".join(shown[next(iter(shown)) if frame is None else frame])


def size(where):
    return (where.right - where.left) * (where.bottom - where.top)


def printed(value, unit):
    return format_quantity(float(value), unit, 3)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("draw", OF_A_CHIP, ids=lambda draw: draw.__name__)
def test_nothing_is_out_of_place_on_any_chip(draw, chip):
    drawing = draw(chip)
    assert faults(drawing) == []
    assert tm.chip(chip).name in drawing.alt + drawing.caption + drawing.note + words(drawing)
    assert "nan" not in repr(texts(drawing)).lower().split()


@pytest.mark.parametrize("dtype", ["fp32", "fp8", "mxfp8"])
def test_nothing_is_out_of_place_in_another_dtype(dtype):
    assert faults(drawings.product_by_tile("trainium3", dtype)) == []
    assert faults(drawings.roofline_idea("trainium3", dtype)) == []


@pytest.mark.parametrize(("model", "system", "context"), STEPS)
def test_nothing_is_out_of_place_in_a_step(model, system, context):
    assert faults(drawings.decode_step_idea(model, system, context=context)) == []


@pytest.mark.parametrize("chip", CHIPS)
def test_a_core_has_the_sizes_of_its_spec(chip):
    it = tm.chip(chip)
    core, said = it.core, words(drawings.neuroncore(it))
    for value, unit in (
        (it.hbm_bytes, "B"),
        (it.hbm_bytes_per_s, "B/s"),
        (core.dma_bytes_per_s, "B/s"),
        (core.sbuf_bytes, "B"),
        (core.sbuf_partition_bytes, "B"),
        (core.psum_bytes, "B"),
        (core.tensor.clock_hz, "Hz"),
        (core.tensor.peak_flop_per_s["bf16"], "FLOP/s"),
    ):
        assert printed(value, unit) in said
    assert f"{core.sbuf_partitions:.0f} partitions" in said
    assert f"1 of {it.cores:.0f} on {it.name}" in said


def test_a_changed_spec_changes_the_drawing():
    it = tm.chip("trainium3")
    larger = replace(it, core=replace(it.core, sbuf_bytes=2 * it.core.sbuf_bytes))
    assert "32 MiB" in words(drawings.neuroncore(it))
    assert "64 MiB" in words(drawings.neuroncore(larger))


def test_tiles_have_the_shape_of_the_instruction():
    engine = tm.chip("trainium3").core.tensor
    shown = frames(drawings.product_by_tile("trainium3"))
    (stationary, _), (moving,) = boxes(shown["Stream"], "box-a"), boxes(shown["Stream"], "box-b")
    (bank,) = boxes(shown["Stream"], "box-c")
    across = stationary.right - stationary.left
    assert (moving.right - moving.left) / across == engine.max_moving_cols / engine.max_stationary_cols
    assert (stationary.bottom - stationary.top) / across == engine.array_rows / engine.array_cols
    assert bank.right - bank.left == moving.right - moving.left


def test_a_product_takes_the_cycles_of_its_tiles():
    said = words(drawings.product_by_tile("trainium2"), "Done")
    assert "4 instructions took 2,048 cycles" in said
    assert "16 instructions took 8,192 cycles" in words(drawings.product_by_tile("trainium2", "fp32"), "Done")
    assert "K = 2 × 512" in words(drawings.product_by_tile("trainium3", "mxfp8"))


def test_a_k_tile_adds_to_the_bank_and_an_n_tile_takes_another():
    shown = {label: boxes(marks, "box-c") for label, marks in frames(drawings.product_by_tile()).items()}
    assert shown["Stream"] == shown["Next K tile"] == shown["Evict"][:1]
    assert shown["Next N tile"][0].left == shown["Stream"][0].right
    assert len(shown["Done"]) == 2
    assert not shown["Load"]


@pytest.mark.parametrize("chip", CHIPS)
def test_the_narrower_way_is_named_and_drawn_narrower(chip):
    it = tm.chip(chip)
    share, dma = it.hbm_bytes_per_s / it.cores, it.core.dma_engines * it.core.dma_engine_bytes_per_s
    drawing = drawings.ways_to_hbm(it)
    assert drawing.caption.startswith("HBM" if share <= dma else "DMA")
    assert f"each core to {printed(min(share, dma), 'B/s')}." in words(drawing)
    assert {f"{printed(rate, 'B/s')} per core" for rate in (share, dma)} <= set(texts(drawing)["All cores at work"])
    marks = frames(drawing)["All cores at work"]
    orange = boxes(marks, "box-a")
    others = boxes(marks, "box-e" if share <= dma else "box-b")[-len(orange) :]
    assert len(orange) == it.cores
    ratio = (others[0].bottom - others[0].top) / (orange[0].bottom - orange[0].top)
    assert ratio == pytest.approx(max(share, dma) / min(share, dma), abs=0.01)


def test_a_rank_s_memory_ends_with_its_banks():
    it = tm.chip("trainium3")
    drawing = drawings.memory_of_a_chip(it)
    assert list(drawing.frames) == ["LNC 1", "LNC 2", "LNC 8 (announced)"]
    for label, marks in frames(drawing).items():
        wall = next(m for m in marks if m.tag == "line" and m.get("class") == "line-a" and m.get("stroke-width") == "4")
        (reached, _), lnc = boxes(marks, "box-a")[:2], int(label.split()[1])
        assert 0 < float(wall.get("x1")) - reached.right < 14
        capacity = tm.memory_fit(
            "llama-3.1-8b", "trn3-nl16-torus", tm.Mapping(tp=1, lnc=lnc), batch=1, context=1024
        ).capacity_bytes
        assert printed(capacity, "B") in texts(drawing)[label]
    assert "ranks 0 and 1" in texts(drawing)["LNC 1"]


@pytest.mark.parametrize("chip", CHIPS)
def test_the_ridge_is_the_chip_s(chip):
    it = tm.chip(chip)
    ridge = float(tm.roofline.ridge_point_flop_per_byte(it.peak("bf16"), it.hbm_bytes_per_s))
    drawing = drawings.roofline_idea(it)
    low, middle, high = drawing.frames
    assert middle == f"{format_digits(ridge, 3)} FLOP per byte"
    assert {"100 % full", "25 % busy", printed(it.peak("bf16") / 4, "FLOP/s")} <= set(texts(drawing)[low])
    assert {"100 % full", "100 % busy"} <= set(texts(drawing)[middle])
    assert {"25 % full", "100 % busy", printed(it.peak("bf16"), "FLOP/s")} <= set(texts(drawing)[high])


@pytest.mark.parametrize(("model", "system", "context"), STEPS)
def test_areas_are_in_proportion_to_bytes(model, system, context):
    it = tm.model(model)
    cache = float(it.kv_bytes(context))
    scales = []
    for label, marks in frames(drawings.decode_step_idea(model, system, context=context)).items():
        batch = int(label.split()[1])
        (weights,), caches = boxes(marks, "box-b"), boxes(marks, "box-a")
        assert len(caches) == batch
        scales += [size(weights) / float(it.weight_bytes_read(batch)), size(caches[0]) / cache]
        assert caches[-1].right <= 760
    assert scales == pytest.approx([max(scales)] * len(scales), rel=0.05)  # coordinates have one decimal


def test_the_running_case_reads_what_the_model_says():
    said = texts(drawings.decode_step_idea())["Batch 64"]
    it, where = tm.model("llama-3.3-70b"), tm.system("trn2.48xlarge")
    read = float(it.weight_bytes_read(64)) + 64 * float(it.kv_bytes(4096))
    assert f"225 GB for 64 tokens: {read / 64 / 1e9:.2f} GB per token." in said
    assert any(f"at least {1e3 * read / where.hbm_bytes_per_s:.2f} ms" in one for one in said)


def test_one_chip_of_the_running_case_reads_for_as_long_as_the_chapter_says():
    """70.6 GB and 4 x 1.43 GB at 2.9 TB/s: 26.3 ms."""
    one = drawings.decode_step_idea(system=tm.chip("trainium2"), context=4352, batches=(4,), precision="fp8")
    assert "At the 2.9 TB/s of one Trainium2 chip a step takes at least 26.3 ms." in texts(one)["Batch 4"]


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="chip='h100'"):
        drawings.neuroncore("h100")
    encoder = next(name for name in tm.model_ids() if not tm.model(name).generates)
    with pytest.raises(ValueError, match="only models that generate"):
        drawings.decode_step_idea(encoder)


GOOD = {"id": "d", "caption": "A claim", "height": 100, "note": "A note says how.", "alt": "A box"}
WRONG = {
    "leaves the canvas": [text(750, 50, "too far")],
    "meets": [text(50, 50, "one text"), text(60, 52, "another")],
    "crosses the edge": [rect(40, 30, 40, 40), text(50, 55, "a wide text")],
    "crossed by a line": [line(0, 0, 100, 100), text(50, 55, "a text")],
    "has size 9": [text(50, 50, "small", size=9)],
    "26 labels": [text(15 + 28 * i, 50, "x") for i in range(26)],
}


@pytest.mark.parametrize(("fault", "marks"), WRONG.items(), ids=WRONG)
def test_each_fault_is_seen(fault, marks):
    seen = faults(Drawing(**GOOD, marks=marks))
    assert seen
    assert all(fault in one for one in seen)
    moved = faults(Drawing(**GOOD, marks=[], frames={"still": [], "moved": marks}))
    assert moved == [f"moved{one}" for one in seen]


def test_a_drawing_without_faults_has_none_and_one_that_is_no_xml_says_so():
    marks = [rect(10, 10, 120, 40), text(70, 35, "inside & out"), line(0, 60, 700, 60)]
    assert faults(Drawing(**GOOD, marks=marks)) == []
    assert "no well-formed XML" in faults(Drawing(**GOOD, marks=["<rect>"]))[0]
    assert len(faults(Drawing("2.a", "a " * 11, 50, []))) == 4


def test_estimates_of_places():
    mark = ET.fromstring(text(100, 50, "ten letter", anchor="end", size=10))
    assert area(mark) == pytest.approx(Area(48, 42, 100, 52))
    assert crosses(ET.fromstring(line(0, 47, 200, 47)), area(mark))
    assert not crosses(ET.fromstring(line(0, 60, 200, 60)), area(mark))
    assert not crosses(ET.fromstring(line(0, 47, 40, 47)), area(mark))
