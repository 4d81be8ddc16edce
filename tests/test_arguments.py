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
