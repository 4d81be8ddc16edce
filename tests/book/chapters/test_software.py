"""What software costs, as its chapter tells it: order, digits, ties, maps and lanes, with arithmetic by hand."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import trnmodel as tm
from trnbook import report
from trnbook.chapters import software as tables
from trnbook.chapters import software_break_even as contests
from trnbook.shared import software_kinds
from trnmodel.units import GB, TRILLION

SMALL, LARGE, TORUS = "trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus"
LLAMA, EIGHT_BITS = "llama-3.3-70b", ("mxfp8", "fp8", "bf16")
REQUEST = tm.Request(4096, 512)


@pytest.fixture(scope="module")
def dense():
    return software_kinds.answers(LLAMA, systems=[SMALL, "hgx-h200"], tokens_per_s_per_user=[20.0, 1e4])


@pytest.fixture(scope="module")
def tied():
    return contests.ties(LLAMA, SMALL, ["hgx-h200", "gb200-nvl72"], [20.0, 50.0, 1e4])


@pytest.fixture(scope="module")
def won():
    return contests.domains([671026404352, 8 * TRILLION], [10.0, 50.0, 1e6], (SMALL, LARGE))


def test_a_row_a_speed_and_system_with_the_band_in_its_digits(dense):
    table = tables.software_kinds.side_by_side(dense)
    assert len(table) == 4
    assert table.system.tolist()[:2] == ["Trainium3 NL32x2 Switched", "8 x H200 SXM"]
    first, line = table.iloc[0], software_kinds.line(dense, 20.0, SMALL, "hand-tuned")
    assert first["hand-tuned"] == software_kinds.in_band(*line[software_kinds.YIELD])
    assert (table.public.iloc[2:] == "none").all()  # 1e4 tokens/s: 80 layers of 140 us alone are 11 ms
    assert table["public loses to"].iloc[2].startswith("at most ")


def test_racks_that_differ_in_their_switches_alone_have_names_of_their_own():
    assert list(software_kinds.names([SMALL, TORUS]).values()) == [
        "Trainium3 NL32x2 Switched",
        "Trainium3 NL32x2 3D Torus",
    ]
    assert len(set(software_kinds.names([SMALL, "trn3-nl32x2-pcie320"]).values())) == 2


def test_bars_begin_where_the_last_ended():
    fall = software_kinds.waterfall(LLAMA, SMALL, tm.Mapping(tp=16), batch=32, context=4096, precision="mxfp8")
    drawn = tables.bars(fall)
    assert drawn.which.is_unique
    assert (drawn.step_s_high - drawn.step_s_low).tolist() == pytest.approx(fall.bar_s.abs().tolist())
    assert "to hand-tuned most is added by layer overhead, 4.3 ms (0 to 8.6)" in tables.largest(fall)  # 80 x 53.6 us


def test_the_share_that_ties_is_a_ratio_of_yields(tied):
    own = software_kinds.answers(LLAMA, REQUEST, [SMALL], [20.0])
    rival = software_kinds.answers(LLAMA, REQUEST, ["gb200-nvl72"], [20.0])
    ideal = software_kinds.line(own, 20.0, SMALL, "ideal").tokens_per_s_per_chip
    for kind in software_kinds.ORDER:
        at = tied[(tied.system == "gb200-nvl72") & (tied.software == kind)].iloc[0]
        made = software_kinds.line(rival, 20.0, "gb200-nvl72", kind).tokens_per_s_per_chip
        assert at.share_of_ideal == pytest.approx(made / ideal)
    hand = tied[(tied.system == SMALL) & (tied.software == "hand-tuned")].iloc[0]
    line = software_kinds.line(own, 20.0, SMALL, "hand-tuned")
    assert [*hand[contests.SHARES]] == pytest.approx([line[name] / ideal for name in software_kinds.YIELD])


def test_above_one_no_software_ties(tied):
    """GB200 reads 8 TB/s and Trainium3 4.9: ideally it makes more at any speed that both reach."""
    table = contests.tie_table({LLAMA: tied}, SMALL, [20.0, 1e4]).set_index(["whose", "software"])
    assert table.loc[("GB200 NVL72", "ideal"), "no software ties"] == "20 to 50 tokens/s"
    assert table.loc[("8 x H200 SXM", "public"), "no software ties"] == ""
    assert (table["at 10000 tokens/s"] == "not as fast").all()
    least, most = contests.spans(tied, SMALL, 20.0)
    others = tied[(tied.system != SMALL) & (tied.promised_tokens_per_s_per_user == 20)].share_of_ideal
    assert (least, most) == (others.min(), others.max())


def test_only_the_systems_own_line_has_a_band(tied):
    drawn = tables.tie_lines(tied, SMALL)
    banded = drawn[drawn.share_of_ideal_low.notna()]
    assert set(banded.system) == {"Trainium3"}
    assert set(banded.software) == {"hand-tuned"}
    assert (drawn.share_of_ideal >= tables.SHOWN).all()


def test_the_map_asks_the_question_of_the_table(won):
    """A model of DeepSeek-V3's size is DeepSeek-V3: the ratio is that of the answers of the chapter on switch trays."""
    asked = software_kinds.answers("deepseek-v3", REQUEST, [SMALL, LARGE], [50.0])
    for kind in ("hand-tuned", "ideal"):
        made = [software_kinds.line(asked, 50.0, name, kind).tokens_per_s_per_chip for name in (SMALL, LARGE)]
        at = won[(won.software == kind) & (won.total_params < TRILLION) & (won.tokens_per_s_per_user == 50)].iloc[0]
        assert at.ratio == pytest.approx(made[1] / made[0])
        assert at.ratio_low <= at.ratio <= at.ratio_high
    assert won[won.tokens_per_s_per_user == 1e6].ratio.isna().all()
    assert not won[won.tokens_per_s_per_user == 1e6].sure.any()


