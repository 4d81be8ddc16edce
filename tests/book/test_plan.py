"""The plans on the first page of the book are those of `tm.plan`."""

from dataclasses import replace

import numpy as np

import trnmodel as tm
from trnbook.chapters import index_cover as cover
from trnmodel.search.plan import plan


def slower(name: str, share: float) -> tm.System:
    """A system whose HBM has a share of its rate."""
    spec = tm.system(name)
    return replace(spec, chip=replace(spec.chip, hbm_bytes_per_s=share * spec.chip.hbm_bytes_per_s))


def test_every_cell_of_a_cover_is_a_plan_and_half_the_hbm_rate_changes_them():
    models, speeds, name = ["llama-3.1-8b", "llama-3.3-70b", "deepseek-v3"], [20.0, 50.0], "trn3-nl32x2-pcie160"
    table, half = (cover.answers(models, speeds, 1024, 256, systems=x) for x in (name, slower(name, 0.5)))
    assert table.model.tolist() == np.repeat(models, 2).tolist()
    assert table.wanted_tokens_per_s_per_user.tolist() == speeds * 3
    for line in table.itertuples():
        request = tm.Request(1024, 256, tokens_per_s_per_user=line.wanted_tokens_per_s_per_user)
        found = plan(line.model, request, name)
        for cell in ("precision", "tp", "ep", "batch", "chips", "tokens_per_s_per_chip", "ttft_s", "basis"):
            np.testing.assert_equal(getattr(line, cell), getattr(found.best, cell))
        np.testing.assert_equal(
            (line.tokens_per_s_per_chip_low, line.tokens_per_s_per_chip_high), found.best.ends("tokens_per_s_per_chip")
        )
        np.testing.assert_equal(line.ideal_tokens_per_s_per_chip, found.other_software[-1].tokens_per_s_per_chip)
        assert line.command == found.command
    assert (half.tokens_per_s_per_chip.fillna(0) < table.tokens_per_s_per_chip.fillna(1)).all()
    assert (
        half.ideal_tokens_per_s_per_chip.fillna(0) <= table.ideal_tokens_per_s_per_chip.fillna(0)
    ).all()  # the peak bounds some


def test_a_cover_says_where_nothing_fits():
    line = cover.answers(["llama-3.1-405b"], [20.0], systems="trn2.3xlarge").iloc[0]
    assert (line.reached, line.system) == (False, "")
    assert line.why.startswith("does not fit: ")
