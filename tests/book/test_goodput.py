"""Uptimes that a chapter shows beside what is printed."""

from types import SimpleNamespace

import numpy as np
import pytest

from trnbook.chapters import goodput_uptimes as uptimes


def test_uptimes_beside_what_is_printed():
    """6 % are lost where 4 % are printed; a printed "over" is below the high end alone; a fifth of 8 days is lost."""
    job = {"system": "s", "model": "m", "printed": "96 %", "used_for": "", "measure": "running", "chips": 4096.0}
    named = {
        "plain": {"share": 0.96},
        "low": {"share": 0.92},
        "high": {"share": 0.98},
        "beyond": {"share": 0.981},
        "below": {"share": 0.919},
        "over": {"share": 0.5, "printed": "over 50 %"},
        "over all": {"share": 0.99, "printed": "over 99 %"},
        "useful": {"share": 0.75, "measure": "useful"},
        "hand": {"share": 0.96, "measure": "by hand"},
        "few": {"share": 0.96, "chips": 4095.0},
        "used": {"share": 0.96, "used_for": "x"},
    }
    rows = [SimpleNamespace(what=name, **job | more) for name, more in named.items()]
    ends = {"running_share": (0.92, 0.98), "useful_share": (0.7, 0.8)}
    found = SimpleNamespace(running_share=0.94, useful_share=0.8, ends=ends.__getitem__, mtbf_s=7.0)
    table = uptimes.uptimes(rows, [found] * len(rows)).set_index("what")
    assert table.index[table.inside].tolist() == ["plain", "low", "high", "over", "useful", "hand", "few", "used"]
    assert table.index[~table.fair].tolist() == ["hand", "few", "used"]
    lost = table.lost_ratio[["plain", "over", "useful"]].tolist()
    assert lost == pytest.approx([0.06 / 0.04, np.nan, 0.2 / 0.25], nan_ok=True)
    assert table.loc["useful", ["predicted", "predicted_low", "predicted_high"]].tolist() == [0.8, 0.7, 0.8]
