"""Time lines: lengths are in proportion to the results, parts add up, and other models and systems are drawn too."""

from itertools import pairwise

import numpy as np
import pytest
from looks import parsed, svg

import trnmodel as tm
from trnbook.drawings import timelines
from trnbook.drawings.amounts import wide
from trnbook.drawings.svg import WIDTH
from trnmodel.formulas.training import bubble_s

TP64 = tm.Mapping(tp=64)
ASK = {"context": 4352, "max_context": 4608}
RUN = {"count": 32, "global_batch": 1024, "seq": 4096}


def decode(efficiencies=None, batch=16):
    return tm.decode_step("llama-3.3-70b", "trn2.48xlarge", TP64, batch=batch, efficiencies=efficiencies, **ASK)


def trained(model="llama-3.3-70b", system="trn2.48xlarge", mapping=None, **ask):
    return tm.train_step(model, system, mapping or tm.Mapping(tp=32, pp=8, dp=8), **(RUN | ask))


def serving(model="llama-3.3-70b", system="trn2.48xlarge", mapping=TP64, **ask):
    return timelines.prefill_and_decode(model, system, mapping, **ask)


GPT = {"count": 192, "global_batch": 1536, "seq": 2048, "recompute": "full"}
A100 = ("gpt3-175b", "hgx-a100", tm.Mapping(tp=8, pp=12, dp=16))
STEPS = {"public": (None, 16), "ideal": ("ideal", 64), "hand-tuned": ("hand-tuned", 4)}
TRAININGS = {"trn2": trained, "a100": lambda: trained(*A100, **GPT)}
JOBS = {"trn2.48xlarge": (2048, "llama-3.3-70b"), "trn3-nl72x2-pcie160": (16_384, "llama-3.1-405b")}
DRAWINGS = {
    "serving": serving,
    "serving mla": lambda: serving("deepseek-v3", "trn3-nl72x2-pcie160", tm.Mapping(tp=16, ep=16), precision="fp8"),
    "serving gpu": lambda: serving("llama-3.1-8b", "hgx-h100", tm.Mapping(tp=1), slots=6),
    "bubble": timelines.pipeline_bubble,
    "one part": lambda: timelines.pipeline_bubble(8, 16, 1),
    "step": lambda: timelines.step_as_sum(decode()),
    "ideal step": lambda: timelines.step_as_sum(decode("ideal", 64)),
    "prefill": lambda: timelines.step_as_sum(tm.prefill("llama-3.1-8b", "hgx-h100", input_tokens=4096)),
    **{f"job {name}": lambda name=name: timelines.checkpoint_and_restart(job(name)) for name in JOBS},
    **{f"train {name}": lambda run=run: timelines.micro_batch_of_training(run()) for name, run in TRAININGS.items()},
}


def job(name):
    chips, model = JOBS[name]
    return tm.goodput(name, chips, model=model)


def boxes(marks, look=""):
    """Left edges, widths and tops of the boxes of a colour, as they are drawn."""
    found = [rect for rect in parsed(marks).iter("rect") if look in rect.get("class")]
    return [tuple(float(rect.get(name)) for name in ("x", "width", "y")) for rect in found]


def frame(drawing, number):
    return list(drawing.frames.values())[number]


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawings_are_well_formed_and_texts_stay_on_the_canvas(name):
    drawing = DRAWINGS[name]()
    svg(drawing)
    assert len(drawing.caption.split()) <= 10
    assert drawing.alt
    assert drawing.note.endswith(".")
    for marks in (drawing.frames or {"": []}).values():
        texts = list(parsed([*drawing.marks, *marks]).iter("text"))
        assert len(texts) <= 31
        for one in texts:
            size, x = float(one.get("font-size")), float(one.get("x"))
            broad = wide(one.text, size)
            left = {"start": x, "middle": x - broad / 2, "end": x - broad}[one.get("text-anchor")]
            assert size >= 11
            assert left >= -2, one.text
            assert left + 0.9 * broad <= WIDTH, one.text
            assert 0 < float(one.get("y")) < drawing.height, one.text


