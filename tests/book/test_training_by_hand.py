"""Tables of the chapter on training, of runs that are worked out by hand."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import training_table as train_table
from trnbook.shared import domain_sizes


def test_parts_of_runs_that_take_time_in_any_are_rows():
    """Steps of 4 s in runs of 8 days: 1 s of it is 2 days; a part that takes no time anywhere is no row."""

    def run(**seconds):
        parts = dict.fromkeys(train_table.PARTS, 0.0) | seconds
        return SimpleNamespace(step=SimpleNamespace(time_s=4.0, **parts), days=8.0)

    first, second, *_ = train_table.PARTS
    table = train_table.parts({"a": run(**{first: 1.0}), "b": run(**{second: 4.0})})
    words = train_table.PARTS
    assert table.columns.tolist() == ["of", "part", "run_days"]
    assert table.values.tolist() == [
        ["a", words[first], 2.0],
        ["a", words[second], 0.0],
        ["b", words[first], 0.0],
        ["b", words[second], 8.0],
    ]
    assert table.index.tolist() == [0, 1, 2, 3]


def test_an_elder_is_of_an_earlier_year_and_has_neuroncores():
    trn1, trn2, gpu = (tm.system(name) for name in ("trn1.32xlarge", "trn2.48xlarge", "hgx-h100"))
    assert train_table.elder(trn1, trn2)
    assert not train_table.elder(trn2, trn1)
    assert not train_table.elder(trn2, tm.system("trn2-ultraserver"))
    assert not train_table.elder(replace(gpu, chip=replace(gpu.chip, year=2000)), trn2)
    assert not train_table.elder(trn1, gpu)


def test_all_degrees_of_a_domain_are_placed_once():
    """Groups fill tiers of 4 chips, 8 trays and 2 racks evenly; orders differ where experts are some of the ranks."""
    spec = tm.system("trn3-nl32x2-pcie160")
    table = domain_sizes.placed(spec)
    sizes = [1, 2, 4, 8, 16, 32, 64]
    nested = [(a, b, c) for a, b, c in product(sizes, repeat=3) if b % a == 0 and c % b == 0]
    inner = {("ep", a, b // a, c // b, 64 / c) for a, b, c in nested}
    outer = {("tp", c // b, a, b // a, 64 / c) for a, b, c in nested if 1 < c // b < c}
    rows = [tuple(row) for row in table[["inner", "ep", "tp", "cp", "dp"]].itertuples(index=False)]
    assert len(rows) == len(set(rows))
    assert {row[0] for row in rows} == {"ep", "tp"}
    assert sorted(rows) == sorted(inner | outer)


# Tables and words of runs

HEAD = train_table.Key("m", "new", "bf16", "public")


def made(days=10.0, tflop=100.0, chip="Chip", valid=True, chips=216.0, **step):
    """A run as far as its tables tell of it; two ranks a chip, steps of 4 s."""
    at = (
        dict.fromkeys(train_table.PARTS, 0.0)
        | {"time_s": 4.0, "peak_flop_per_s": tflop * 1e12 / 2, "ranks_per_chip": 2.0}
        | step
    )
    spec = SimpleNamespace(chip=SimpleNamespace(name=chip), domain_chips=72)
    model = SimpleNamespace(id="m", outline=lambda phase: SimpleNamespace(experts=8))
    return SimpleNamespace(
        days=days,
        valid=valid,
        system=spec,
        step=SimpleNamespace(**at),
        chips=chips,
        model=model,
        reason="does not fit",
        mfu=0.354,
        ends=lambda name: (days, days),
    )


def key(system="new", precision="bf16", kind="public", model="m"):
    return train_table.Key(model, system, precision, kind)


def test_what_8_bits_bring_by_hand():
    """500 over 200 TFLOP/s are 2.5, 12 over 8 days 1.5; a third format, other models and software are left out."""
    found = {
        key(): made(12.0, 200.0),
        key(precision="fp8"): made(8.0, 500.0),
        key(precision="mxfp8"): made(1.0, 1.0),
        key("old"): made(9.0, 70.0),
        key("older", model="n"): made(3.0, 3.0),
        key("older", kind="ideal"): made(3.0, 3.0),
    }
    first, second = train_table.gains(found, HEAD).to_dict("records")
    assert first == {
        "system": "new",
        "wide_in": "BF16",
        "wide_flop_per_s": 200e12,
        "wide_days": 12.0,
        "narrow_in": "FP8",
        "narrow_flop_per_s": 500e12,
        "narrow_days": 8.0,
        "peak_ratio": 2.5,
        "speedup": 1.5,
    }
    assert (second["system"], second["wide_days"]) == ("old", 9.0)
    np.testing.assert_equal([second[name] for name in ("narrow_days", "peak_ratio", "speedup")], [np.nan] * 3)


def test_runs_of_a_level_are_alike_and_fit():
    found = {key("a"): made(1.0), key("b"): made(2.0), key("c"): made(3.0, valid=False), key("a", "fp8"): made(4.0)}
    assert {name: run.days for name, run in train_table.level(found, HEAD).items()} == {"a": 1.0, "b": 2.0}


def newer(old_days=12.0, narrow=5.0, **ideal):
    """Steps of 4 s: of 12 days 6 are backward, of 8 days 2; forward is 3 days against 6."""
    return {
        key("old"): made(old_days, 500.0, "Old", backward_s=2.0, forward_s=1.0),
        key(): made(8.0, 1200.0, "New", backward_s=1.0, forward_s=3.0),
        key("old", kind="ideal"): made(6.0, 500.0, **ideal),
        key(kind="ideal"): made(5.0, 1200.0),
        key("old", "fp8"): made(15.0, 1000.0),
        key(precision="mxfp8"): made(narrow, 2500.0),
    }


def test_why_a_newer_chip_brings_little_by_hand():
    """12 over 8 days and 6 over 5; 6 days of the one against 2 of the other; 15 days over 5 in 8 bits."""
    called = {"new": "the rack", "old": "the server"}
    rates = "**In BF16 New computes 1,200 TFLOP/s, Old 500**, 2.40 times as much."
    times = "the rack is as many times as fast as the server: {}."
    most = "Most of the difference on public software is backward, 6 days against 2."
    eight = "In 8 bits on both (MXFP8 beside FP8) it is 3.00 times."
    both = times.format("1.50 on public software, 1.20 on ideal software")
    assert train_table.why_little(newer(), HEAD, "old", called) == f"{rates} {both} {most} {eight}"
    alone = times.format("1.50 on public software")
    assert alone in train_table.why_little(newer(valid=False), HEAD, "old", called)
    told = train_table.why_little(newer(1.02 * 8.0), HEAD, "old", called)  # a fiftieth is no difference
    assert told == f"{rates} {times.format('1.02 on public software, 1.20 on ideal software')} {eight}"
    assert "Most of" in train_table.why_little(newer(8.17), HEAD, "old", called)
    assert train_table.why_little(newer(narrow=np.nan), HEAD, "old", called) == f"{rates} {both} {most}"


def test_what_moves_a_run(monkeypatch):
    """A quarter, a half, twice, four times of three domains of 72: one, two, six and twelve; half and twice of 7."""
    asked = []

    def train_run(systems, **ask):
        asked.append(ask)
        if ask["chips"] == 144:
            raise ValueError("none")
        return made(33.333, valid=ask["chips"] != 432)

    def again(run, straggler=0.0, expert_imbalance=1.0):
        return SimpleNamespace(time_s=4.0 * (1 + straggler) * expert_imbalance, valid=run.days != 5.0, reason="full")

    monkeypatch.setattr(train_table, "train_run", train_run)
    monkeypatch.setattr(train_table, "again", again)
    found = {key(): made(), key(model="n"): made(5.0), key(model="o"): made(valid=False), key("old"): made()}
    told = train_table.moves(found, HEAD, {"model": "m", "global_batch": 7}, 210.0)
    assert told.splitlines() == [
        "* **72 chips**: 33.3 days, MFU 35%.",
        "* **432 chips**: does not fit.",
        "* **864 chips**: 33.3 days, MFU 35%.",
        "* **3 sequences a step**: 33.3 days, MFU 35%.",
        "* **14 sequences a step**: 33.3 days, MFU 35%.",
        "* **A slowest rank that takes 5% longer**: +5.0% time.",
        "* **Experts of m that fill unevenly**, a rank with 1.5 times the mean: +50% time.",
        "* **Experts of n that fill unevenly**, a rank with 1.5 times the mean: full.",
    ]
    how = {
        "precision": "bf16",
        "efficiencies": "public",
        "zero": (1, 3),
        "recompute": ("none", "full"),
        "best": 2,
        "model": "m",
    }
    assert asked == [
        how | {"chips": chips, "global_batch": batch}
        for chips, batch in ((72, 7), (144, 7), (432, 7), (864, 7), (210.0, 3), (210.0, 14))
    ]
    few = train_table.moves({key(): made(chips=72.0)}, HEAD, {"global_batch": 1}, 72.0)
    assert [line.split("**")[1] for line in few.splitlines()][:-2] == [
        "72 chips",
        "288 chips",
        "1 sequences a step",
        "2 sequences a step",
    ]


def test_days_of_a_run_or_why_it_has_none():
    assert train_table.days(None) == "no such software"
    assert train_table.days(made(valid=False)) == "does not fit"
    wide = SimpleNamespace(valid=True, days=20.0, ends=lambda name: (15.0, 31.0))
    assert train_table.days(wide) == "20 (15 to 31)"
    assert train_table.in_percent(0.5, 0.4, 0.613) == "50% (40 to 61)"
    assert train_table.in_percent(0.1234, 0.1234, 0.1234) == "12.3%"


def test_the_run_of_a_question_or_why_there_is_none(monkeypatch):
    """The first kind of software that there is; 1.5 GiB lack, or nothing lacks and nothing runs."""
    run, asked = made(), []
    monkeypatch.setattr(train_table, "train_run", lambda **ask: (asked.append(ask), run)[1])
    found = {key("s", kind="ideal"): run, key("s", kind="hand-tuned"): run}
    ask = ("m", {"model": "m"}, "s", "bf16", 512.0)
    assert train_table.whole(found, *ask) is run
    assert train_table.whole({}, *ask) is run
    how = {"systems": "s", "chips": 512.0, "precision": "bf16", "model": "m"}
    assert asked == [how | {"efficiencies": kind} for kind in ("hand-tuned", "public")]
    run.valid = False
    for missing, lacks in ((1.5 * 2**30, "the fullest rank lacks 1.5 GiB"), (0.0, "no mapping can run")):
        run.missing_bytes = missing
        with pytest.raises(ValueError, match=f"^m on 216 chips of s: does not fit; {lacks}$"):
            train_table.whole(found, *ask)


def test_policies_that_keep_other_bytes(monkeypatch):
    """ZeRO 3 keeps as much with all layers computed again as with scores alone, and is asked for once."""
    asked = []
    kept = {(0, "none"): 9.0, (0, "selective"): 8.0, (0, "full"): 7.0, (1, "none"): 7.0, (1, "selective"): 6.0}

    def train_step(model, system, mapping, **ask):
        asked.append(ask)
        stored = dict.fromkeys(train_table.STORED, 0.5)
        held = kept.get((ask["zero"], ask["recompute"]), 5.0)
        return SimpleNamespace(memory_bytes_per_rank=held, capacity_bytes=80.0, **stored)

    monkeypatch.setattr(train_table, "train_step", train_step)
    monkeypatch.setattr(train_table, "largest_micro_batch", lambda *spec, **ask: ask["zero"] + 2)
    step = SimpleNamespace(precision="bf16", sequence_parallel=True, global_batch=64.0, seq=512.0)
    run = SimpleNamespace(step=step, stack="e", model="m", system="s", mapping="x")
    table = train_table.memory(run)
    words = [
        "ZeRO 0, no recompute",
        "ZeRO 0, selective recompute",
        "ZeRO 0, full recompute",
        "ZeRO 1, no recompute",
        "ZeRO 1, selective recompute",
        "ZeRO 1, full recompute",
        "ZeRO 3, no recompute",
    ]
    assert table.of.drop_duplicates().tolist() == words
    assert table.most[:: len(train_table.STORED)].tolist() == [2.0] * 3 + [3.0] * 3 + [5.0]
    assert table.kind[: len(train_table.STORED)].tolist() == list(train_table.STORED.values())
    assert (table.capacity_bytes == 80.0).all()
    assert (table.stored_bytes == 0.5).all()
    assert asked[0] == {
        "precision": "bf16",
        "sequence_parallel": True,
        "global_batch": 64,
        "seq": 512,
        "efficiencies": "e",
        "zero": 0,
        "recompute": "none",
    }
    assert len(asked) == 9
