"""Memory of a core: limits and arithmetic done by hand."""

from dataclasses import replace

import numpy as np
import pytest

import trnmodel as tm
from trnbook import charts
from trnbook.chapters import memory
from trnbook.shared import case
from trnmodel.catalog import load
from trnmodel.evidence import tables as evidence

CHIPS = ["trainium1", "trainium2", "trainium3"]


@pytest.fixture(scope="module")
def profiles():
    return evidence.table("profiles", phase="decode")


def test_pins_by_hand():
    """9.6 Gb/s x 1,024 pins x four stacks are 4.9 TB/s."""
    row = memory.pins(["trainium3"]).iloc[0]
    assert row.product_bytes_per_s == pytest.approx(9.6e9 / 8 * 1024 * 4)
    # 9.2 Gb/s, another grade, give 4.710 TB/s, between the two figures that sources leave open
    assert row.printed_bytes_per_s_low == 4.7e12 < 9.2e9 / 8 * 1024 * 4 < row.printed_bytes_per_s_high == 4.9e12
    assert load.value("trainium3", "hbm_grade_bytes_per_s", "micron-12-high") == 9.2e9 / 8


def test_dma_rates_as_the_guide_and_the_chip_pages_print_them():
    """Cores x engines x reached: 2 x 16 x 17 GB/s, 8 x 16 x 23, 8 x 16 x 33; the pages print 1, 3.5 and 4.9 TB/s."""
    table = memory.pins(CHIPS)
    assert table.dma_bytes_per_s.tolist() == [544e9, 2944e9, 4224e9]
    assert table.printed_dma_bytes_per_s.tolist() == [1e12, 3.5e12, 4.9e12]
    assert table.limit_bytes_per_s.tolist() == [544e9, 2.9e12, 4224e9]
    assert [memory.limits(chip).lower for chip in CHIPS] == table.limit_bytes_per_s.tolist()


def test_only_the_engines_of_trainium2_pass_all_that_hbm_gives():
    """The title of the first chart."""
    assert [memory.limits(chip).engines >= memory.limits(chip).hbm for chip in CHIPS] == [False, True, False]


def test_the_limit_of_trainium3_is_the_same_for_both_figures_of_its_memory():
    assert memory.limits("trainium3").engines < tm.chip("trainium3").range("hbm_bytes_per_s")[0] == 4.7e12


def test_the_rival_of_the_card_is_the_fastest_other_chip():
    read = {"trainium1": 0.47e12, "trainium2": 2.755e12, "trainium3": 4.655e12}
    others = {"trainium1": "Trainium3", "trainium2": "Trainium3", "trainium3": "Trainium2", "inferentia2": "Trainium3"}
    for chip, other in others.items():
        assert memory.compared(chip, read).endswith(other)


def test_long_rows_saturate_and_short_ones_do_not():
    rows = 2.0 ** np.arange(5, 16)
    table = memory.with_aws_figure(tm.kernel.dma("trainium2", 2**30, rows))
    table = table.pivot(index="row_bytes", columns="level", values="bandwidth_bytes_per_s")
    assert table.model.is_monotonic_increasing
    core = tm.chip("trainium2").core
    assert table.model.iloc[-1] <= core.dma_engines * core.dma_engine_bytes_per_s
    # AWS's figure at 32 B, 512 B and 32 KiB: 1.3, 20.6 and 100 % of its highest rate
    shares = (table["AWS's figure, scaled to the same end"] / table.model.max())[[32.0, 512.0, 32768.0]]
    assert shares.tolist() == pytest.approx([0.013, 0.206, 1.0])
    assert (table.model / table["AWS's figure, scaled to the same end"]).sub(1).abs().max() < 0.04


def test_a_row_by_hand():
    """An engine that copies 23 GB/s in rows of 2,485 B starts one every 108 ns; 16 of them copy 2**20 B in 13.8 us."""
    start_s = 2485 / 23e9
    assert tm.kernel.dma("trainium2", 2**20, 512).load_s == pytest.approx(2**20 / (16 * 512 / start_s))