@pytest.mark.parametrize("name", DRAWINGS)
def test_boxes_stay_on_the_canvas(name):
    drawing = DRAWINGS[name]()
    for marks in (drawing.frames or {"": []}).values():
        for x, width, y in boxes([*drawing.marks, *marks]):
            assert 0 <= x <= x + width <= WIDTH
            assert 0 <= y <= drawing.height - 14


def test_prefill_and_decode_are_in_proportion():
    marks = frame(serving(), 2)
    first = tm.prefill("llama-3.3-70b", "trn2.48xlarge", TP64, input_tokens=4096, max_context=4608)
    (prompt,) = boxes(marks, "box-a")
    step = decode(batch=4).time_s
    widths = [width for _, width, _ in boxes(marks, "box-b")]
    assert np.ptp(widths) < 0.11
    assert prompt[1] / np.mean(widths) == pytest.approx(float(first.time_s / step), rel=5e-3)


def test_no_step_runs_during_a_prefill_unless_it_is_apart():
    together, apart = frame(serving(), 2), frame(serving(), 3)
    (prompt,) = boxes(together, "box-a")
    steps = boxes(together, "box-b")
    assert not [x for x, width, _ in steps if x + width / 2 > prompt[0] and x + width / 2 < prompt[0] + prompt[1]]
    (prompt,) = boxes(apart, "box-a")
    assert len([x for x, _, _ in boxes(apart, "box-b") if prompt[0] < x < prompt[0] + prompt[1]]) > 40


def test_the_batch_has_the_rate_and_the_speed_of_a_server():
    model, system = "llama-3.3-70b", "trn2.48xlarge"
    server = tm.serve(model, tm.Request(4096, 512), system, TP64, max_batch=4)
    step_s, prefill_s, every_s = float(server.step_s), float(server.prefill_s), 1 / float(server.requests_per_s)
    pieces = timelines.schedule(4, 30, every_s, prefill_s, step_s, 512)
    starts = [piece.start_s for piece in pieces if piece.kind == "prefill"]
    assert np.diff(starts).mean() == pytest.approx(every_s, rel=1e-2)
    ends = {piece.request: piece.end_s for piece in pieces if piece.kind == "decode"}
    speeds = [(ends[i] - starts[i] - prefill_s) / 511 for i in range(8, 20)]
    assert np.mean(speeds) == pytest.approx(float(server.tpot_mean_s), rel=0.04)
    said = "".join(frame(serving(), 1))
    assert f"TPOT {timelines.seconds(float(server.tpot_mean_s))}" in said


def test_slots_hold_one_request_at_a_time():
    pieces = timelines.schedule(3, 12, 2.0, 0.7, 0.1, 60)
    for slot in range(3):
        own = sorted((piece.start_s, piece.end_s) for piece in pieces if piece.slot == slot)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(own))
    for request in range(12):
        steps = sum(one.end_s - one.start_s for one in pieces if one.request == request and one.kind == "decode")
        assert steps == pytest.approx(59 * 0.1)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "parts"), [(2, 2, 1), (4, 8, 1), (8, 16, 1), (4, 8, 2), (4, 12, 3)]
)
def test_bubble_is_that_of_the_formula(stages, micro_batches, parts):
    cells = timelines.pipeline(stages, micro_batches, parts)
    end = max(cell.start + cell.length for cell in cells)
    idle = 1 - sum(cell.length for cell in cells) / (stages * end)
    assert idle == pytest.approx((stages - 1) / (parts * micro_batches + stages - 1))
    waits = float(bubble_s(3.0, stages, parts))
    assert idle == pytest.approx(waits / (3 * micro_batches + waits))


def test_pipeline_keeps_the_order_of_a_micro_batch():
    cells = timelines.pipeline(4, 8, 2)
    done = {(one.micro_batch, one.part * 4 + one.stage, one.backward): one for one in cells}
    assert len(done) == len(cells) == 4 * 8 * 2 * 2
    for (micro_batch, place, back), one in done.items():
        after = done.get((micro_batch, place + (-1 if back else 1), back))
        assert after is None or after.start >= one.start + one.length - 1e-9
    for stage in range(4):
        own = sorted((one.start, one.start + one.length) for one in cells if one.stage == stage)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(own))


