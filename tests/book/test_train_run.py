"""Systems beside each other in the chapter on training."""

import pytest

from trnbook.chapters import training_table as train_table
from trnmodel.search.trainings import question

DENSE, EXPERTS = "llama-3.1-8b", "qwen3-30b-a3b"
TRN = ("trn2-ultraserver", "trn3-nl72x2-pcie160")


def test_systems_beside_each_other():
    """No system is faster than its peak over 6 FLOP a parameter and token; better software and fewer bits take less."""
    name = "llama-3.1-405b"
    found = train_table.runs({name: {"model": name, **question(name)}}, TRN, "bf16", 8192)
    table = train_table.rows(found)
    rows = table.set_index(["system", "software", "precision"])
    assert len(rows) == 12
    least = 6 * 405.85e9 * 15e12 / (8192 * 667e12) / 86_400
    assert rows.run_days["trn2-ultraserver", "ideal", "bf16"] > least
    for system, narrow in (("trn2-ultraserver", "fp8"), ("trn3-nl72x2-pcie160", "mxfp8")):
        for kind in ("public", "hand-tuned", "ideal"):
            assert rows.run_days[system, kind, narrow] < rows.run_days[system, kind, "bf16"]
        days = [rows.run_days[system, kind, "bf16"] for kind in ("public", "hand-tuned", "ideal")]
        assert days == sorted(days, reverse=True)
    assert (table.run_days_low <= table.run_days).all()
    assert (table.run_days <= table.run_days_high).all()
    assert (table.memory_bytes <= table.capacity_bytes).all()
    with pytest.raises(ValueError, match="runs are published of deepseek-v3, llama"):
        question(DENSE)