def test_nothing_taken_slows_nothing():
    engines = 16 * 23e9
    times = tm.kernel.matmul(
        "trainium2", 16, 4096, 4096, collective_bytes_per_s=engines * np.linspace(0, 0.9, 10)
    ).time_s
    assert times[0] == tm.kernel.matmul("trainium2", 16, 4096, 4096).time_s
    assert (np.diff(times) > 0).all()


def test_twice_the_block_reads_half():
    """Blocks of side s read both operands n / s times."""
    sides = np.array([512.0, 1024.0])
    product = tm.kernel.matmul("trainium2", 4096, 4096, 4096, "bf16", block_rows=sides, block_columns=sides)
    assert product.hbm_read_bytes.tolist() == [512 * 2**20, 256 * 2**20]
    table = memory.by_engine(sides, product).set_index(["engine", "block_side"]).busy_s
    assert table["DMA engines", 512.0] == product.load_s[0] + product.store_s[0]
    assert table["TensorE", 1024.0] == product.tensor_s[1]


@pytest.mark.parametrize(
    ("chip", "peak", "engines"), [("trainium3", 671e12 / 8, 528e9), ("trainium2", 667e12 / 8, 368e9)]
)
def test_the_block_at_which_reading_takes_as_long_as_multiplying(chip, peak, engines):
    """2 B x peak / rate; whole multiples of 128 on its two sides."""
    balanced = 2 * peak / engines
    sides = 128 * np.array([np.floor(balanced / 128), np.ceil(balanced / 128)])
    product = tm.kernel.matmul(chip, 8192, 8192, 8192, block_rows=sides, block_columns=sides)
    assert (product.load_s > product.tensor_s).tolist() == [True, False]


def test_ceilings():
    table = memory.ceilings(["trainium2"], 0.5).set_index("level").bandwidth_bytes_per_s
    assert table.to_dict() == {"HBM": 2.9e12, "DMA engines": 2.944e12, "decoding": 1.45e12}
    with pytest.raises(ValueError, match="reached"):
        memory.ceilings(["trainium2"], 1.5)


def test_decoding_scales_by_the_limit_and_stays_below_it(profiles):
    """0.55 of 820 GB/s is 0.829 of 544 GB/s; the limits are 544, 2,900 and 4,224 GB/s."""
    reached = memory.share_of_limit(profiles)
    assert reached == pytest.approx(0.55 * 820 / 544)
    table = memory.ceilings(CHIPS, reached)
    decoding = table[table.level == "decoding"].set_index("chip")
    assert decoding.bandwidth_bytes_per_s.tolist() == pytest.approx([reached * x for x in (544e9, 2.9e12, 4224e9)])
    assert decoding.estimate.tolist() == [False, True, True]
    assert not table[table.level != "decoding"].estimate.any()


def test_a_profile_reaches_more_of_the_bandwidth_than_is_predicted(profiles):
    """So that what is predicted is no limit."""
    assert (profiles.mbu > profiles.mbu_predicted).any()


def test_two_models_read_more_than_their_shapes_ask_for(profiles):
    """The title of the scatter."""
    table = memory.decode_bytes(profiles).set_index("model")
    off = table[table.error == "off by over 5%"]
    assert set(off.index) == {"OLMo-3-7B-Think", "Phi-3.5-MoE-instruct"}
    assert (off.measured_bytes > off.predicted_bytes).all()
    assert len(table) == 27


def test_checks_are_those_of_the_rows(profiles):
    kernels = evidence.table("kernels").query("group in ('dma', 'memory', 'bytes')")
    table = memory.checks(profiles, kernels).set_index("predicted")
    assert table.cases.tolist() == [27, 27, 13, 6, 3]
    bytes_ = table.loc["Bytes that decoding reads"]
    assert bytes_.median_error == profiles.read_bytes_error.abs().median() < 0.002
    assert bytes_.worst_error == pytest.approx(1.635806032 / 2.9 - 1)
    assert table.loc["Bandwidth that decoding reaches"].worst_error == pytest.approx(0.663339 / 0.29 - 1, abs=1e-5)
    dma = kernels[kernels.group == "dma"].error
    assert table.loc["Time of single transfers"].worst_error == dma[dma.abs().idxmax()]


