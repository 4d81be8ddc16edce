"""What every result can do."""

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.result import Basis, Judged, Result, alike, blank, reason_mask, text_of, tidy, weakest


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Answer(Result):
    REASONS: ClassVar[tuple[str, ...]] = ("too many ranks", "too large")
    system: object
    algorithm: str
    n_ranks: np.ndarray
    size_bytes: np.ndarray
    time_s: np.ndarray
    by_operator: dict

    @property
    def rate_bytes_per_s(self):
        return self.size_bytes / self.time_s

    @property
    def bound(self):
        return text_of(np.where(self.size_bytes > 1, 2, 1), ("latency", "bandwidth"))


def answer(n_ranks, size_bytes):
    n_ranks, size_bytes = np.asarray(n_ranks), np.asarray(size_bytes)
    mask = reason_mask(n_ranks > 64, size_bytes > 100)
    numbers = blank(mask, time_s=size_bytes * 2.0)
    return Answer(
        system=SimpleNamespace(id="a-system"),
        algorithm="ring",
        n_ranks=n_ranks,
        size_bytes=size_bytes,
        by_operator={},
        **numbers,
        reason_mask=mask,
    )


def test_frame_is_tidy():
    frame = answer([[2], [128]], [1, 10, 1000]).to_frame()
    assert list(frame.columns) == [
        "system",
        "algorithm",
        "n_ranks",
        "size_bytes",
        "time_s",
        "rate_bytes_per_s",
        "bound",
        "valid",
        "reason",
    ]
    assert list(frame.n_ranks) == [2, 2, 2, 128, 128, 128]
    assert list(frame.size_bytes) == [1, 10, 1000] * 2
    assert set(frame.system) == {"a-system"}
    assert list(frame.bound[:3]) == ["latency", "bandwidth", "bandwidth"]
    np.testing.assert_array_equal(frame.time_s.isna(), ~frame.valid)


def test_rows_of_arrays_and_of_numbers_are_counted_through():
    table = tidy([{"chip": "a", "batch": np.array([5, 7])}, {"chip": "b", "batch": 3}])
    assert table.index.tolist() == [0, 1, 2]
    assert table.values.tolist() == [["a", 5], ["a", 7], ["b", 3]]
    assert tidy([{"chip": "a", "batch": None}, {"chip": "b", "batch": 3}]).chip.tolist() == ["a", "b"]


def test_reasons_are_the_same_for_one_point_and_for_many():
    many = answer([2, 128, 128], [1, 1, 1000])
    assert list(many.reason) == ["", "too many ranks", "too many ranks; too large"]
    for n_ranks, size_bytes, reason in zip([2, 128, 128], [1, 1, 1000], many.reason, strict=True):
        one = answer(n_ranks, size_bytes)
        assert one.reason == reason
        assert bool(one.valid) is (reason == "")
        assert np.isnan(one.time_s) == (reason != "")
        assert len(one.to_frame()) == 1


def test_require_valid():
    good = answer(2, 1)
    assert good.require_valid() is good
    with pytest.raises(ValueError, match="1 of 2 points cannot exist: too many ranks"):
        answer([2, 65], 1).require_valid()
    with pytest.raises(ValueError, match="1 of 1 points cannot exist: too large"):
        answer(2, 101).require_valid()


def test_results_are_frozen_and_slotted():
    with pytest.raises((AttributeError, TypeError)):
        answer(2, 1).time_s = 0.0
    assert not hasattr(answer(2, 1), "__dict__")


RESULTS = [
    tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=4, context=2048),
    tm.decode_step("deepseek-v3", "trn2.48xlarge", tm.Mapping(tp=[1, 8, 64]), batch=[[1], [4]], context=2048),
    tm.prefill("llama-3.1-8b", "hgx-h200", input_tokens=1000),
    tm.memory_fit("llama-3.1-405b", "trn2.3xlarge", tm.Mapping(tp=4), batch=4, context=2048),
    tm.collective("all_reduce", [0.0, 64e6], "trn3-nl72x2-pcie160", ranks=64),
    tm.kernel.matmul("trainium3", 1024, 1024, 1024),
    tm.clos(switch_bits_per_s=51.2e12, port_bits_per_s=400e9, layers=2),
]


