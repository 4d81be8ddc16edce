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


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (96 * 2**30, "B", "96 GiB"),
        (2.9e12, "B/s", "2.9 TB/s"),
        (25e9, "B/s", "25 GB/s"),
        (667e12, "FLOP/s", "667 TFLOP/s"),
        (2.4e9, "Hz", "2.4 GHz"),
        (1.3e-6, "s", "1.3 us"),
        (0.0, "s", "0 s"),
        (math.nan, "W", "not published"),
    ],
)
def test_format(value, unit, expected):
    assert units.format_quantity(value, unit) == expected


def test_binary_and_decimal_prefixes_differ_as_printed():
    # trn3-arch prints 9,216 GiB where its text says 9TB: 9,216 x 2^30 = 9.896e12
    assert pytest.approx(9.896e12, rel=1e-4) == 9216 * units.GIB
    assert units.GBIT * 200 == units.GB * 25
    assert (units.KBIT, units.MBIT, units.TBIT) == (125, 125_000, 125_000_000_000)
