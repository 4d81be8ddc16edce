"""Quantities as printed text."""

import math

import pytest

from trnmodel import units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.9", (2.9, 2.9, 2.9)),
        ("1,299", (1299, 1299, 1299)),
        ("over 100,000", (1e5, 1e5, 1e5)),
        ("up-to 25", (25, 25, 25)),
        (">= 32", (32, 32, 32)),
        ("4.7-4.9", (4.8, 4.7, 4.9)),
        ("10 to 20", (15, 10, 20)),
        ("1.5e3", (1500, 1500, 1500)),
    ],
)
def test_printed_numbers(text, expected):
    assert units.parse_number(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["1e999", "9" * 400, "1" + "," * 10**6, "1 - 1e999"])
def test_what_no_float_holds_is_no_number(text):
    assert all(math.isnan(part) for part in units.parse_number(text))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: units.parse_number(5), "text=5: allowed is printed text"),
        (lambda: units.parse_number(None), "text=None"),
        (lambda: units.format_quantity("5", "B"), "value='5'"),
        (lambda: units.format_quantity(10**400, "B"), "value=1000"),
        (lambda: units.format_quantity([1, 2], "B"), "value=.*one number"),
        (lambda: units.format_quantity(5, []), r"unit=\[\]"),
        (lambda: units.format_quantity(5, "B", 0), "digits=0"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("text", ["", "N/A", "Yes", "2D torus", "8 (NeuronCore-v3)", "10/20", "1.2.3"])
def test_text_is_no_number(text):
    assert all(math.isnan(part) for part in units.parse_number(text))


def test_constants():
    seconds = {"NS": "0.000000001", "US": "0.000001", "MS": "0.001", "MINUTE": "60", "HOUR": "3600", "DAY": "86400"}
    assert {name: getattr(units, name) for name in seconds} == {name: float(x) for name, x in seconds.items()}
    assert units.YEAR == 365 * 24 * 3600
    zeros = {
        "KB": 3,
        "MB": 6,
        "GB": 9,
        "TB": 12,
        "GFLOP": 9,
        "TFLOP": 12,
        "PFLOP": 15,
        "EFLOP": 18,
        "KW": 3,
        "MW": 6,
        "MILLION": 6,
        "BILLION": 9,
        "TRILLION": 12,
    }
    assert {name: f"{getattr(units, name):.0f}" for name in zeros} == {name: "1" + "0" * n for name, n in zeros.items()}
    doublings = {"KIB": 10, "MIB": 20, "GIB": 30, "TIB": 40}
    assert {name: math.log2(getattr(units, name)) for name in doublings} == doublings
    assert (units.GBIT, units.TBIT, units.KWH) == (125_000_000, 125_000_000_000, 3_600_000)


PREFIXES = [
    (96 * 2**30, "B", "96 GiB"),
    (2.9e12, "B/s", "2.9 TB/s"),
    (25e9, "B/s", "25 GB/s"),
    (667e12, "FLOP/s", "667 TFLOP/s"),
    (2.4e9, "Hz", "2.4 GHz"),
    (1.3e-6, "s", "1.3 µs"),
    *((x, "FLOP/s", text) for x, text in ((3e18, "3 EFLOP/s"), (999e15, "999 PFLOP/s"), (3e12, "3 TFLOP/s"))),
    *((x, "FLOP/s", text) for x, text in ((1e9, "1 GFLOP/s"), (999e6, "999,000,000 FLOP/s"))),
    *((x, "FLOP", text) for x, text in ((1e18, "1 EFLOP"), (1e15, "1 PFLOP"), (2e12, "2 TFLOP"), (3e9, "3 GFLOP"))),
    *((x, "B/s", text) for x, text in ((1e12, "1 TB/s"), (2e9, "2 GB/s"), (1e6, "1 MB/s"), (999, "999 B/s"))),
    *((x, "B", text) for x, text in ((2**41, "2 TiB"), (2**30, "1 GiB"), (2**20, "1 MiB"), (2**10, "1 KiB"))),
    *((x, "B", text) for x, text in ((1023, "1023 B"), (0, "0 B"), (-(2**21), "-2 MiB"))),
    *((x, "Hz", text) for x, text in ((1e9, "1 GHz"), (999e6, "999 MHz"), (1e6, "1 MHz"), (50, "50 Hz"))),
    *((x, "s", text) for x, text in ((1, "1 s"), (0.999, "999 ms"), (1e-3, "1 ms"), (2e-6, "2 µs"), (1e-9, "1 ns"))),
    *((x, "s", text) for x, text in ((2.5e-10, "0.25 ns"), (0.0, "0 s"), (7200, "7200 s"))),
    *((x, "W", text) for x, text in ((1e6, "1 MW"), (1e3, "1 kW"), (999, "999 W"), (math.nan, "not published"))),
    *((x, "J", text) for x, text in ((2e6, "2 MJ"), (1e3, "1 kJ"), (1, "1 J"), (1e-3, "1 mJ"), (2e-6, "2 µJ"))),
    *((x, "J", text) for x, text in ((3e-9, "3 nJ"), (4e-12, "4 pJ"))),
    (math.inf, "W", "inf W"),
    (-math.inf, "", "-inf"),
    (12345.678, "tokens", "12,350 tokens"),
    (1234.56, "", "1235"),
]


@pytest.mark.parametrize(("value", "unit", "expected"), PREFIXES)
def test_prefixes(value, unit, expected):
    assert units.format_quantity(value, unit) == expected


@pytest.mark.parametrize(
    ("values", "unit", "expected"),
    [
        ([0.995e9], "B/s", "0.995 GB/s"),  # what three digits would round to the next prefix, or nearly
        ([0.9949e9], "B/s", "995 MB/s"),
        ([900.0], "B/s per chip", "0.0009 MB/s per chip"),
        ([1018.0], "B", "1,020 B"),
        ([1019.0], "B", "0.995 KiB"),
        ([994.0, 996.0], "W", "994 W to 0.996 kW"),
        ([994.0, 993.0], "W", "993 to 994 W"),
        ([0.0, 0.002], "s", "0 to 2 ms"),
        ([0.0], "s", "0 s"),
        ([2e-13], "J/FLOP", "0.2 pJ per FLOP"),
        ([5.0, math.nan, 3.0], "USD", "$3 to $5"),
        ([-2e9], "B/s", "-2 GB/s"),
        ([1.0, 1.0004], "", "1"),
    ],
)
def test_spreads(values, unit, expected):
    assert units.spread_of(values, unit) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("energy_j", "J"),
        ("j_per_token", "J/token"),
        ("power_w_per_chip", "W per chip"),
        ("clock_hz", "Hz"),
        ("work_flop", "FLOP"),
        ("peak_flop_per_s", "FLOP/s"),
        ("flop_per_s_per_logical_core", "FLOP/s per logical core"),
        ("usd_per_mtoken", "USD/Mtoken"),
        ("cost_usd", "USD"),
        ("tokens_per_s", "tokens/s"),
        ("points_per_h", "points/h"),
        ("usd_per_chip_h", "USD/h per chip"),
        ("chip_bytes_per_s_per_dir_across_racks", "B/s per direction"),
        ("interval_min", "min"),
        ("time_s_low", "s"),
        ("layers_per_stage", ""),
        ("seconds", ""),
    ],
)
def test_units_of_names(name, expected):
    assert units.unit_of(name) == expected


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        ((2000, 1916, 2100), "2,000 (1,920 to 2,100)"),  # 5 % either way, and a little more
        ((2000, 1916, 2101), "2,000 (1,900 to 2,100)"),
        ((2000, 1899, 2084), "2,000 (1,900 to 2,100)"),
        ((-2000, -2084, -1916), "-2,000 (-2,080 to -1,920)"),
        ((12345.678, 12345.678, 12345.678), "12,350"),
        ((12345678, 12345678, 12345678, "chips"), "12,345,678 chips"),
        ((12345678, math.nan, math.nan, "B/s"), "12.35 MB/s"),
        ((12345678, 1, math.inf), "12,345,678"),
        ((0.0125, 0.0124, 0.0126, "s", "measured"), "12.5 ms (12.4 to 12.6; measured)"),
        ((7, 7, 7, "chips", "ideal"), "7 chips (ideal)"),
        ((math.nan, 1, 2, "s", "ideal"), "not published"),
        ((math.inf, 1, 2, "s"), "inf s"),
    ],
)
def test_bands_in_words(ask, expected):
    assert units.format_within(*ask) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (1, "1 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "60 min"),
        (3600, "1 h"),
        (86399, "24 h"),
        (86400, "1 day"),
        (2.5 * 86400, "2.5 days"),
        (365 * 86400 - 1, "360 days"),
        (365 * 86400, "1 year"),
        (math.inf, "forever"),
        (math.nan, "nan s"),
    ],
)
def test_durations(seconds, expected):
    assert units.format_duration(seconds) == expected
    with pytest.raises(ValueError, match="seconds=-1"):
        units.format_duration(-1)


