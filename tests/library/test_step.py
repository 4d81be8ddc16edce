"""Rows, shares and overlaps of a step: hand-made cases and limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnmodel.formulas import step

seconds = st.just(0.0) | st.floats(1e-9, 10)
share = st.floats(0, 1)


@given(st.integers(1, 100_000), st.sampled_from([512, 4096, 131072]))
def test_a_bucket_holds_its_tokens(tokens, longest):
    found = step.compiled_tokens(tokens, longest, 128, "power-of-two")
    assert found >= tokens
    assert found == tokens or found <= longest
    assert found in (tokens, longest) or np.log2(found) % 1 == 0
    assert step.compiled_tokens(tokens, longest, 128, "exact") == tokens
    assert step.compiled_tokens(tokens, longest, 128, "maximum") == max(tokens, longest)


def test_a_sequence_is_never_cut():
    assert step.own_sequences(np.array([1, 4, 96, 0.5]), 64).tolist() == [1, 1, 1.5, 0.5]


@given(st.integers(1, 128), st.integers(1, 300))
def test_the_fullest_rank_holds_whole_units(units, ranks):
    held = step.fullest_share(units, ranks) * units
    assert held == pytest.approx(round(float(held)))
    assert units / ranks - 1e-9 <= held < units / ranks + 1


def test_who_sees_what():
    context = np.array([0.0, 1.0, 31.0, 32.0, 33.0, 100.0])
    assert step.visible_tokens(context, 32, "sliding").tolist() == [0, 1, 31, 32, 32, 32]
    assert step.visible_tokens(context, 32, "chunked").tolist() == [0, 1, 31, 32, 1, 4]
    assert step.cached_tokens(context, 32, "chunked").tolist() == [0, 1, 31, 32, 32, 32]
    assert step.visible_tokens(context, 0, "causal").tolist() == context.tolist()
    assert step.cached_tokens(context, 0, "cross").tolist() == context.tolist()


@given(seconds, seconds, share, share)
def test_overlap_lies_between_the_longer_and_the_sum(first, second, overlap, phase):
    time = step.overlapped_s(first, second, overlap)
    assert max(first, second) <= time <= (first + second) * (1 + 1e-12)
    assert step.overlapped_s(first, second, 0.0) == pytest.approx(first + second)
    assert step.phased_s(first, second, phase) == pytest.approx(phase * first + (1 - phase) * second)


def test_rows_and_bytes():
    assert step.work_flop(3.0, 5, 2.0, 1) == 17
    assert step.read_bytes(100.0, 3.0, np.array([0, 2])).tolist() == [100, 106]
    assert step.buffer_bytes(4, 8192, 2) == 65536


def test_what_a_bank_has_left():
    """One rank has all of it, two that store alike fit up to half of it each."""
    left = step.left_in_bank_bytes(24.0, np.array([1, 2, 2, 2]), np.array([30.0, 12.0, 0.0, 30.0]))
    assert left.tolist() == [24.0, 12.0, 24.0, -6.0]