def test_what_no_longer_streams_pays_on_the_ideal_machine(won):
    """8T in MXFP8 are 8.25 TB, which 64 chips of 4.9 TB/s read in 26 ms and 144 in 12: the promise is 20 ms a token.

    A model that streams on both pays for 72 chips of which 64 work.
    """
    ideal = won[(won.software == "ideal") & (won.tokens_per_s_per_user == 50)].set_index("total_params").ratio
    assert ideal.iloc[0] == pytest.approx(64 / 72, rel=0.02)
    assert ideal.iloc[-1] > 1.5


def test_the_texts_lines_are_drawn_and_only_what_straddles_one_is_hatched(won):
    spec = tables.domain_map(won[won.software == "hand-tuned"], caption="A claim", under="below").to_dict()
    texts = [layer["mark"].get("text") for layer in spec["layer"] if layer["mark"]["type"] == "text"]
    assert texts == ["text: enough", "text: pays"]
    assert sum(layer["mark"]["type"] == "rule" for layer in spec["layer"]) == 3
    hatched = spec["datasets"][spec["layer"][1]["data"]["name"]]
    straddles = (won.ratio_low < 1) & (won.ratio_high > 1) & won.ratio.notna() & (won.software == "hand-tuned")
    assert len(hatched) == straddles.sum()


def test_the_lanes_of_both_texts():
    """AWS prints 256 + 320 + 128 GB/s, the deep dive 144 lanes of 8 GB/s; a torus keeps its links."""
    fewer = [contests.fewer_lanes(name) for name in (SMALL, LARGE, TORUS, "hgx-h200")]
    rates = [tm.topology(spec).injection_bytes_per_s_per_dir / GB for spec in fewer[:2]]
    assert rates == pytest.approx([704, 704])
    assert [spec.id for spec in fewer[2:]] == [TORUS, "hgx-h200"]
    used = [tm.topology(name).injection_bytes_per_s_per_dir / GB for name in (SMALL, LARGE)]
    assert used == pytest.approx([1152, 1152])


def test_a_conclusion_flips_where_it_holds_by_one_count_of_lanes_alone():
    ask = {"speeds": [20.0, 50.0], "request": REQUEST, "precisions": EIGHT_BITS}
    both = {"experts": "deepseek-v3", "dense": LLAMA}
    table = tables.conclusions(both, (SMALL, LARGE), TORUS, ["hgx-h200"], **ask)
    known = {report.chapter.read(slug).cells[0].source.strip("# ") for slug in report.chapters()}
    assert set(table.chapter) <= known
    inside = table.iloc[0]
    assert (inside["at 1,152 GB/s a chip"], inside["at 704 GB/s a chip"]) == ("2.13 times", "1.33 times")
    assert not inside.flips  # 64 x 8 / (40 x 8) of the same lanes: still more than the torus
    assert table.flips.dtype == bool
    wide = software_kinds.answers("deepseek-v3", REQUEST, [SMALL, TORUS], [50.0])
    made = [software_kinds.line(wide, 50.0, name, "hand-tuned").tokens_per_s_per_chip for name in (SMALL, TORUS)]
    said = table[table.conclusion == "at 50 tokens/s a user switches yield more than the torus"].iloc[0]
    assert said["at 1,152 GB/s a chip"] == f"{made[0] / made[1]:.3g} times"