def test_digits():
    found = {(999.96, 4): "1,000", (0.00123456, 3): "0.00123", (-1234567, 3): "-1,230,000", (math.inf, 2): "inf"}
    assert {ask: units.format_digits(*ask) for ask in found} == found
    assert units.format_digits(1.5, 17) == "1.5"
    for wrong in (0, 18):
        for call in (units.format_digits, lambda x, digits: units.format_quantity(x, "B", digits)):
            with pytest.raises(ValueError, match=f"digits={wrong}: allowed are whole numbers from 1 to 17"):
                call(1.5, wrong)


def test_how_many():
    found = {(0, "rank"): "0 ranks", (1.5, "rank of 4"): "1.5 ranks of 4", (1e6, "chip"): "1,000,000 chips"}
    found |= {(4, "HBM stack"): "4 HBM stacks", (1, "HBM stack"): "1 HBM stack", (8, "micro-batch"): "8 micro-batches"}
    found |= {(2.5, "module a chip"): "2.5 modules a chip", (0, "board switch"): "0 board switches"}
    assert {ask: units.counted(*ask) for ask in found} == found


def test_numbers_of_up_to_80_characters():
    assert units.parse_number("1" + "0" * 79)[0] == 1e79
    assert math.isnan(units.parse_number("1" + "0" * 80)[0])


def test_binary_and_decimal_prefixes_differ_as_printed():
    # trn3-arch prints 9,216 GiB where its text says 9TB: 9,216 x 2^30 = 9.896e12
    assert pytest.approx(9.896e12, rel=1e-4) == 9216 * units.GIB
    assert units.GBIT * 200 == units.GB * 25


def test_times_by_their_names():
    assert (units.MINUTE, units.HOUR, units.DAY) == (60, 60 * 60, 24 * 60 * 60)
    assert units.YEAR == 365 * 24 * 60 * 60
    assert (units.US * 1e6, units.MS * 1e3) == (1, 1)


def test_rates_and_sizes_by_their_names():
    assert (units.KW, units.MW, units.KWH) == (1000, 1000**2, 1000 * 60 * 60)
    assert (units.GBIT * 8, units.TBIT * 8, units.NS * 1e9) == (1e9, 1e12, 1)