@pytest.mark.parametrize("found", RESULTS, ids=range(len(RESULTS)))
def test_every_result_is_a_few_lines(found):
    text = repr(found)
    assert text.startswith(f"{type(found).__name__}:")
    assert len(text.splitlines()) <= 8
    assert len(text) < 1000
    assert "nan" not in text
    assert "e+" not in text
    assert "array(" not in text
    assert found._repr_html_().startswith("<div><b>" + type(found).__name__)


def test_a_card_says_the_figure_with_its_band_first():
    step = RESULTS[0]
    low, high = (f"{1e3 * float(end):.2g}" for end in (step.low, step.high))
    assert step.card()[0] == f"Step: time {1e3 * float(step.time_s):.2g} ms ({low} to {high}; {step.basis})"
    assert RESULTS[3].card()[0].startswith("MemoryFit: total ")  # it keeps its numbers
    assert "; cannot exist: does not fit in memory" in RESULTS[3].card()[0]
    big = tm.decode_step("llama-3.1-405b", "trn2.3xlarge", batch=1, context=8)
    assert big.card()[0] == "Step: cannot exist: does not fit in memory"


def test_a_name_in_a_card_is_no_html():
    step = RESULTS[0]
    named = dataclasses.replace(step, model=dataclasses.replace(step.model, id="a<b>c"))
    assert "a&lt;b&gt;c" in named._repr_html_()


def test_a_step_has_tokens_a_chip():
    step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=2, dp=9), batch=4, context=2048)
    assert (step.occupied_chips, step.tokens_per_s_per_chip) == (5, step.tokens_per_s / 5)  # 18 ranks, four a chip


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Timed(Judged):
    REASONS: ClassVar[tuple[str, ...]] = ("too slow",)
    time_s: np.ndarray
    batch: np.ndarray
    rests_on: Basis
    half_widths: object = None
    name: object = "one"

    def judge(self):
        return self.rests_on

    def _widths(self, name, part=""):
        return self.half_widths(name) if self.half_widths else self.rests_on.sides


def timed(time_s, word="measured", batch=1, name="one", width=0.0, tails=None, why="", **more):
    time_s = np.asarray(time_s)
    basis = Basis(word if time_s.ndim == 0 else np.full(time_s.shape, word, dtype=object), why, width, tails)
    return Timed(
        time_s=time_s,
        batch=np.asarray(batch),
        name=name,
        reason_mask=reason_mask(time_s != time_s),
        stack=SimpleNamespace(id="a-stack", kind="given"),
        rests_on=basis,
        **more,
    )


@pytest.mark.parametrize(
    ("found", "card"),
    [
        (
            timed(0.0123, why="chip: x"),
            ["Timed: time 12.3 ms (measured)", "software stack: a-stack, name: one", "sequences in the batch: 1"],
        ),
        (timed([0.5, 0.5]), ["Timed: 2 points, time 500 ms, measured"]),
        (timed([0.002, 0.5, np.nan]), ["Timed: 3 points, time 2 to 500 ms, measured; 1 cannot exist: too slow"]),
        (timed(np.nan), ["Timed: cannot exist: too slow", "software stack: a-stack, name: one"]),
        (
            timed(1.0, batch=[1, 2.5]),
            ["Timed: time 1 s (measured)", "software stack: a-stack, name: one", "sequences in the batch: 1 to 2.5"],
        ),
        (
            timed(1.0, batch=[3, 123456789]),
            ["Timed: time 1 s (measured)", None, "sequences in the batch: 3 to 123,456,789"],
        ),
        (timed(1.0, batch=1234.56789), ["Timed: time 1 s (measured)", None, "sequences in the batch: 1,235"]),
        (timed(np.full(4096, 2.0)), ["Timed: 4096 points, time 2 s, measured"]),
        (timed(np.full(4097, 2.0)), ["Timed: 4097 points, time 2 s"]),  # of so many the basis is not asked
    ],
    ids=range(9),
)
def test_cards(found, card):
    for line, expected in zip(found.card(), card, strict=False):
        assert expected is None or line == expected


def test_a_card_is_eight_lines_of_118_letters():
    """Of texts three are shown; an item of up to half a line is not broken, a longer one is."""
    names = np.array([letter * 40 for letter in "abcd"], dtype=object)
    assert timed(1.0, name=names).card()[1:] == [
        f"software stack: a-stack, name: {names[0]}, {names[1]},",
        f"{names[2]} ...",
        "sequences in the batch: 1",
    ]
    assert timed(1.0, name=names[:3]).card()[2] == names[2]
    many = timed(1.0, name=" ".join("x" * 900)).card()
    assert len(many) == 8
    assert many[7].endswith("x ...")
    assert all(len(line) <= 118 for line in many)