def test_a_system_that_no_text_counts_otherwise_flips_nothing():
    ask = {"speeds": [20.0], "request": tm.Request(512, 512), "precisions": ("bf16",)}
    pair = ("trn2-ultraserver", "trn2-ultraserver")
    both = {"experts": "mixtral-8x7b-v0.1", "dense": "llama-3.1-8b"}
    table = tables.conclusions(both, pair, "trn2-ultraserver", ["hgx-h100"], **ask)
    assert not table.flips.any()


def test_first_sizes_in_words():
    table = contests.domains(np.array([0.5, 8]) * TRILLION, [50.0], (SMALL, LARGE), kinds=["ideal"])
    first = tables.pays_from(table, "ideal")
    assert tables.describe_sizes(first, [50.0]) == "from 8T at 50 tokens/s"
    assert tables.agreeing(first) in ("50 tokens/s a user", "no speed of these")


def test_systems_of_two_generations_are_compared_in_a_format_that_both_compute():
    """Trainium2 computes no MXFP8, Trainium3 does; `run software -p system=trn2-ultraserver` ended in an error."""
    pair, torus = ("trn2-ultraserver", "trn3-nl72x2-pcie160"), "trn3-nl32x2-torus"
    models = {"experts": tm.model("qwen3-30b-a3b"), "dense": tm.model("llama-3.1-8b")}
    ask = {"speeds": [20.0], "request": REQUEST, "precisions": ["mxfp8", "fp8", "bf16"]}
    lanes = tables.conclusions(models, pair, torus, ["hgx-h200"], **ask)
    assert len(lanes) > 5
    assert not lanes.iloc[:, 2:4].isna().any().any()


def test_shares_of_a_rival_by_hand(monkeypatch):
    """An ideal yield of 200: 50 are a quarter; where the rival makes nothing there is none, where only it does, inf."""
    made = {"ideal": [[200.0, 200.0, 0.0, 2.0]] * 3, "public": [[50.0, 0.5, 7.0, 1.0]] * 3}
    made |= {"hand-tuned": [[50.0, 0.0, 7.0, 0.5], [40.0, 0.0, 7.0, 0.4], [80.0, 0.0, 7.0, 0.8]]}
    monkeypatch.setattr(contests, "yields", lambda m, request, name, kind, *more: np.array(made[kind]))
    monkeypatch.setattr(contests, "stacks_of", lambda chip: ["ideal", "hand-tuned", "public"])
    table = contests.ties("llama-3.1-8b", SMALL, ["hgx-h200"], [10.0, 20.0, 30.0, 40.0])
    table = table[table.system == SMALL].set_index("software")
    assert table.share_of_ideal["public"].tolist() == [0.25, 0.0025, np.inf, 0.5]
    np.testing.assert_equal(table.share_of_ideal["hand-tuned"].to_numpy(), [0.25, np.nan, np.inf, 0.25])
    for place in (0, 3):
        low, high = (table[f"share_of_ideal_{end}"]["hand-tuned"].iloc[place] for end in ("low", "high"))
        assert (low, high) == (pytest.approx(40 / 200), pytest.approx(80 / 200))
    assert table.share_of_ideal_low["public"].isna().all()


def choice(made, draws=(), kind="hand-tuned"):
    """A choice that makes so many tokens/s per paid chip, and so many in each draw."""
    stack, drawn = SimpleNamespace(kind=kind), {"tokens_per_s_per_chip": np.array(draws)}
    return SimpleNamespace(tokens_per_s_per_chip=made, stack=stack, drawn=drawn, FIGURE="tokens_per_s_per_chip")