def test_grid_shows_the_bubble():
    for number, share in ((0, 3 / 11), (1, 3 / 19)):
        marks = frame(timelines.pipeline_bubble(4, 8, 2), number)
        rows = sum(float(rect.get("width")) for rect in parsed(marks).iter("rect") if rect.get("class") == "box")
        work = sum(width for _, width, _ in boxes(marks, "box-"))
        assert 1 - work / rows == pytest.approx(share, abs=2e-3)


@pytest.mark.parametrize(("stages", "micro_batches", "parts"), [(1, 8, 1), (4, 6, 2), (4, 8, 0)])
def test_pipelines_that_cannot_be_are_refused(stages, micro_batches, parts):
    with pytest.raises(ValueError, match="="):
        timelines.pipeline_bubble(stages, micro_batches, parts)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_the_sum_of_what_is_seen(name):
    step = decode(*STEPS[name])
    drawing = timelines.step_as_sum(step)
    whole = float(step.upper_s)
    for number, time_s in enumerate((step.time_s, step.lower_s, step.upper_s)):
        marks = frame(drawing, number)
        last = max(y for _, _, y in boxes(marks))
        total = sum(width for _, width, y in boxes(marks) if y == last)
        scale = (timelines.RIGHT - 188) / whole
        assert total == pytest.approx(float(time_s) * scale, abs=0.4)
        rest = sum(width for _, width, y in boxes(marks) if y != last)
        assert rest == pytest.approx(whole * scale, abs=0.4)


def test_hidden_exchanges_lie_behind_a_longer_network():
    times = {"memory": 2.0, "compute": 1.0, "network": 4.0, "overhead": 0.5}
    lanes = timelines._lanes(times, 1.0, 2.0)
    assert sum(length for lane in lanes for _, length in lane.seen) == pytest.approx(4.5)
    assert sum(length for lane in lanes for _, length in lane.hidden) == pytest.approx(3.0)


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_step_is_the_sum_of_its_parts(name):
    step = TRAININGS[name]()
    marks = frame(timelines.micro_batch_of_training(step), 1)
    last = max(y for _, _, y in boxes(marks))
    scale = (timelines.RIGHT - 208) / float(step.time_s)
    assert sum(width for _, width, y in boxes(marks) if y == last) == pytest.approx(float(step.time_s) * scale, abs=0.5)
    forward = min((x, width) for x, width, y in boxes(marks, "box-b") if y == last)
    assert forward[1] == pytest.approx(float(step.forward_s) * scale, abs=0.1)
    hidden = sum(width for _, width, _ in boxes(marks, "ink"))
    assert hidden == pytest.approx(float(step.upper_s - step.time_s - _bubble_of_hidden(step)) * scale, abs=0.5)


def _bubble_of_hidden(step):
    """How much longer the bubble is where nothing hides, which is no exchange."""
    plain = timelines.answers_of(timelines.replace(step.question, hidden=0.0))
    return plain["bubble_s"] - step.bubble_s


def test_losses_are_in_proportion():
    run = job("trn3-nl72x2-pcie160")
    drawing = timelines.checkpoint_and_restart(run)
    widths = sorted((width for x, width, y in boxes(drawing.marks) if x == 268), reverse=True)
    lost = sorted((float(getattr(run, f"{name}_lost")) for name in timelines.LOSSES), reverse=True)
    assert np.asarray(widths) / widths[0] == pytest.approx(np.asarray(lost) / lost[0], abs=1e-3)
    line = [(x, width) for x, width, y in boxes(drawing.marks) if y == 78]
    work = line[0][1]
    assert line[3][1] / work == pytest.approx(run.fleet.restart_s / float(run.interval_s), rel=2e-3)
    assert line[1][1] / work == pytest.approx(float(run.write_s / run.interval_s), rel=0.05)


def test_several_points_are_refused():
    with pytest.raises(ValueError, match="one point"):
        timelines.step_as_sum(decode(batch=[1, 2]))
    with pytest.raises(ValueError, match="fit in memory"):
        timelines.step_as_sum(tm.decode_step("deepseek-v3", "trn2.48xlarge", tm.Mapping(tp=4), batch=1, context=100))
