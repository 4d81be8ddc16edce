"""The checks at the door: what passes, what is refused, and what the refusal says."""

import numpy as np
import pytest

from trnmodel import arguments

RING: list = []
RING.append(RING)
NO_NUMBERS = [
    "1",
    b"1",
    None,
    True,
    object(),
    [1, [2]],
    [],
    {},
    {1},
    RING,
    1j,
    [None],
    np.array("x"),
    np.datetime64("2020"),
]
OUTSIDE = [range(10**40), -1, -1e-9, 1e31, 10**400, [10**5000], float("nan"), float("inf"), [1.0, float("nan")]]


@pytest.mark.parametrize("value", [*NO_NUMBERS, *OUTSIDE], ids=range(len(NO_NUMBERS + OUTSIDE)))
def test_what_is_no_number_is_refused_by_name_in_one_short_line(value):
    with pytest.raises(ValueError, match=r"^batch=") as refused:
        arguments.numbers("batch", value)
    assert len(str(refused.value)) < len("batch=: allowed are numbers from 0 to 1e+30") + 81
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.int64(3), 10**20, [1, 2], (1.5,), range(3), [10**20, 1]])
def test_numbers_come_back_as_floats(value):
    found = arguments.numbers("batch", value)
    assert found.dtype == float
    assert found.tolist() == np.asarray(value, dtype=float).tolist()


def test_limits_hold_at_their_ends():
    assert arguments.share("overlap", [0, 1]).tolist() == [0, 1]
    assert arguments.numbers("rate", 1e-30, arguments.TINY) == 1e-30
    for value in (0, 1e-31):
        with pytest.raises(ValueError, match="from 1e-30"):
            arguments.numbers("rate", value, arguments.TINY)
    with pytest.raises(ValueError, match="whole numbers from 1"):
        arguments.numbers("ranks", [1, 1.5], 1, whole=True)
    assert np.isnan(arguments.numbers("rate", [np.nan, 1.0], unknown=True)[0])
    with pytest.raises(ValueError, match="NaN where nothing is published"):
        arguments.numbers("rate", [np.nan, -1.0], unknown=True)


@pytest.mark.parametrize("value", [[], {}, ["a"], None, 1, "c", object()])
def test_a_choice_is_one_of_its_words(value):
    with pytest.raises(ValueError, match=r"^kind=.*allowed are a, b$"):
        arguments.choice("kind", value, ("b", "a"))


def test_shapes_that_do_not_fit_are_named():
    arguments.together(batch=np.ones((3, 1)), context=np.ones(4), tp=np.ones(()))
    with pytest.raises(ValueError, match=r"tp of shape \(2,\) does not fit context of shape \(4,\)"):
        arguments.together(batch=np.ones((3, 1)), context=np.ones(4), tp=np.ones(2))


def test_what_is_too_small_is_told_so():
    with pytest.raises(ValueError, match=r"numbers from 0 to 1e\+30, none between 0 and 1e-30"):
        arguments.numbers("message_bytes", [0.0, 5e-324])


@pytest.mark.parametrize(
    ("call", "taken", "refused"),
    [
        (
            lambda x: arguments.numbers("x", x),
            [0, 1e-30, 1e30, [1e-30, 1e30], [0.0, 1.0], [0.0, 1e-30]],
            [1.1e30, 10**30 + 10**15, [1e-31, 1.0], -1e-300, [2e30], 9e-31],
        ),
        (lambda x: arguments.numbers("x", x, -5, 5), [-5, 5, [-5.0, 5.0], [-1e-30, 1.0]], [-5.1, [5.1, 1.0]]),
        (lambda x: arguments.numbers("x", x, 1, whole=True), [1, 2.0, [1.0, 3.0], 10**20], [1.5, [1.0, 2.25], 0.0]),
        (
            lambda x: arguments.numbers("x", x),
            [np.ones((1,) * 16), range(3), range(0, 10**8 + 1, 10**7)],
            [np.ones((1,) * 17), range(0, 10**8 + 11, 10), range(10**8 + 11, 0, -10), range(0), np.ma.array([1.0])],
        ),
        (lambda x: arguments.integer("x", x), [1, 2.0, 2**53], [0, 1.5, [1, 2], 2**53 + 2, True]),
        (lambda x: arguments.integer("x", x, -2, 7), [-2, 7], [-3, 8]),
        (lambda x: arguments.integers("x", x), [[1], [1, 5], [2**53]], [0, [2, 0], 2**53 + 2, [1.5]]),
        (lambda x: arguments.number("x", x), [0, 1e30, np.float64(3)], [[1.0], -1, np.nan, 2e30]),
        (lambda x: arguments.number("x", x, 3, 7), [3, 7], [2.9, 7.1]),
        (lambda x: arguments.share("x", x, 0.25), [0.25, 1, [0.5, 1.0]], [0.2, 1.1]),
        (lambda x: arguments.share("x", x), [0, 1], [-0.1, 1.1]),
        (lambda x: arguments.text("x", x), ["", "y" * 200], ["y" * 201, None, 5]),
        (lambda x: arguments.text("x", x, 3), ["abc"], ["abcd"]),
        (lambda x: arguments.label("x", x), ["a name"], ["a\nb", "\x00"]),
        (lambda x: arguments.flag("x", x), [True, np.False_], [1, 0, None, "yes"]),
        (lambda x: arguments.listed("x", x, int), [[1], (2, 3), {4}], [[], [1, "a"], 5, "ab", b"ab", np.array(5)]),
    ],
    ids=range(16),
)
def test_ends_of_what_is_allowed(call, taken, refused):
    for value in taken:
        found = call(value)
        assert np.array_equal(found, list(value) if isinstance(value, range | set) else value)
    for value in refused:
        with pytest.raises(ValueError, match=r"^x="):
            call(value)


def test_numbers_that_nobody_publishes():
    assert arguments.numbers("x", 10**30) == 1e30
    found = arguments.numbers("x", [np.nan, 2.0], 1, unknown=True)
    assert np.isnan(found).tolist() == [True, False]
    assert np.isnan(arguments.number("x", np.nan, unknown=True))
    with pytest.raises(ValueError, match=r"from 1 to 3, and NaN where nothing is published$"):
        arguments.number("x", 4, 1, 3, unknown=True)


def test_shares_too_small_to_multiply_are_none():
    assert arguments.flushed(np.array([1e-30, 9e-31, 0.0, 1.0])).tolist() == [1e-30, 0, 0, 1]


def test_shapes_meet_from_the_last_axis_on():
    arguments.together(a=np.ones((2, 1, 4)), b=np.ones((3, 1)), c=np.ones(4), d=1.0)
    with pytest.raises(ValueError, match=r"c of shape \(5,\) does not fit a of shape \(2, 1, 4\)"):
        arguments.together(a=np.ones((2, 1, 4)), b=np.ones((3, 1)), c=np.ones(5))
    with pytest.raises(ValueError, match=r"c of shape \(2, 1\) does not fit b of shape \(3, 1\)"):
        arguments.together(a=np.ones((2, 1, 4)), b=np.ones((3, 1)), c=np.ones((2, 1)))


def test_sixteen_dimensions_and_no_more():
    assert arguments.numbers("batch", np.ones((1,) * 16)).ndim == 16
    with pytest.raises(ValueError, match=r"batch=.*allowed are numbers"):
        arguments.numbers("batch", np.ones((1,) * 17))


@pytest.mark.parametrize("value", [-7, 0, 7, 10**30, -(10**30)])
def test_whole_numbers_are_numbers(value):
    found = arguments.numbers("shift", value, -np.inf)
    assert (found.dtype, found.item()) == (float, float(value))