def test_a_larger_domain_is_surely_better_where_its_band_leaves_1_out(monkeypatch):
    """Yields of 100 against 150, 100 and 90; both move in a draw, where a broken promise has a thousandth."""
    nan, many = np.nan, 99
    small = [choice(100.0, [80.0] * many + [100.0]), choice(100.0, [100.0] * 100), None, None]
    small += [choice(100.0, [nan] * 50 + [100.0] * 50)]
    large = [choice(150.0, [160.0] * many + [150.0]), choice(100.0, [90.0] * 50 + [120.0] * 50), None]
    large += [choice(0.5, [0.5] * 1000), choice(90.0, [nan] * 50 + [90.0] * 50)]
    found = iter([small, large])
    monkeypatch.setattr(contests, "choices", lambda *asked: next(found))
    speeds = [10.0, 20.0, 30.0, 40.0, 50.0]
    table = contests.domains([671026404352], speeds, (SMALL, LARGE), kinds=["hand-tuned"], request=tm.Request(512, 512))
    np.testing.assert_equal(table.ratio.to_numpy(), [1.5, 1.0, np.nan, np.inf, 0.9])
    np.testing.assert_allclose(table.ratio_low, [1.5, 0.9, 1.0, 500.0, 0.9])  # 0.5 tokens/s over a thousandth
    np.testing.assert_allclose(table.ratio_high, [2.0, 1.2, 1.0, 500.0, 0.9])
    assert table.sure.tolist() == [True, False, False, True, True]
    assert set(table.context) == {1024.0}
    assert contests.ratio_range(choice(2.0, kind="ideal"), choice(3.0, kind="ideal")) == (1.5, 1.5)


def test_a_draw_in_which_one_domain_breaks_its_promise_counts_for_the_other():
    """In 20 of 100 draws the smaller breaks its promise: the high end is then 100 over a thousandth."""
    small, large = choice(100.0, [np.nan] * 20 + [100.0] * 80), choice(110.0, [100.0] * 20 + [110.0] * 80)
    assert contests.ratio_range(small, large) == pytest.approx((1.1, 100 / contests.LEAST))
    assert contests.ratio_range(large, small) == pytest.approx((contests.LEAST / 100, 100 / 110))


def test_each_kind_of_software_is_asked_by_its_word(monkeypatch):
    asked = []
    monkeypatch.setattr(software_kinds, "best_at", lambda *more: asked.append(more) or [None])
    for kind in ("hand-tuned", "ideal", "public"):
        made = contests.yields("m", tm.Request(512, 128), SMALL, kind, 20.0, "bf16")
        assert made.tolist() == [[0.0]] * 3
    assert [more[-1] for more in asked] == ["hand-tuned", "ideal", None]
    assert [more[2:5] for more in asked] == [(SMALL, 20.0, ["bf16"])] * 3


def test_the_shares_at_which_rivals_tie():
    """At 20 tokens/s rivals tie at 0.4 to 0.6 of the ideal; one that is not as fast ties nowhere."""
    rows = [("a", "hand-tuned", 0.5), ("a", "public", 0.45), ("b", "ideal", 0.6), ("b", "hand-tuned", 0.4)]
    rows += [("b", "public", np.nan), ("c", "hand-tuned", 0.5)]
    table = pd.DataFrame(rows, columns=["system", "software", "share_of_ideal"])
    both = [table.assign(promised_tokens_per_s_per_user=speed) for speed in (20.0, 50.0)]
    assert contests.spans(pd.concat(both), "a", 20.0) == (0.4, 0.6)
    assert contests._share(0.5, 0.5, 0.5) == "0.50"
    assert contests._share(0.5, 0.25, 0.75) == "0.50 (0.25 to 0.75)"
    assert contests._share(np.nan, 0.0, 0.0) == "not as fast"


def test_software_and_racks_are_compared_where_anything_is_made():
    rows = [("a", "ideal", 60.0), ("a", "hand-tuned", 30.0), ("a", "public", 0.0), ("b", "ideal", 50.0)]
    rows += [("b", "hand-tuned", 20.0), ("b", "public", 10.0)]
    table = pd.DataFrame(rows, columns=["system", "software", "tokens_per_s_per_chip"])
    assert software_kinds.decides(table) == "Software moves the yield 5 times, racks 1.5 times"


def test_a_band_that_ends_at_1_is_on_one_side(monkeypatch):
    """100 against 90, in the draws 80 against 80 and 100 against 90: the ratio is 0.9 to 1.0, surely no better."""
    found = iter([[choice(100.0, [80.0] * 50 + [100.0] * 50)], [choice(90.0, [80.0] * 50 + [90.0] * 50)]])
    monkeypatch.setattr(contests, "choices", lambda *more: next(found))
    table = contests.domains([671026404352], [10.0], (SMALL, LARGE), kinds=["hand-tuned"]).iloc[0]
    assert (table.ratio, table.ratio_high, table.sure) == (0.9, 1.0, True)