@pytest.mark.parametrize(("cells", "text"), [(True, "yes"), (False, "no"), ([True, False, True], "yes and no")])
def test_truth_is_printed_as_a_word(cells, text):
    assert f"sequences in the batch: {text}" in "\n".join(timed(1.0, batch=cells).card())


def test_what_the_title_says_is_not_said_again():
    card = repr(tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=4, context=2048))
    assert "throughput per chip: 233 tokens/s," in card
    assert "per rank: 3.15 GiB," in card


def test_ends_of_a_time_and_of_a_rate():
    """A time may be e^0.5 longer and e^0.25 shorter; what is a second is the other way round."""
    found = timed(2.0, tails=(0.25, 0.5), width=0.4)
    assert found.ends("time_s") == pytest.approx((2 * np.exp(-0.25), 2 * np.exp(0.5)), rel=1e-12)
    assert (found.low, found.high) == found.ends("time_s")
    assert timed(2.0, width=0.4).ends("time_s") == pytest.approx((2 * np.exp(-0.4), 2 * np.exp(0.4)), rel=1e-12)
    asked = timed(2.0, width=0.4, half_widths=lambda name: (0.1, len(name)))
    assert asked.widths("time_s") == (0.1, 6)
    assert asked.banded("batch") == pytest.approx({"batch": 1, "batch_low": np.exp(-0.1), "batch_high": np.exp(5)})
    assert found.in_words("time_s", "ms", "ideal", 1e-3) == "2,000 ms (1,600 to 3,300; ideal)"
    assert (found.ground(), timed(1.0, why="chip: x").ground()) == ("measured", "measured (chip: x)")
    with pytest.raises(ValueError, match="one point, not of 2"):
        timed([1.0, 2.0]).ground()
    below, above = RESULTS[0].widths("tokens_per_s")
    made = RESULTS[0].tokens_per_s
    assert RESULTS[0].ends("tokens_per_s") == pytest.approx((made * np.exp(-above), made * np.exp(below)), rel=1e-12)


def test_ends_are_columns_where_they_are_asked_for():
    found = timed([1.0, 2.0], width=0.5)
    assert {"low", "high"} & {*found.to_frame()} == set()
    assert found.to_frame(bands=True).high.tolist() == pytest.approx([np.exp(0.5), 2 * np.exp(0.5)])


def test_the_weakest_part_and_the_widest_width():
    """Words from measured to ideal; tails of one part are widths of the other."""
    parts = {
        "prefill": Basis("measured", "", 0.3),
        "decode": Basis(np.array(["interpolated", "extrapolated"]), "far", 0.2, (0.1, 0.7)),
    }
    found = weakest(parts)
    assert found.word.tolist() == ["interpolated", "extrapolated"]
    assert (found.reason, found.width, found.sides) == ("decode far", 0.3, (0.3, 0.7))
    even = weakest({"a": Basis("ideal", "same", 0.3), "b": Basis("measured", "same", 0.5)})
    assert even == ("ideal", "same", 0.5, None)


@pytest.mark.parametrize(
    ("rows", "fits"),
    [
        ([("a", "ideal"), ("b", "ideal")], True),
        ([("a", "ideal"), ("a", "public"), ("b", "public"), ("b", "ideal")], True),  # both of both
        ([("a", "ideal"), ("b", "public")], False),
        ([("a", "ideal"), ("a", "public"), ("b", "public")], False),
    ],
)
def test_systems_stand_on_the_same_kinds_of_stack(rows, fits):
    table = tidy({"prefill_system": where, "stack_kind": kind} for where, kind in rows)
    assert alike(table, mixed=True) is table
    assert alike(table.rename(columns={"prefill_system": "place"})) is not None
    if fits:
        assert alike(table) is table
    else:
        with pytest.raises(ValueError, match="different kinds of stack"):
            alike(table)


@pytest.mark.parametrize("batch", [[16], [[16]]])
def test_one_point_of_any_shape_has_the_card_of_a_number(batch):
    ask = {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8), "context": 2048}
    one, same = tm.decode_step(batch=16, **ask), tm.decode_step(batch=batch, **ask)
    assert same.card()[0] == one.card()[0]
    assert same.in_words("time_s", "s") == one.in_words("time_s", "s")