def test_reads_of_the_case_add_up_to_its_line():
    line = next(one for one in case.LINES if one.chapter == "memory")
    steps = [case.choice("llama-3.3-70b", "trn2.48xlarge").step, case.choice("deepseek-v3", "trn3-nl32x2-pcie160").step]
    table = memory.reads(steps)
    total = table.groupby("case", sort=False).time_of_reads_s.sum()
    assert total.index.tolist() == ["llama-3.3-70b, Trainium2", "deepseek-v3, Trainium3"]
    ends = [("llama-3.3-70b", "trn2.48xlarge"), ("deepseek-v3", "trn3-nl32x2-pcie160")]
    assert total.tolist() == pytest.approx([case.value(line, *pair) for pair in ends])
    # 1.51 GB of keys and values at 44.5 % of a quarter of 2.9 TB/s
    cache = table[(table["case"] == "llama-3.3-70b, Trainium2") & (table.read == "cache")].time_of_reads_s.item()
    assert cache == pytest.approx(4 * 4608 * 80 * 2 * 2 * 128 * 2 / (0.445 * 725e9), rel=0.002)


def test_both_racks_of_trainium3_have_one_bar():
    for model in case.PROMISES:
        steps = [case.choice(model, system).step for system in case.SYSTEMS[1:]]
        assert steps[0].memory_s == steps[1].memory_s


def test_the_reference_is_marked():
    table = memory.changed({"as it is": 1.0, "twice": 2.0, "half": 0.5})
    assert table.what.tolist() == ["reference", "changed", "changed"]
    assert table.time_of_reads_s.tolist() == [1.0, 2.0, 0.5]


def test_loading_and_reading_once():
    """14 GB through 4 GB/s in 3.5 s; 13 GB at 4.224 TB/s in 3.08 ms."""
    assert memory.start_up(13e9, {"Load": 3.5}, "trainium3").time.tolist() == ["3.5 s", "3.08 ms"]


def test_the_card_says_what_the_case_makes_if_the_limit_holds():
    """Weights at 4.22 and not 4.66 TB/s: the 16 ms that they take on Trainium3 become a tenth longer."""
    own = tm.system("trn3-nl32x2-pcie160")
    slow = replace(own.chip, hbm_bytes_per_s=memory.limits("trainium3").lower / 0.95)
    asked = case.request("llama-3.3-70b")
    plans = [tm.plan("llama-3.3-70b", asked, systems=one).best for one in (own, replace(own, chip=slow))]
    before, after = (float(plan.tokens_per_s_per_chip) for plan in plans)
    assert after < before
    said = memory.sureness("trainium3", 0.95, 0.8, plans)
    assert f"makes {after:.0f} tokens/s per chip instead of {before:.0f}, which lies inside its band." in said
    assert "If the limit holds" not in memory.sureness("trainium3", 0.95, 0.8)
    assert "If the limit holds" not in memory.sureness("trainium2", 0.95, 0.8, plans)


def test_axes_of_a_chart_end_where_they_are_told(profiles):
    ask = {"x": "predicted_bytes", "y": "measured_bytes", "color": "error", "label": "model", "caption": "Bytes"}
    chart = memory.within(charts.scatter(memory.decode_bytes(profiles), **ask), (0.6, 10), (0.5, 20))
    points = chart.to_dict()["layer"][1]["encoding"]
    assert points["x"]["scale"] == {"type": "log", "nice": False, "domain": [0.6, 10]}
    assert points["y"]["scale"] == {"type": "log", "nice": False, "domain": [0.5, 20]}
