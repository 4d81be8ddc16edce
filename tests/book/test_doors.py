"""The least that each argument of the table of operators may be, and that nothing below it is taken."""

import pytest

from trnbook.shared.operators import step_operators


@pytest.mark.parametrize(("name", "least"), [("batch", 1), ("tokens", 1), ("past", 0)])
def test_the_least_is_taken_and_nothing_below(name, least):
    asked = {"batch": 1, "tokens": 1, "past": 8, "dtype": "bf16"}
    asked |= {name: least}
    assert len(step_operators("llama-3.1-8b", "decode", *asked.values()))
    with pytest.raises(ValueError, match=rf"{name}="):
        step_operators("llama-3.1-8b", "decode", *(asked | {name: least - 0.5}).values())
