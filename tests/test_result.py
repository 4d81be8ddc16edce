"""What every result can do."""

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.result import Result, blank, reason_mask, words


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
        return words(np.where(self.size_bytes > 1, 2, 1), ("latency", "bandwidth"))


def answer(n_ranks, size_bytes):
    n_ranks, size_bytes = np.asarray(n_ranks), np.asarray(size_bytes)
    mask = reason_mask(n_ranks > 64, size_bytes > 100)
    numbers = blank(mask, time_s=size_bytes * 2.0)
    return Answer(system=SimpleNamespace(id="a-system"), algorithm="ring", n_ranks=n_ranks, size_bytes=size_bytes,
                  by_operator={}, **numbers, reason_mask=mask)  # fmt: skip


def test_frame_is_tidy():
    frame = answer([[2], [128]], [1, 10, 1000]).to_frame()
    assert list(frame.columns) == [
        "system", "algorithm", "n_ranks", "size_bytes", "time_s", "rate_bytes_per_s", "bound", "valid", "reason"
    ]  # fmt: skip
    assert list(frame.n_ranks) == [2, 2, 2, 128, 128, 128]
    assert list(frame.size_bytes) == [1, 10, 1000] * 2
    assert set(frame.system) == {"a-system"}
    assert list(frame.bound[:3]) == ["latency", "bandwidth", "bandwidth"]
    np.testing.assert_array_equal(frame.time_s.isna(), ~frame.valid)


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
    assert len(text.splitlines()) <= 6
    assert len(text) < 800
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
    step = tm.decode_step("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=6, dp=3), batch=4, context=2048)
    assert (step.occupied_chips, step.tokens_per_s_per_chip) == (5, step.tokens_per_s / 5)  # 18 ranks, four a chip
