"""Time lines of serving and training: what follows what, what waits, and what hides behind something else.

All lengths are times of results in proportion; each frame of a drawing says its own scale on its axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from trnbook.drawings.amounts import name_of, number, percent, seconds, wide
from trnbook.drawings.svg import WIDTH, Accent, Drawing, line, rect, text
from trnmodel.catalog.specs import Precision
from trnmodel.formulas.latency import free_yield, full_requests_per_s, tpot_s, utilisation
from trnmodel.formulas.step import overlapped_s
from trnmodel.formulas.training import bubble_s
from trnmodel.models.transformer import Transformer
from trnmodel.reliability.goodput import LOSSES, Goodput
from trnmodel.serving.server import disaggregate
from trnmodel.steps.answers import Step
from trnmodel.steps.inference import decode_step, prefill
from trnmodel.steps.mapping import Mapping
from trnmodel.training.step import TrainStep
from trnmodel.training.work import EXCHANGES, answers_of
from trnmodel.units import DAY, HOUR, MINUTE

LEFT, RIGHT = 112.0, WIDTH - 14.0  # of the time lines
TALL = 26.0  # height of a row's boxes
SAID = 15.0  # size of a label
TICKS = 6
UNITS_S = (DAY, HOUR, MINUTE)  # whose round numbers ticks have where they are long
ROUND = (1.0, 2.0, 5.0)
SEEN = 4.0  # width from which steps are drawn one by one [px]
BEFORE, AFTER = 4, 7  # decode steps around a prefill
HORIZON = 1.6  # of the view of whole requests, over the time of one
Row = list[str]


class Scale(NamedTuple):
    """Where a time lies on the canvas."""

    length_s: float
    left: float = LEFT
    right: float = RIGHT

    @property
    def px_per_s(self) -> float:
        """Width of a second."""
        return (self.right - self.left) / self.length_s

    def x(self, time_s: float) -> float:
        """Return the place of a time."""
        return self.left + time_s * self.px_per_s


def box(
    at: Scale, y: float, start_s: float, length_s: float, accent: Accent = "", *, filled: bool = True, said: str = ""
) -> str:
    """Return a box on a time line, with a label in it where it has room.

    Examples
    --------
    >>> box(Scale(10, 0, 100), 5, 2, 3, "a")
    '<rect x="20" y="5" width="30" height="26" rx="0" class="box-a"/>'
    """
    wide_px = length_s * at.px_per_s
    mark = rect(at.x(start_s), y, wide_px, TALL, accent=accent, filled=filled, radius=0)
    if said and wide(said, SAID) + 4 < wide_px:
        mark += text(at.x(start_s + length_s / 2), y + TALL / 2 + 5, said, size=SAID)
    return mark


def axis(at: Scale, y: float) -> str:
    """Return an axis of time with round numbers."""
    step = _tick_s(at.length_s / TICKS)
    marks = [line(at.left, y, at.right, y, faint=True)]
    for i in range(int(at.length_s / step * (1 + 1e-9)) + 1):
        x, said = at.x(i * step), seconds(i * step)
        marks.append(line(x, y, x, y + 5))
        marks.append(text(min(x, at.right - wide(said, 14) / 2), y + 20, said, size=14))
    return "".join(marks)


def _tick_s(least: float) -> float:
    """Return a round time that is not below some time: of minutes and hours from a minute on."""
    unit = next((x for x in UNITS_S if least > x / 2), 10.0 ** np.floor(np.log10(least)))
    rounds = (unit * x * 10.0**power for power in range(9) for x in ROUND)
    return float(next(x for x in rounds if x >= least * (1 - 1e-9)))


def span(at: Scale, y: float, start_s: float, length_s: float, said: str, accent: Accent = "") -> str:
    """Return a bracket over some time with its label: above it, or beside it where it is short."""
    x, x2 = at.x(start_s), at.x(start_s + length_s)
    marks = [line(x, y, x2, y, accent=accent)] + [line(end, y - 5, end, y + 5, accent=accent) for end in (x, x2)]
    broad = wide(said, SAID)
    if broad < x2 - x - 8:
        return "".join(marks) + text((x + x2) / 2, y - 6, said, size=SAID, accent=accent)
    if x2 + 8 + broad < WIDTH:
        return "".join(marks) + text(x2 + 8, y + 5, said, anchor="start", size=SAID, accent=accent)
    return "".join(marks) + text(x - 8, y + 5, said, anchor="end", size=SAID, accent=accent)


def legend(entries: Iterable[tuple[str, Accent]], y: float = 20.0, *, outlined: str = "") -> Row:
    """Return boxes with what their colours mean, side by side; `outlined` names a box that has no filling."""
    marks, x = Row(), 10.0
    for said, accent in entries:
        marks.append(rect(x, y - 12, 14, 14, accent=accent, filled=said != outlined, radius=0))
        marks.append(text(x + 20, y, said, anchor="start", size=SAID))
        x += 38 + wide(said, SAID)
    return marks


def row_name(y: float, said: str) -> str:
    """Return the name of a row, to the left of it."""
    return text(10, y + TALL / 2 + 5, said, anchor="start", size=SAID, bold=True)


@dataclass(frozen=True, slots=True)
class _Served:
    """Times of a server: a prompt, a step by itself and with all slots, and what separate workers add."""

    slots: int
    output_tokens: int
    prefill_s: float
    host_s: float
    alone_s: float
    step_s: float
    every_s: float
    tpot_s: float
    transfer_s: float


def prefill_and_decode(
    model: str | Transformer = "llama-3.3-70b",
    system: str = "trn2.48xlarge",
    mapping: Mapping | None = None,
    *,
    input_tokens: int = 4096,
    output_tokens: int = 512,
    slots: int = 4,
    precision: str | Precision = "bf16",
    efficiencies: Any = None,
) -> Drawing:
    """Return the time line of a few requests: one alone, batched, interrupted by a prefill, and with prefill apart.

    Parameters
    ----------
    model, system, precision, efficiencies
        As in `tm.decode_step`. [-]
    mapping : Mapping, optional
        Degrees; default TP 64. [-]
    input_tokens, output_tokens : int
        Of each request. [token]
    slots : int
        Sequences that decode at once, from 2. [-]

    Returns
    -------
    drawing : Drawing
        Four frames, with TTFT, TPOT and ITL. [-]

    Notes
    -----
    Requests of the second frame come evenly, as often as the slots can take them. Prompts run one at a time: `tm.serve`
    has the same TPOT, but where attention is data-parallel it runs a prompt in each group at once. Prefill workers are
    as many and as fast as those that decode.

    Examples
    --------
    >>> prefill_and_decode().caption
    'One prefill takes as long as 20 decode steps'
    """
    if slots < 2:
        raise ValueError(f"slots={slots}: a drawing of batching needs two slots or more")
    mapping = Mapping(tp=64) if mapping is None else mapping
    many: dict[str, Any] = {"precision": precision, "efficiencies": efficiencies}
    ask = many | {"max_context": input_tokens + output_tokens}
    first = prefill(model, system, mapping, input_tokens=input_tokens, **ask)
    context = input_tokens + output_tokens / 2
    ask |= {"compiled_batch": slots, "context": context}  # a compiled graph runs all of its slots
    steps = [decode_step(model, system, mapping, batch=batch, **ask) for batch in (1, slots)]
    prompt_s, step_s = number(first, "time_s"), number(steps[1], "time_s")
    rate = float(full_requests_per_s(slots, output_tokens, step_s, 1.0, prompt_s))
    apart = disaggregate(
        model,
        *(system, mapping) * 2,
        batch=slots,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        precision=precision,
        prefill_efficiencies=efficiencies,
        decode_efficiencies=efficiencies,
    )
    t = _Served(
        slots,
        output_tokens,
        prompt_s,
        float(first.stack.server_first_token_s),
        number(steps[0], "time_s"),
        step_s,
        1 / rate,
        float(tpot_s(step_s, free_yield(utilisation(rate, prompt_s), 1.0))),
        number(apart, "transfer_s"),
    )
    ratio = t.prefill_s / t.step_s
    frames = {
        "one request": _one_request(t),
        "continuous batching": _batched(t),
        "a prefill interrupts": _interrupted(t),
        "prefill apart": _apart(t),
    }
    keys: list[tuple[str, Accent]] = [("prefill", "a"), ("decode step", "b"), ("cache sent", "c")]
    keys += [("server", "e")] if t.host_s > 0 else []
    return Drawing(
        name_of("serving", first.model.id, first.system.id, slots),
        f"One prefill takes as long as {ratio:.{0 if ratio >= 9.5 else 1}f} decode steps",
        max(308.0, 171 + slots * (TALL + 8)),
        legend(keys),
        frames=frames,
        note="Boxes are as long as their times on the axis of each picture, and every slot of the batch is a row.",
        alt=f"{first.model.id} on {first.system.id}: a prefill takes {seconds(t.prefill_s)}, a decode step "
        f"{seconds(t.alone_s)} alone and {seconds(t.step_s)} with {slots} sequences",
    )


def _steps(at: Scale, y: float, start_s: float, count: int, step_s: float) -> Row:
    """Return decode steps one after another, as one box where they are too short to be seen."""
    if step_s * at.px_per_s < SEEN:
        return [box(at, y, start_s, count * step_s, "b", said="decode")]
    return [box(at, y, start_s + i * step_s, step_s, "b") for i in range(count)]


def _one_request(t: _Served) -> Row:
    """Return a request by itself: all of it, and its beginning enlarged."""
    first_s = t.prefill_s + t.host_s
    later = t.output_tokens - 1
    whole, y = Scale(first_s + later * t.alone_s), 84.0
    marks = [row_name(y, "all of it"), box(whole, y, 0, t.prefill_s, "a")]
    if t.host_s:
        marks.append(box(whole, y, t.prefill_s, t.host_s, "e"))
    marks.append(box(whole, y, first_s, later * t.alone_s, "b", said=f"{later} steps of {seconds(t.alone_s)}"))
    marks.append(span(whole, y - 18, 0, whole.length_s, f"whole request {seconds(whole.length_s)}"))
    near, low = Scale(first_s + 8.5 * t.alone_s), 178.0
    for end_s, x in ((0.0, near.x(0)), (near.length_s, near.right)):
        marks.append(line(whole.x(min(end_s, whole.length_s)), y + TALL, x, low, faint=True))
    marks += [row_name(low, "its start"), box(near, low, 0, t.prefill_s, "a", said="prefill")]
    if t.host_s:
        marks.append(box(near, low, t.prefill_s, t.host_s, "e"))
    marks += _steps(near, low, first_s, min(8, later), t.alone_s)
    marks.append(span(near, low + TALL + 28, 0, first_s, f"TTFT {seconds(first_s)}"))
    said = f"TPOT = ITL = {seconds(t.alone_s)}"
    marks.append(span(near, low + TALL + 56, first_s, t.alone_s, said))
    return [*marks, axis(near, low + TALL + 76)]


class _Piece(NamedTuple):
    """A stretch of a request in a slot."""

    request: int
    slot: int
    kind: str
    start_s: float
    end_s: float


def schedule(
    slots: int, requests: int, every_s: float, prefill_s: float, step_s: float, output_tokens: int
) -> list[_Piece]:
    """Return what each slot does when requests come evenly, a prefill runs at once and stalls the decode steps.

    Parameters
    ----------
    slots, requests : int
        Sequences at once, and requests in all. [-]
    every_s, prefill_s, step_s : float
        Time between requests, of a prefill, and of a decode step. [s]
    output_tokens : int
        Of each request. [token]

    Returns
    -------
    pieces : list
        Prefills and stretches of decode steps without a stall: request, slot, kind, start and end. [-]

    Examples
    --------
    >>> for piece in schedule(2, 2, 3.0, 1.0, 1.0, 5): print(*piece)
    0 0 prefill 0.0 1.0
    1 1 prefill 3.0 4.0
    0 0 decode 1.0 3.0
    0 0 decode 4.0 6.0
    1 1 decode 4.0 8.0
    """
    now, came = 0.0, 0
    running, free = dict[int, list[float]](), list(range(slots))
    pieces = list[_Piece]()

    def stop(request: int) -> None:
        slot, start_s, _ = running[request]
        if now > start_s:
            pieces.append(_Piece(request, int(slot), "decode", start_s, now))

    while came < requests or running:
        if came < requests and free and came * every_s <= now * (1 + 1e-12):
            for request in running:
                stop(request)
            slot = free.pop(0)
            pieces.append(_Piece(came, slot, "prefill", now, now + prefill_s))
            now += prefill_s
            running[came] = [slot, now, output_tokens - 1]
            for state in running.values():
                state[1] = now
            came += 1
        elif running:
            now += step_s
            for request, state in list(running.items()):
                state[2] -= 1
                if state[2] <= 0:
                    stop(request)
                    free.append(int(running.pop(request)[0]))
        else:
            now = came * every_s
    return sorted(pieces, key=lambda piece: (piece.kind != "prefill", piece.request, piece.start_s))


def _batched(t: _Served) -> Row:
    """Return whole requests that come evenly and share the steps; each slot is filled again as soon as it is free."""
    whole_s = t.prefill_s + (t.output_tokens - 1) * t.tpot_s
    at, top = Scale(HORIZON * whole_s), 70.0
    count = int(at.length_s / t.every_s) + 1
    marks = [row_name(top + slot * (TALL + 8), f"slot {slot + 1}") for slot in range(t.slots)]
    comes = f"a request every {seconds(t.every_s)} takes the first slot that is free"
    marks.append(text(LEFT, top - 12, comes, anchor="start", size=SAID))
    first = dict[int, float]()
    for piece in schedule(t.slots, count, t.every_s, t.prefill_s, t.step_s, t.output_tokens):
        start_s, end_s = piece.start_s, min(piece.end_s, at.length_s)
        if start_s >= at.length_s:
            continue
        y = top + piece.slot * (TALL + 8)
        marks.append(box(at, y, start_s, end_s - start_s, "a" if piece.kind == "prefill" else "b"))
        if piece.kind == "decode" and piece.request not in first:
            first[piece.request] = start_s
            name = chr(ord("A") + piece.request % 26)
            if at.px_per_s * (end_s - start_s) > 20:
                marks.append(text(at.x(start_s) + 10, y + TALL / 2 + 5, name, size=SAID, bold=True))
    bottom = top + t.slots * (TALL + 8) + 8
    marks.append(
        text(
            LEFT,
            bottom + 16,
            "In the gaps the slots wait for the prefill of another request.",
            anchor="start",
            size=SAID,
        )
    )
    waits = seconds(t.tpot_s - t.step_s)
    tpot = f"TPOT {seconds(t.tpot_s)} = a step of {seconds(t.step_s)} + {waits} of waiting per token"
    marks.append(text(LEFT, bottom + 38, tpot, anchor="start", size=SAID))
    return [*marks, axis(at, bottom + 54)]


def _interrupted(t: _Served) -> Row:
    """Return a few steps before and after a prefill in one more slot."""
    at, top = Scale((BEFORE + AFTER) * t.step_s + t.prefill_s + t.host_s), 76.0
    start_s, y = BEFORE * t.step_s, 0.0
    end_s = start_s + t.prefill_s
    marks = Row()
    for slot in range(t.slots):
        y = top + slot * (TALL + 8)
        marks.append(row_name(y, f"slot {slot + 1}"))
        if slot < t.slots - 1:
            marks += _steps(at, y, 0, BEFORE, t.step_s)
            marks.append(line(at.x(start_s), y + TALL / 2, at.x(end_s), y + TALL / 2, faint=True))
        else:
            marks.append(box(at, y, start_s, t.prefill_s, "a", said="prefill"))
        marks += _steps(at, y, end_s, AFTER, t.step_s)
    marks.append(span(at, top - 32, 0, t.step_s, f"ITL {seconds(t.step_s)}"))
    marks.append(span(at, top - 10, start_s, t.prefill_s + t.step_s, f"ITL {seconds(t.prefill_s + t.step_s)}"))
    low = y + TALL + 26
    marks.append(span(at, low, start_s, t.prefill_s + t.host_s, _first_token(t, t.prefill_s)))
    return [*marks, axis(at, low + 20)]


def _first_token(t: _Served, chips_s: float) -> str:
    """Return a time to the first token in words, with what the server adds while the chips go on."""
    more = f", {seconds(t.host_s)} of it in the server" if t.host_s else ""
    return f"TTFT {seconds(chips_s + t.host_s)}{more}"


def _apart(t: _Served) -> Row:
    """Return the same with the prefill on workers of its own, whose cache is sent to the slot."""
    needed = t.prefill_s + t.transfer_s
    at, top = Scale((BEFORE + AFTER) * t.step_s + needed + t.host_s), 76.0
    joined = BEFORE + int(np.ceil(needed / t.step_s))  # the first step with the new sequence
    count = int(at.length_s / t.step_s)
    start_s = joined * t.step_s - needed
    marks = [row_name(top, "prefill"), box(at, top, start_s, t.prefill_s, "a", said="prefill on other chips")]
    marks.append(box(at, top, start_s + t.prefill_s, t.transfer_s, "c"))
    y = top
    for slot in range(t.slots):
        y = top + (slot + 1) * (TALL + 8)
        marks.append(row_name(y, f"slot {slot + 1}"))
        begin = joined if slot == t.slots - 1 else 0
        marks += _steps(at, y, begin * t.step_s, count - begin, t.step_s)
    chips_s = needed + t.step_s
    marks.append(span(at, top - 10, start_s, chips_s + t.host_s, _first_token(t, chips_s)))
    low = y + TALL + 20
    marks.append(span(at, low, 0, t.step_s, f"ITL {seconds(t.step_s)}, and no step waits"))
    return [*marks, axis(at, low + 20)]


class _Cell(NamedTuple):
    """A pass of a micro-batch through a part of a stage, in times of a forward pass through a whole stage."""

    stage: int
    start: float
    length: float
    micro_batch: int
    part: int
    backward: bool


MOST_NUMBERED = 8  # micro-batches up to which passes in both directions have their number
FORWARD, BACKWARD = 1.0, 2.0  # a backward pass has two products for one of the forward pass


def _order(stage: int, stages: int, micro_batches: int, parts: int) -> list[tuple[int, int, bool]]:
    """Return the passes of a stage in turn: micro-batch, part and direction (one forward, one backward)."""
    group = stages * parts

    def forward(i: int) -> tuple[int, int, bool]:
        return i // group * stages + i % stages, i % group // stages, False

    def backward(i: int) -> tuple[int, int, bool]:
        return i // group * stages + i % stages, parts - 1 - i % group // stages, True

    total = micro_batches * parts
    if parts == 1:
        ahead = min(stages - 1 - stage, total)
        ways = [(i, 0, False) for i in range(total)], [(i, 0, True) for i in range(total)]
    else:
        ahead = min((stages - stage - 1) * 2 + (parts - 1) * stages, total)
        ways = [forward(i) for i in range(total)], [backward(i) for i in range(total)]
    order = ways[0][:ahead]
    for i in range(total - ahead):
        order += [ways[0][ahead + i], ways[1][i]]
    return order + ways[1][total - ahead :]


def pipeline(stages: int, micro_batches: int, interleave: int = 1) -> list[_Cell]:
    """Return when each stage works on each micro-batch, one forward and one backward pass in turn.

    Parameters
    ----------
    stages, micro_batches, interleave : int
        Stages of the pipeline, micro-batches of a step, and parts of the model that each stage has. [-]

    Returns
    -------
    cells : list
        Stage, start and length in forward passes of a stage, micro-batch, part and whether it goes backward. [-]

    Examples
    --------
    >>> cells = pipeline(2, 2)
    >>> max(cell.start + cell.length for cell in cells)
    9.0
    """
    orders = [_order(stage, stages, micro_batches, interleave) for stage in range(stages)]
    done, free, at = dict[tuple[int, int, bool], float](), [0.0] * stages, [0] * stages
    cells = list[_Cell]()
    while any(at[stage] < len(orders[stage]) for stage in range(stages)):
        moved = False
        for stage in range(stages):
            if at[stage] == len(orders[stage]):
                continue
            micro_batch, part, back = orders[stage][at[stage]]
            place, last = part * stages + stage, stages * interleave - 1
            before = (micro_batch, place + 1, True) if back else (micro_batch, place - 1, False)
            if back and place == last:
                before = (micro_batch, last, False)
            if before[1] >= 0 and before not in done:
                continue
            length = (BACKWARD if back else FORWARD) / interleave
            start = max(free[stage], done.get(before, 0.0))
            cells.append(_Cell(stage, start, length, micro_batch, part, back))
            done[micro_batch, place, back] = free[stage] = start + length
            at[stage] += 1
            moved = True
        if not moved:
            raise ValueError(f"micro_batches={micro_batches}: interleaved, they must be a multiple of stages={stages}")
    return cells


def pipeline_bubble(stages: int = 4, micro_batches: int = 8, interleave: int = 2) -> Drawing:
    """Return a training step on the stages of a pipeline as a grid, and the time in which stages wait.

    Parameters
    ----------
    stages, micro_batches : int
        Stages of the pipeline, and micro-batches of a step. [-]
    interleave : int
        Parts of the model that each stage has in the second frame; 1 draws the first alone. [-]

    Returns
    -------
    drawing : Drawing
        A row for each stage, boxes for forward and backward passes. [-]

    Raises
    ------
    ValueError
        Fewer than two stages, or interleaved micro-batches that are no multiple of the stages.

    Notes
    -----
    The share of the bubble is (p - 1)/(v m + p - 1) with p stages, m micro-batches and v parts, as `train_step` has it.

    Examples
    --------
    >>> pipeline_bubble(4, 8, 2).caption
    'Stages wait 27 % of the step, interleaved 16 %'
    """
    if stages < 2 or micro_batches < 1 or interleave < 1:
        raise ValueError(f"stages={stages}: a pipeline has two stages or more, and a micro-batch and a part or more")
    if interleave > 1 and micro_batches % stages:
        raise ValueError(f"micro_batches={micro_batches}: interleaved, they must be a multiple of stages={stages}")
    plans = {"plain": 1} | ({f"interleaved, {interleave} parts": interleave} if interleave > 1 else {})
    length = micro_batches * (FORWARD + BACKWARD) + float(bubble_s(FORWARD + BACKWARD, stages, 1))
    at = Scale(length, 96)
    tall = min(34.0, 300 / stages)
    shares = [_bubble_share(stages, micro_batches, parts) for parts in plans.values()]
    frames = {
        label: _grid(pipeline(stages, micro_batches, parts), at, stages, tall, shares[i])
        for i, (label, parts) in enumerate(plans.items())
    }
    keys: list[tuple[str, Accent]] = [("forward", "b"), ("backward", "a"), ("stage waits", "")]
    more = f", interleaved {percent(shares[1])}" if len(shares) > 1 else " for others"
    return Drawing(
        name_of("pipeline-bubble", stages, micro_batches, interleave),
        f"Stages wait {percent(shares[0])} of the step{more}",
        48 + stages * tall + 52,
        [*legend(keys), *([] if len(frames) > 1 else frames["plain"])],
        frames=frames if len(frames) > 1 else None,
        note="Each row is a stage, each box a pass of the micro-batch with that number; backward takes twice as long.",
        alt=f"{stages} stages, {micro_batches} micro-batches: the bubble is {percent(shares[0])} of the step"
        + (f", and {percent(shares[1])} with {interleave} parts on each stage" if len(shares) > 1 else ""),
    )


def _bubble_share(stages: int, micro_batches: int, parts: int) -> float:
    """Return the share of the step in which a stage waits."""
    work = micro_batches * (FORWARD + BACKWARD)
    waits = float(bubble_s(FORWARD + BACKWARD, stages, parts))
    return waits / (work + waits)


def _grid(cells: list[_Cell], at: Scale, stages: int, tall: float, share: float) -> Row:
    """Return the boxes of all passes; those of later parts of the model have a stripe."""
    top, end = 42.0, max(cell.start + cell.length for cell in cells)
    marks, crowded = Row(), max(cell.micro_batch for cell in cells) >= MOST_NUMBERED
    for stage in range(stages):
        y = top + stage * tall
        marks.append(rect(at.left, y, end * at.px_per_s, tall - 4, radius=0))
        marks.append(text(10, y + tall / 2 + 3, f"stage {stage + 1}", anchor="start", size=SAID, bold=True))
    for cell in cells:
        x, y, broad = at.x(cell.start), top + cell.stage * tall, cell.length * at.px_per_s
        accent: Accent = "a" if cell.backward else "b"
        marks.append(rect(x, y, broad, tall - 4, accent=accent, radius=0))
        if cell.part:
            marks.append(line(x + 1, y + tall - 7, x + broad - 1, y + tall - 7, accent=accent, wide=3))
        said = str(cell.micro_batch + 1)
        numbered = cell.stage == 0 and not cell.part and (cell.backward or not crowded)
        if numbered and wide(said, 13) + 3 < broad:
            marks.append(text(x + broad / 2, y + tall / 2 + 3, said, size=13))
    bottom = top + stages * tall + 14
    said = f"a stage waits {percent(share)} of the step"
    marks.append(line(at.x(end), top - 8, at.x(end), bottom - 8))
    marks.append(text(at.left, bottom + 6, said, anchor="start", size=SAID, bold=True))
    if any(cell.part for cell in cells):
        marks.append(text(at.left, bottom + 26, "thick edge: later parts of the model", anchor="start", size=SAID))
    return marks


@dataclass(slots=True)
class _Lane:
    """A row of a sum: its name, its time, and pieces that are seen or that hide behind others."""

    name: str
    accent: Accent
    time_s: float
    seen: list[tuple[float, float]] = field(default_factory=list)
    hidden: list[tuple[float, float]] = field(default_factory=list)

    def put(self, start_s: float, hidden_s: float, after_s: float, seen_s: float) -> None:
        """Add what hides from a start on, and what is seen after it."""
        if hidden_s > 0:
            self.hidden.append((start_s, hidden_s))
        if seen_s > 0:
            self.seen.append((after_s, seen_s))


SMALL = 0.05  # share of a step below which a resource is not in the claim
RESOURCES: dict[str, Accent] = {"memory": "c", "compute": "b", "network": "d", "overhead": "e"}


def step_as_sum(step: Step) -> Drawing:
    """Return a step as bars of its resources, laid so that what hides lies behind what it hides behind.

    Parameters
    ----------
    step : Step
        A decode step or a prefill of one point. [-]

    Returns
    -------
    drawing : Drawing
        The step as its software runs it, with everything overlapped (`lower_s`), and with nothing (`upper_s`). [-]

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"batch": 16, "context": 4352, "max_context": 4608}
    >>> step_as_sum(tm.decode_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=64), **ask)).caption
    'Memory and overhead are 86 % of the step'
    """
    times = {name: number(step, f"{name}_s") for name in RESOURCES}
    whole = number(step, "time_s")
    frames = {
        "as this software runs": _sum(times, *_hidden(step, times), whole),
        "if everything overlapped": _sum(times, *_hidden(step, times, 1.0), number(step, "lower_s")),
        "if nothing overlapped": _sum(times, 0.0, 0.0, number(step, "upper_s")),
    }
    lanes = _lanes(times, *_hidden(step, times))
    shares = {lane.name: sum(length for _, length in lane.seen) / whole for lane in lanes}
    one, two = sorted(shares, key=lambda name: -shares[name])[:2]
    claim = f"{one.capitalize()} and {two} are {percent(shares[one] + shares[two])} of the step"
    if shares[two] < SMALL:
        claim = f"{one.capitalize()} is {percent(shares[one])} of the step"
    return Drawing(
        name_of("sum", step.model.id, step.system.id, step.question.phase, f"{whole:.6g}"),
        claim,
        290,
        [],
        frames=frames,
        note="Filled boxes add up to the step in the last row, and outlined ones hide behind a longer box above them.",
        alt=f"{step.model.id} on {step.system.id}, {seconds(whole)}: "
        + ", ".join(f"{name} {seconds(x)}" for name, x in times.items()),
    )


def _hidden(step: Step, times: dict[str, float], overlap: float | None = None) -> tuple[float, float]:
    """Return what hides of compute and memory behind each other, and of the network and both.

    The joined time of compute and memory follows from the step's time, but where all of it hides behind the network.
    """
    pair, network = (times["compute"], times["memory"]), times["network"]
    inner, outer = (float(x) for x in step.question.overlaps) if overlap is None else (overlap, overlap)
    joined = float(overlapped_s(*pair, inner))
    rest = number(step, "time_s") - times["overhead"]
    if overlap is None and rest - (1 - outer) * network >= network:
        joined = rest - (1 - outer) * network
    elif overlap is None and outer < 1:
        joined = (rest - network) / (1 - outer)
    joined = min(max(joined, *pair), sum(pair))
    return sum(pair) - joined, outer * min(joined, network)


def _lanes(times: dict[str, float], inner_s: float, outer_s: float) -> list[_Lane]:
    """Return the rows of a step, from what hides of its two pairs."""
    lanes = {name: _Lane(name, accent, times[name]) for name, accent in RESOURCES.items()}
    long, short = sorted(("memory", "compute"), key=lambda name: -times[name])
    joined = times[long] + times[short] - inner_s
    first = max(times["network"] - joined, 0.0) if outer_s else 0.0  # a longer network starts before
    lanes[long].put(0, 0, 0, times[long])
    lanes[short].put(times[long] - inner_s, inner_s, times[long], times[short] - inner_s)
    if first:
        behind = lanes[long], lanes[short]
        for lane in behind:
            lane.hidden, lane.seen = [*lane.hidden, *lane.seen], []
        lanes["network"].put(0, 0, joined - outer_s, times["network"])
        if joined > outer_s:
            lanes[long].seen, lanes[long].hidden = [(0, joined - outer_s)], [(joined - outer_s, outer_s)]
    else:
        lanes["network"].put(joined - outer_s, outer_s, joined, times["network"] - outer_s)
    end = joined + times["network"] - outer_s
    lanes["overhead"].put(0, 0, end, times["overhead"])
    return [lanes[long], lanes[short], lanes["network"], lanes["overhead"]]


def _sum(times: dict[str, float], inner_s: float, outer_s: float, whole_s: float) -> Row:
    """Return a frame of a step: a row for each resource, and their sum."""
    at = Scale(sum(times.values()), 188)
    lanes = _lanes(times, inner_s, outer_s)
    marks, y = _rows(at, lanes, 12.0)
    marks += _total(at, lanes, y, "step", whole_s)
    short, long = sorted(("compute", "memory"), key=lambda name: times[name])
    behind = {f"of {short} hides behind {long}": inner_s, "of the network behind both": outer_s}
    said = [f"{seconds(x)} {words}" for words, x in behind.items() if x > 0]
    marks.append(text(10, y + TALL + 66, ", ".join(said) or "nothing hides", anchor="start", size=SAID))
    return [*marks, axis(at, y + TALL + 14)]


def _rows(at: Scale, lanes: list[_Lane], y: float) -> tuple[Row, float]:
    """Return the boxes of the rows, what hides without a filling, and where the next row is."""
    marks = Row()
    for lane in lanes:
        marks.append(row_name(y, lane.name))
        marks.append(text(at.left - 10, y + TALL / 2 + 5, seconds(lane.time_s), anchor="end", size=SAID))
        marks += [box(at, y, *one, filled=False) for one in lane.hidden]
        marks += [box(at, y, *one, lane.accent) for one in lane.seen]
        y += TALL + 10
    return marks, y + 6


def _total(at: Scale, lanes: list[_Lane], y: float, name: str, whole_s: float) -> Row:
    """Return the row of the sum: all that is seen, one after another."""
    marks = [row_name(y, name), text(at.left - 10, y + TALL / 2 + 5, seconds(whole_s), anchor="end", size=SAID)]
    return marks + [box(at, y, *one, lane.accent) for lane in lanes for one in lane.seen]


LOST: dict[str, tuple[str, str]] = {  # of each loss: its name in a list, and in a claim
    "spare": ("spare chips stand by", "Spare chips"),
    "waiting": ("too few chips work", "Waits for chips"),
    "writing": ("writing checkpoints", "Checkpoints"),
    "redone": ("work done again", "Repeated steps"),
    "restarting": ("restarting", "Restarts"),
    "slowed": ("racks at a lower rate", "Slow racks"),
}


def checkpoint_and_restart(job: Goodput) -> Drawing:
    """Return a training job's time line around a failure, and the shares of its time that are lost.

    Parameters
    ----------
    job : Goodput
        A job of one point whose parts fail now and then. [-]

    Returns
    -------
    drawing : Drawing
        Work, checkpoints, a failure, the restart and the work done again; below it a bar for each loss. [-]

    Raises
    ------
    ValueError
        Nothing of the job ever fails.

    Notes
    -----
    The failure comes as long after its checkpoint as is lost on average: the share that is done again times the mean
    time between failures.

    Examples
    --------
    >>> import trnmodel as tm
    >>> checkpoint_and_restart(tm.goodput("trn2.48xlarge", 2048, model="llama-3.3-70b")).caption
    'Spare chips cost most, 1.5 % of all chip time'
    """
    between, interval, write = (number(job, f"{name}_s") for name in ("mtbf", "interval", "write"))
    if not np.isfinite([between, interval]).all():
        raise ValueError("job: nothing of it fails, so that there is no restart to draw")
    lost = {name: number(job, f"{name}_lost") for name in LOSSES}
    working = (1 - lost["spare"]) * number(job, "ready_share")
    again = min(lost["redone"] / working * between, interval)
    restart = float(job.fleet.restart_s)
    most = max(lost, key=lambda name: lost[name])
    marks = _around_failure(interval, write, again, restart)
    said = f"a failure every {seconds(between)} on average, a checkpoint every {seconds(interval)} of work"
    marks.append(text(10, 176, said, anchor="start", size=SAID))
    marks += _losses(lost, number(job, "goodput"))
    return Drawing(
        name_of("restart", job.system.id, f"{number(job, 'chips'):.0f}", "" if job.model is None else job.model.id),
        f"{LOST[most][1]} cost most, {percent(lost[most])} of all chip time",
        424,
        marks,
        note="The line above is to scale around one failure, and the bars below share out the time of all chips.",
        alt=f"{number(job, 'chips'):,.0f} chips of {job.system.id}: {percent(number(job, 'goodput'))} useful; lost: "
        + ", ".join(f"{LOST[name][0]} {percent(x)}" for name, x in lost.items()),
    )


def _around_failure(interval_s: float, write_s: float, again_s: float, restart_s: float) -> Row:
    """Return the time line from one checkpoint before a failure to one after it."""
    plan: list[tuple[str, float, Accent]] = [
        ("work", interval_s, "b"),
        ("checkpoint", write_s, "c"),
        ("lost", again_s, ""),
        ("restart", restart_s, "e"),
        ("again", again_s, "a"),
        ("work", interval_s - again_s, "b"),
        ("checkpoint", write_s, "c"),
        ("work", interval_s / 2, "b"),
    ]
    at, y, now = Scale(sum(length for _, length, _ in plan), 14), 78.0, 0.0
    marks = legend([("work", "b"), ("checkpoint", "c"), ("lost work", ""), ("restart", "e"), ("done again", "a")])
    starts = list[float]()
    for name, length, accent in plan:
        starts.append(now)
        marks.append(box(at, y, now, length, accent, said=name if len(starts) in LABELLED else ""))
        now += length
    failure = at.x(starts[3])
    marks.append(line(failure, y - 12, failure, y + TALL + 4, accent="a", wide=3))
    marks.append(text(failure, y - 18, "failure", size=SAID, accent="a"))
    return [*marks, axis(at, y + TALL + 16)]


def _losses(lost: dict[str, float], useful: float) -> Row:
    """Return the useful share in a line, and a bar for each loss on one scale."""
    left, top = 268.0, 206.0
    scale = (WIDTH - 90 - left) / max(lost.values())
    marks = [text(10, top, f"useful {percent(useful)}", anchor="start", size=17, bold=True)]
    marks.append(text(left, top, f"lost {percent(1 - useful)}, of which", anchor="start", size=17, bold=True))
    for i, (name, share) in enumerate(sorted(lost.items(), key=lambda one: -one[1])):
        y = top + 16 + i * 32
        broad = share * scale
        marks.append(text(10, y + 18, LOST[name][0], anchor="start", size=SAID))
        marks.append(rect(left, y, broad, 22, accent=_LOSS_ACCENTS.get(name, ""), radius=0))
        marks.append(text(left + broad + 8, y + 17, percent(share), anchor="start", size=SAID))
    return marks


LABELLED = (1, 4)  # pieces of the time line around a failure that have their name in them
_LOSS_ACCENTS: dict[str, Accent] = {"writing": "c", "redone": "a", "restarting": "e"}
SENT: dict[str, tuple[str, Accent]] = {
    "tensor_s": ("TP exchange", "d"),
    "expert_s": ("EP exchange", "d"),
    "context_s": ("CP exchange", "d"),
    "pipeline_s": ("PP exchange", "d"),
    "data_s": ("gradients", "d"),
}
WORKS: dict[str, tuple[str, Accent]] = {
    "forward_s": ("forward", "b"),
    "recompute_s": ("recompute", "c"),
    "backward_s": ("backward", "a"),
}
OTHERS: dict[str, tuple[str, Accent]] = {
    "host_s": ("host", "e"),
    "bubble_s": ("bubble", "e"),
    "optimizer_s": ("optimizer", "e"),
    "straggler_s": ("stragglers", "e"),
    "overhead_s": ("overhead", "e"),
}


def micro_batch_of_training(step: TrainStep) -> Drawing:
    """Return a micro-batch of training with what hides of its exchanges, and the whole step that it is part of.

    Parameters
    ----------
    step : TrainStep
        A training step of one point. [-]

    Returns
    -------
    drawing : Drawing
        A frame with one micro-batch, and one with all parts of the step, which add up. [-]

    Notes
    -----
    How long an exchange takes by itself is its part of a step in which nothing hides. Exchanges run between the layers;
    they are drawn together, after the work that they wait for.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"count": 32, "global_batch": 1024, "seq": 4096}
    >>> step = tm.train_step("llama-3.3-70b", "trn2.48xlarge", tm.Mapping(tp=32, pp=8, dp=8), **ask)
    >>> micro_batch_of_training(step).caption
    'Exchanges that nothing hides take 38 % of the step'
    """
    parts = {name: number(step, name) for name in (*WORKS, *EXCHANGES, *OTHERS)}
    plain = answers_of(replace(step.question, hidden=0.0))
    sent = {name: max(float(plain[name]), parts[name]) for name in EXCHANGES}
    whole, many = number(step, "time_s"), number(step, "microbatches")
    each = [name for name in (*WORKS, *EXCHANGES) if name != "data_s"]
    frames = {
        "one micro-batch": _frame(
            {name: parts[name] / many for name in each},
            {name: sent[name] / many for name in each if name in sent},
            "micro-batch",
        ),
        f"all {many:,.0f} of a step": _frame(parts, sent, "step"),
    }
    share = sum(parts[name] for name in EXCHANGES) / whole
    rows = [1 + sum(sent[name] > 0 for name in each if name in sent)]
    rows.append(1 + sum(x > 0 for x in sent.values()) + sum(parts[name] > 0 for name in OTHERS))
    heights = [_height(each) for each in rows]
    return Drawing(
        name_of("training", step.model.id, step.system.id, f"{whole:.6g}"),
        f"Exchanges that nothing hides take {percent(share)} of the step",
        max(heights),
        [],
        frames=frames,
        heights=heights,
        note="Filled boxes add up to the last row, and outlined ones are exchanges that run while the chips work.",
        alt=f"{step.model.id} on {step.system.id}, a step of {seconds(whole)}: "
        + ", ".join(f"{name.removesuffix('_s')} {percent(x / whole)}" for name, x in parts.items() if x > 0),
    )


def _height(rows: int) -> float:
    """Return the height of a frame with so many rows above its sum."""
    return 12 + rows * (TALL + 10) + 6 + TALL + 66


def _frame(parts: dict[str, float], sent: dict[str, float], name: str) -> Row:
    """Return the work in a row, exchanges and the rest in others, and the sum of what is seen."""
    now, work = 0.0, list[_Lane]()
    for key, (label, accent) in WORKS.items():
        lane = _Lane(label, accent, parts[key])
        lane.put(0, 0, now, lane.time_s)
        now += lane.time_s
        work.append(lane)
    worked, begun, lanes = now, 0.0, list[_Lane]()
    for key, (label, accent) in (SENT | OTHERS).items():
        whole, seen = sent.get(key, parts.get(key, 0.0)), parts.get(key, 0.0)
        if whole > 0:
            lane = _Lane(label, accent, whole)
            lane.put(begun, whole - seen, now, seen)
            begun, now = begun + whole - seen, now + seen
            lanes.append(lane)
    at, y = Scale(now, 208), 12.0
    marks = [row_name(y, "work"), text(at.left - 10, y + TALL / 2 + 5, seconds(worked), anchor="end", size=SAID)]
    for lane in work:
        marks += [box(at, y, *one, lane.accent, said=lane.name) for one in lane.seen]
    more, y = _rows(at, lanes, y + TALL + 10)
    marks += more + _total(at, [*work, *lanes], y, name, now)
    said = f"{seconds(begun)} of exchanges hides behind the work" if begun > 1e-6 * now else "no exchange hides"
    marks.append(text(10, y + TALL + 60, said, anchor="start", size=SAID))
    return [*marks, axis(at, y + TALL + 14)]
