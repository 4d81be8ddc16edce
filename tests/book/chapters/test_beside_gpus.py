"""Chips of others beside Trainium: equal kinds of stack, each chip in its format, arithmetic by hand."""

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import beside_gpus as tables
from trnmodel.catalog.stacks import KINDS

SYSTEMS = ["trn3-nl72x2-pcie160", "hgx-h100", "hgx-h200", "mi300x-8"]
EIGHT_BITS = ["mxfp8", "fp8", "int8", "bf16"]
REQUEST = tm.Request(4096, 512)


@pytest.fixture(scope="module")
def dense():
    return tables.frontiers("llama-3.1-70b", REQUEST, SYSTEMS, EIGHT_BITS, [20.0, 50.0])


def test_each_chip_takes_the_first_format_that_it_computes_in():
    found = tables.formats([*SYSTEMS, "hgx-a100", "trn1.32xlarge"], ["mxfp8", "fp8", "bf16"])
    assert list(found.values()) == ["mxfp8", "fp8", "fp8", "fp8", "bf16", "bf16"]
    with pytest.raises(ValueError, match="hgx-a100 computes in none of them, but in"):
        tables.formats(["hgx-a100"], ["mxfp8"])


def test_machines_are_the_chips_of_the_catalogue():
    """H200: 1,979 TFLOP/s in FP8 over 4.8 TB/s are 412.3 FLOP a byte; 18 NVLinks carry 450 GB/s one way."""
    machine = tables.machines(["hgx-h200"], EIGHT_BITS).iloc[0]
    assert machine.ridge_flop_per_byte == pytest.approx(1979e12 / 4.8e12)
    assert machine.injection_bytes_per_s_per_dir == pytest.approx(450e9)
    assert machine.all_to_all_bytes_per_s == pytest.approx(450e9)


def test_both_lane_maps_of_trainium3_stand_beside_each_other():
    """AWS prints 256 + 320 + 128 GB/s a chip; the deep dive's 144 lanes of 8 GB/s are 1,152."""
    both = tables.machines(["trn3-nl72x2-aws-lanes", "trn3-nl72x2-pcie160"], EIGHT_BITS)
    assert both.injection_bytes_per_s_per_dir.tolist() == pytest.approx([704e9, 1152e9])


def test_every_system_has_the_three_kinds_of_stack(dense):
    assert all(set(kinds) == {"public", "hand-tuned", "ideal"} for _, kinds in dense.groupby("system").software)
    assert (dense.software == dense.stack_kind).all()


def test_a_chip_without_a_scenario_has_two_kinds():
    table = tables.frontiers("llama-3.1-8b", REQUEST, ["tpu-v6e-pod"], ["bf16"], [20.0])
    assert set(table.software) == {"public", "ideal"}


def test_no_public_stack_beats_the_machine_that_loses_nothing(dense):
    found = tables.side_by_side(tables.at_speeds(dense, [20.0, 50.0], SYSTEMS[0]), 50.0)
    assert (found.share_of_ideal.dropna() < 1).all()
    assert found.share_of_ideal.notna().any()


def test_times_is_over_the_reference_on_the_same_stack(dense):
    table = tables.at_speeds(dense, [20.0, 1e6], SYSTEMS[0])
    reached = table[table.promised_tokens_per_s_per_user == 20]
    assert reached[reached.system == SYSTEMS[0]].times.tolist() == [1, 1, 1]
    for _, lines in reached.groupby("software"):
        base = lines.set_index("system").tokens_per_s_per_chip
        assert lines.set_index("system").times["hgx-h200"] == pytest.approx(base["hgx-h200"] / base[SYSTEMS[0]])
    assert table[table.promised_tokens_per_s_per_user == 1e6].times.isna().all()


def test_a_frontier_carries_its_band_its_chance_and_the_share_that_was_measured(dense):
    """They are those of the plan of one system on one kind of software, asked for again."""
    asked = tm.Request(4096, 512, tokens_per_s_per_user=50)
    for (system, kind), line in dense[dense.promised_tokens_per_s_per_user == 50].groupby(["system", "software"]):
        row = line.iloc[0]
        best = tm.plan("llama-3.1-70b", asked, system, precision=row.precision, efficiencies=KINDS[kind]).best
        ends = [row.tokens_per_s_per_chip_low, row.tokens_per_s_per_chip, row.tokens_per_s_per_chip_high]
        assert ends == pytest.approx([float(best.low), best.tokens_per_s_per_chip, float(best.high)], rel=1e-9)
        assert (row.chance, row.measured_share) == (best.chance, best.step.measured_share)
        assert row.tokens_per_s_per_chip < row.decode_tokens_per_s_per_chip
        assert (ends[2] - ends[0] < 1e-9) == (kind == "ideal")


def test_headlines_print_band_and_basis(dense):
    row = tables.side_by_side(tables.at_speeds(dense, [20.0], SYSTEMS[0]), 20.0).set_index("system").loc["hgx-h200"]
    words = tables.describe_yield(row, "public")
    low, high = row.public_tokens_per_s_per_chip_low, row.public_tokens_per_s_per_chip_high
    assert words.endswith(f"; {row.basis})")
    printed = [float(word.replace(",", "")) for word in words.partition("(")[2].partition(";")[0].split(" to ")]
    assert printed == pytest.approx([low, high], rel=0.05)
    assert tables.describe_yield(row.replace(row.ideal_tokens_per_s_per_chip, np.nan), "ideal") == "cannot"


def test_prompts_have_a_band():
    table = tables.prompts("llama-3.1-8b", ["hgx-h200"], ["fp8"], 4096).set_index("software")
    rate = table.tokens_per_s_per_chip
    assert table.tokens_per_s_per_chip_low["public"] < rate["public"] < table.tokens_per_s_per_chip_high["public"]
    assert table.tokens_per_s_per_chip_low["ideal"] == rate["ideal"] == table.tokens_per_s_per_chip_high["ideal"]


def test_like_for_like_two_chips_of_one_bandwidth_are_one_speed():
    """8 x 4.9 and 8 x 4.8 TB/s read 70.6 GB of weights within 3 % of each other where nothing is lost."""
    ask = {"batch": 1, "context": 128, "precision": "fp8", "efficiencies": "ideal"}
    ours = tm.decode_step("llama-3.1-70b", "trn3-nl72x2-pcie160", tm.Mapping(tp=32), **ask).time_s
    other = tm.decode_step("llama-3.1-70b", "hgx-h200", tm.Mapping(tp=8), **ask).time_s
    assert ours / other == pytest.approx(4.8 / 4.9, rel=0.03)


def test_prompts_never_pass_the_peak_and_a_model_that_does_not_fit_has_no_row():
    table = tables.prompts("kimi-k2-instruct", ["hgx-h100", "hgx-h200"], EIGHT_BITS, 4096)
    assert set(table.system) == {"hgx-h200"}  # 1,026 GB of FP8 against 8 x 85.5 GB
    assert np.all((table.share_of_peak > 0) & (table.share_of_peak < 1))


def test_no_measured_step_is_faster_than_the_ideal_machine():
    points = tables.published()
    ideal = points[points.software == "ideal"]
    assert len(ideal) >= 13
    assert (ideal.predicted_s < ideal.measured_s).all()
    assert set(points.software) == {"public", "hand-tuned", "ideal"}
