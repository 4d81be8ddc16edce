"""Whether a model fits: parts add up, searches end where memory does, figures of others are met."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import memory_fit
from trnbook.chapters import memory_fit_printed as printed
from trnmodel.search import sizing
from trnmodel.steps.assemble import FIRST_BUCKET
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.mapping import Mapping
from trnmodel.steps.rank import site
from trnmodel.units import GIB

LLAMA = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=Mapping(tp=16, lnc=2))


def test_kinds_add_up_to_the_total():
    found, table = LLAMA.fit(16, 8192), memory_fit.by_kind(LLAMA, 16, 8192)
    sums = table.groupby("rank").stored_bytes.sum()
    assert sums[memory_fit.ORDINARY] == pytest.approx(float(found.total_bytes))
    assert sums[memory_fit.FIRST] == pytest.approx(float(found.first_rank_total_bytes))


def test_the_measured_footprint_by_hand():
    """Llama-3.1-8B, TP 8, in MiB: 15,317 / 8 + 2,048 + 1,024 + 126 + 220 + (96 + 132) = 5,561."""
    anchor = Deployment(model="llama-3.1-8b", system="inf2.48xlarge", mapping=Mapping(tp=8), stack=printed.ANCHOR_STACK)
    total = memory_fit.by_kind(anchor, 32, 4096).query("rank == 'ordinary rank'").stored_bytes.sum()
    assert total / 2**20 == pytest.approx(15317 / 8 + 2048 + 1024 + 126 + 220 + 228, abs=1)


def test_lnc_keeps_the_chips():
    """Trainium3 has 144 GiB and 8 cores: 18, 36 and 144 GiB a rank, of which 8 cores are announced."""
    d = Deployment(model="llama-3.1-70b", system="trn3-nl32x2-pcie160", mapping=Mapping(tp=16, lnc=2))
    table = memory_fit.by_lnc(d, 16, 8192).drop_duplicates("lnc").set_index("lnc")
    assert table.tp.to_dict() == {1: 32, 2: 16, 8: 4}
    assert (table.capacity_bytes / GIB).to_dict() == {1: 18, 2: 36, 8: 144}
    assert table.announced.to_dict() == {1: False, 2: False, 8: True}
    assert table.ranks[8] == "LNC 8 (announced), TP 4"
    two = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=Mapping(tp=16, lnc=2))
    assert set(memory_fit.by_lnc(two, 16, 8192).lnc) == {1, 2}


def test_first_rank_at_lnc_1_has_what_the_other_leaves():
    d = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=Mapping(tp=32, lnc=1))
    held = memory_fit.by_kind(d, 18, 8192).groupby("rank").agg({"stored_bytes": "sum", "capacity_bytes": "first"})
    ordinary, first = held.loc[memory_fit.ORDINARY], held.loc[memory_fit.FIRST]
    assert ordinary.capacity_bytes == 12 * GIB
    assert first.capacity_bytes == pytest.approx(24 * GIB - ordinary.stored_bytes)
    assert first.stored_bytes > 12 * GIB > ordinary.stored_bytes  # beyond its share
    assert bool(d.fit(18, 8192).valid) == (first.stored_bytes <= first.capacity_bytes)


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("name", ["llama-3.1-70b", "deepseek-v3", "nemotron-h-56b"])
def test_largest_batch_is_the_last_that_fits(name, lnc):
    d = Deployment(
        model=name, system="trn2-ultraserver", mapping=Mapping(tp=128 // lnc, lnc=lnc), precision="fp8", stack="ideal"
    )
    table = sizing.largest_batch(d, [2048, 8192], [128 // lnc])
    for row in table.itertuples():
        assert d.fit(row.batch, row.context).valid
        assert not d.fit(row.batch + 1, row.context).valid


def test_largest_batch_is_none_where_nothing_fits():
    assert (sizing.largest_batch(LLAMA, [8192], [2]).batch == 0).all()


def test_longest_context_is_the_last_that_fits():
    table = sizing.longest_context(LLAMA, [4, 16], [16])
    for row in table.itertuples():
        assert LLAMA.fit(row.batch, row.context).valid
        assert not LLAMA.fit(row.batch, row.context + 2 * FIRST_BUCKET).valid
    assert sizing.longest_context(LLAMA, [1], [64]).context.tolist() == [131072]
    assert (sizing.longest_context(LLAMA, [16], [16], 1024).context >= table.context.iloc[1]).all()


def test_fewest_chips_are_at_least_the_bytes():
    """DeepSeek-V3 in BF16 is 1,342 GB: 9 chips of 154.6 GB, 14 of 103.1, and more than the 16 x 34.4 of Trn1."""
    systems = ["trn1.32xlarge", "trn2-ultraserver", "trn3-nl72x2-pcie160"]
    table = sizing.smallest(["deepseek-v3"], systems, ["bf16"], 1, 2048).set_index("system")
    assert table.floor_chips.to_dict() == dict(zip(systems, (40, 14, 9), strict=True))
    assert np.isnan(table.chips["trn1.32xlarge"])
    both = table.dropna()
    assert (both.chips >= both.floor_chips).all()
    assert (both.fill <= 1).all()


def test_heads_are_copied_beyond_their_number():
    """8 key heads: TP 8 divides them, TP 64 stores each eight times; a latent is on all ranks."""
    cache = memory_fit.copies(LLAMA, [8, 64], 4, 4096).query("part == 'cache'")
    assert cache.ratio.tolist() == [pytest.approx(1), pytest.approx(8)]
    latent = Deployment(model="deepseek-v3", system="trn2-ultraserver", mapping=Mapping(tp=1))
    assert memory_fit.copies(latent, [16], 4, 4096).query("part == 'cache'").ratio.tolist() == [pytest.approx(16)]


def test_buckets_are_powers_of_two_and_pad_less_than_half():
    table = memory_fit.buckets(LLAMA, 16, 6000)
    assert table.bucket.tolist() == [128, 256, 512, 1024, 2048, 4096, 6000]
    assert (table.worst_padding[1:] < 0.5).all()
    assert table.scratchpad_bytes.is_monotonic_increasing


def test_pages_hold_the_activations():
    table = memory_fit.scratchpads(LLAMA, [128, 100000], [16]).pivot(
        index="input_tokens", columns="held", values="scratchpad_bytes"
    )
    assert (table["whole pages"] >= table["activations"]).all()
    assert (table["whole pages"] % (GIB / 2) == 0).all()


def test_more_chips_hold_more_across_systems():
    table = sizing.across(LLAMA, ["trn2.48xlarge", "trn3-nl32x2-pcie160"], ["bf16", "fp8"], [8192])
    batch = table.set_index(["system", "precision"]).batch
    assert batch["trn3-nl32x2-pcie160", "bf16"] > batch["trn2.48xlarge", "bf16"]
    assert batch["trn2.48xlarge", "fp8"] > batch["trn2.48xlarge", "bf16"]


def test_footprint_rows_are_all_there_and_within_two_percent_where_independent():
    table = printed.footprint()
    assert table.index.tolist() == list(range(len(table)))
    assert len(table) == 16
    counted = table[table.use == printed.COUNTS]
    assert len(counted) == 14
    ordinary = counted[(counted["rank"] != "rank 0") | (counted.part == "total HBM")]
    assert ordinary.error.abs().max() < 0.02
    shapes = ordinary[ordinary.basis == printed.SHAPES].set_index("part")
    assert set(shapes.index) == {"weights", "KV cache"}
    assert (table.use != "").all()


def test_what_ran_fits():
    """Every published run whose model and lengths are known fits, the first rank too."""
    table = printed.what_ran()
    assert len(table) > 450
    assert (table.verdict == printed.FITS).all()
    # published runs at LNC 1 store more than half a bank of 24 GiB, and ran: half is a share and not a limit
    beside = table[(table.lnc == 1) & (table.first_rank_total_bytes > 12 * GIB)]
    assert ("qwen3.6-35b-a3b", "trn2.3xlarge") in set(zip(beside.model, beside.system, strict=True))


def test_capacities_that_others_solved():
    table = printed.capacities()
    assert len(table) == 18
    sound = table[(table.prefill == "in chunks") | (table.note == "")]
    assert sound.error_with_scores.abs().max() < 0.025
    for found, error in ((table.computed, table.error), (table.with_scores, table.error_with_scores)):
        assert error.tolist() == pytest.approx([x / said - 1 for x, said in zip(found, table.printed, strict=True)])


def test_cache_budget_has_the_printed_share():
    table = printed.cache_budgets(LLAMA, 8192).set_index("policy")
    assert table.of["vLLM Neuron's default"] == pytest.approx(0.30)
    assert table.sequences["all that is left"] == sizing.largest_batch(LLAMA, [8192], [16]).batch.iloc[0]
    paired = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=Mapping(tp=32, lnc=1))
    left = printed.cache_budgets(paired, 8192).set_index("policy").sequences["all that is left"]
    assert left == sizing.largest_batch(paired, [8192], [32]).batch.iloc[0]


def test_prefill_stores_the_cached_prefix_too():
    """Llama 3.1 8B keeps 2 x 8 heads x 128 x 32 layers x 2 B = 131,072 B a token; 8 ranks hold an eighth each."""
    ask = {"batch": 2, "input_tokens": 1024, "efficiencies": "ideal"}
    plain, cached = (
        tm.prefill("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), past=past, **ask).memory_bytes_per_rank
        for past in (0, 3072)
    )
    assert float(cached - plain) == pytest.approx(2 * 3072 * 131_072 / 8, rel=1e-12)
    # the same bytes as a cache of 4,096 tokens beside activations of 2 x 1,024
    fit = tm.memory_fit(
        "llama-3.1-8b",
        "trn2.48xlarge",
        tm.Mapping(tp=8),
        batch=2,
        context=4096,
        input_tokens=2048,
        efficiencies="ideal",
    )
    assert float(cached) == pytest.approx(float(fit.total_bytes), rel=1e-12)
    assert float(fit.cache_bytes) == pytest.approx(2 * 4096 * 131_072 / 8, rel=1e-12)


def test_a_prefix_that_does_not_fit_says_so():
    """24 GB of HBM to a rank of Trainium2: 12 sequences of 131,072 cached tokens take 12 x 2.15 GB."""
    step = tm.prefill("llama-3.1-8b", "trn2.48xlarge", tm.Mapping(tp=8), batch=12, input_tokens=128, past=[0, 130_944])
    assert step.valid.tolist() == [True, False]
    assert step.reason[1] == "does not fit in memory"


def test_a_table_names_the_core_that_is_announced():
    """The system of the chapter has none, Trainium3 has one."""
    words = memory_fit.by_lnc(replace(LLAMA, system="trn3-nl32x2-pcie160"), 16, 8192)
    assert words[words.announced].ranks.unique().tolist() == ["LNC 8 (announced), TP 4"]
    assert "announced" in site("trn3-nl32x2-pcie160", 8).description


def test_the_cache_that_is_allowed_by_hand():
    """A logical core of Trainium2 has 24 GiB; each of 16 ranks keeps one key head: 2 x 128 x 80 layers x 2 B a token.

    0.3 x 24 GiB hold 23 sequences of 8,192 tokens, 320 MiB each; where nothing fits the cache is none.
    """
    table = printed.cache_budgets(LLAMA, 8192).set_index("policy")
    allowed = table.loc["vLLM Neuron's default"]
    one = 2 * 128 * 80 * 2 * 8192
    assert (allowed.cache_bytes, allowed.sequences) == pytest.approx((0.3 * 24 * GIB, 23))
    left = table.loc["all that is left"]
    assert left.sequences == left.cache_bytes // one
    fit = LLAMA.fit(1, 8192)
    assert left.cache_bytes == pytest.approx(one * (1 + float(fit.room_bytes) / one), rel=1e-9)
    assert left.of == pytest.approx(left.cache_bytes / (24 * GIB))
    little = replace(LLAMA, mapping=Mapping(tp=8, lnc=2))  # 141 GB / 8 are 17.6 of 25.8 GB
    both = printed.cache_budgets(little, 8192)
    assert both.sequences.nunique() == 1
    assert both.of.max() < 0.3
    none = printed.cache_budgets(replace(LLAMA, mapping=Mapping(tp=2, lnc=2)), 8192)
    assert none[["cache_bytes", "sequences", "of"]].to_numpy().tolist() == [[0, 0, 0]] * 2


def test_the_longest_contexts_are_the_last_that_fit():
    """In steps of 128; with 32 / 8 heads x prompt x context x 2 B more, in chunks of 1,024 tokens or whole."""
    table = printed.capacities()
    assert table.prefill.tolist() == ["in chunks"] * 9 + ["whole prompt"] * 9
    assert table.batch.tolist() == [2**n for n in range(9)] * 2
    anchor = Deployment(model="llama-3.1-8b", system="inf2.48xlarge", mapping=Mapping(tp=8), stack=printed.ANCHOR_STACK)
    for row in table.itertuples():
        for context, heads in ((row.computed, 0), (row.with_scores, 32 / 8)):
            for more, fits in ((0, True), (128, False)):
                if context + more > 131_072:
                    continue
                prompt = min(1024, context + more) if row.prefill == "in chunks" else context + more
                found = anchor.fit(row.batch, context + more, prompt)
                stored = float(found.first_rank_total_bytes) + heads * prompt * (context + more) * 2
                assert (stored <= float(found.capacity_bytes)) is fits, (row, more)
    assert (table.computed[:3] == 131_072).all()
    assert printed._longest(replace(anchor, mapping=Mapping(tp=1)), 1, None, False) == 0  # 16 GB of weights in 16 GiB
    assert printed._longest(anchor, 256, 8, False) % 128 == 0


def test_the_rows_of_a_footprint_by_hand():
    """MiB as the source prints them, of ranks 1 to 7; what is a shape, what a constant of the row, what their sum."""
    table = printed.footprint()
    assert table["rank"].tolist() == ["ranks 1-7"] * 8 + ["rank 0"] * 8
    kinds = ["sum of parts", "shapes", "shapes", *["this row"] * 4, ""]
    assert table.basis.tolist() == kinds * 2
    rows = printed.in_mib(table, "ranks 1-7")
    assert list(rows) == ["part", "measured [MiB]", "predicted [MiB]", "error", "basis", "use"]
    names = [
        "total HBM",
        "weights",
        "KV cache",
        "model_shared_scratchpad",
        "collectives buffers",
        "dma_rings",
        "model_code (NEFF)",
        "other",
    ]
    assert rows.part.tolist() == names
    assert rows["measured [MiB]"].tolist() == [5600, 1948, 2048, 1024, 126, 220, 228, 7]
    ours = [15317 / 8 + 2048 + 1024 + 126 + 220 + 228, 15317 / 8, 2048, 1024, 126, 220, 228]
    assert rows["predicted [MiB]"].tolist()[:7] == pytest.approx(ours, abs=0.6)
    assert rows.error.tolist()[:2] == pytest.approx([ours[0] / 5600 - 1, ours[1] / 1948 - 1], abs=1e-3)
    assert rows.use.tolist() == [printed.COUNTS] * 7 + [rows.use[7]]
    assert rows.use[7].startswith("meaning: 'HBM other ranks 1-7' is none of what the model stores")


def test_whether_a_run_fits_by_hand(monkeypatch):
    """Bytes of an ordinary rank against all that it has, and of the first against what the others leave it."""
    cases = [((5, 7, 5, 7), "fits"), ((5, 8, 5, 7), "first rank too large"), ((6, 8, 5, 7), "too large"),
             ((6, 7, 5, 7), "fits")]  # fmt: skip
    names = ("total_bytes", "first_rank_total_bytes", "capacity_bytes", "first_rank_capacity_bytes")
    run = next(r for r in printed._runs() if r.mapping[3])
    runs, answers = [replace(run, batch=float(n)) for n, _ in enumerate(cases)], [sizes for sizes, _ in cases]
    monkeypatch.setattr(printed, "_runs", lambda: runs)
    monkeypatch.setattr(
        printed,
        "stored_bytes",
        lambda r, batch, context: SimpleNamespace(**dict(zip(names, answers[runs.index(r)], strict=True))),
    )
    table = printed.what_ran()
    assert table.verdict.tolist() == [verdict for _, verdict in cases]
    assert table[list(names)].to_numpy().tolist() == [list(sizes) for sizes in answers]
    assert (table.lnc == run.mapping[3]).all()


def test_runs_are_of_neuron_chips_and_their_software_each_once():
    table, runs = printed.what_ran(), printed._runs()
    assert table.system.str.match("trn|inf").all()
    assert all(r.stack != "ideal" and r.model and not r.meaning.startswith("train") for r in runs)
    assert (table.context > 0).all()
    assert (table.context % 1 == 0).mean() > 0.99
    assert len({(r.model_id, r.where, r.mapping, *printed._size(r), str(r.precision)) for r in runs}) == len(runs)
    sizes = [
        printed._size(replace(runs[0], **some))
        for some in (
            {"batch": 3.0, "compiled_batch": 5.0, "context": 7.0, "max_context": 11.0, "prompt": 2.0},
            {"batch": 3.0, "compiled_batch": 5.0, "context": 7.0, "max_context": np.nan, "prompt": 13.0},
        )
    ]
    assert sizes == [(5, 11), (5, 13)]
