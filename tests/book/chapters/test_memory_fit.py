"""Whether a model fits: parts add up, searches end where memory does, figures of others are met."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import trnmodel as tm
from trnbook.chapters import memory_fit
from trnbook.chapters import memory_fit_printed as printed
from trnbook.shared import case
from trnbook.shared.stored import EXTRA
from trnmodel.search import sizing
from trnmodel.steps.assemble import FIRST_BUCKET
from trnmodel.steps.deployment import Deployment
from trnmodel.steps.mapping import Mapping
from trnmodel.units import GIB

LLAMA = Deployment(model="llama-3.1-70b", system="trn2.48xlarge", mapping=Mapping(tp=16, lnc=2))


def test_kinds_add_up_to_the_first_rank():
    fit = LLAMA.fit(16, 8192)
    table = memory_fit.kinds(fit, (), "TP 16")
    assert table.stored_bytes.sum() == pytest.approx(float(fit.first_rank_total_bytes))
    assert table.set_index("kind").stored_bytes[EXTRA] == pytest.approx(610 * 2**20)


def test_the_measured_footprint_by_hand():
    """Llama-3.1-8B, TP 8, in MiB: 15,317 / 8 + 2,048 + 1,024 + 126 + 220 + (96 + 132) = 5,561."""
    anchor = Deployment(model="llama-3.1-8b", system="inf2.48xlarge", mapping=Mapping(tp=8), stack=printed.ANCHOR_STACK)
    table = memory_fit.kinds(anchor.fit(32, 4096), (), "TP 8").set_index("kind").stored_bytes.drop(EXTRA)
    assert table.sum() / 2**20 == pytest.approx(15317 / 8 + 2048 + 1024 + 126 + 220 + 228, abs=1)


def test_mappings_of_a_system_fill_it_at_each_lnc():
    """Trainium2 has 16 chips of 8 cores: 64 ranks of two cores, 128 of one."""
    system = tm.system("trn2.48xlarge")
    two, one = memory_fit.mappings(system), memory_fit.mappings(system, 1)
    assert (two.ranks.max(), one.ranks.max()) == (64, 128)
    assert (two.lnc, one.lnc) == (2, 1)
    assert len({*zip(two.tp, two.ep, strict=True)}) == two.size == 28  # pairs of powers of two up to 64
    assert memory_fit.mappings(system, None, 24, 2).tp.tolist() == [24]
    assert memory_fit.mappings(tm.system("hgx-h100")).lnc is None
    with pytest.raises(ValueError, match="tp = 64 with ep = 2 is more than the 64 ranks of"):
        memory_fit.mappings(system, None, 64, 2)


def test_first_rank_at_lnc_1_has_what_the_other_leaves():
    fit = replace(LLAMA, mapping=Mapping(tp=32, lnc=1)).fit(18, 8192)
    assert float(fit.capacity_bytes) == 12 * GIB
    assert float(fit.first_rank_capacity_bytes) == pytest.approx(24 * GIB - float(fit.total_bytes))
    assert fit.first_rank_total_bytes > 12 * GIB > fit.total_bytes  # beyond its share
    assert bool(fit.valid) == (fit.first_rank_total_bytes <= fit.first_rank_capacity_bytes)
    assert memory_fit.kinds(fit, (), "").capacity_bytes[0] == float(fit.first_rank_capacity_bytes)


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
    once = 4 * 4096 * 327_680
    assert [float(LLAMA.fit(4, 4096, tp=tp).cache_bytes) * tp / once for tp in (8, 64)] == pytest.approx([1, 8])
    latent = Deployment(model="deepseek-v3", system="trn2-ultraserver", mapping=Mapping(tp=16)).fit(4, 4096)
    assert float(latent.cache_bytes) == pytest.approx(4 * 4096 * 70_272)


MAPPINGS = memory_fit.mappings(tm.system("trn2.48xlarge"))


def asked(model, precision, batch, context):
    sizes = {"batch": batch, "context": context, "precision": precision}
    model = memory_fit.subject(model, context)
    fit = tm.memory_fit(model, "trn2.48xlarge", MAPPINGS, **sizes)
    return fit, tm.decode_step(model, "trn2.48xlarge", MAPPINGS, **sizes)


def test_qwen3_with_eight_long_users_by_hand():
    """Four heads of keys: TP 64 holds 8 x 65,536 x 192,512 / 4 B = 23.5 of 24 GiB; eight groups of four hold 2.9."""
    fit, step = asked("qwen3-235b-a22b", "fp8", 8, 65_536)
    held = memory_fit.that_hold(MAPPINGS, fit, step)
    assert "TP 64" not in set(held.mapping)
    cache = fit.cache_bytes[(MAPPINGS.tp == 64) & (MAPPINGS.ep == 1)]
    assert cache == pytest.approx(8 * 65_536 * 192_512 / 4)
    best = held.iloc[0]
    assert (best.mapping, best.chips, best["KV cache [GiB]"]) == ("TP 4 x EP 8", 8, f"{65_536 * 192_512 / 4 / GIB:.1f}")
    assert held.chips.is_monotonic_increasing
    assert (held.share <= 1).all()
    place = memory_fit.chosen(MAPPINGS, fit)
    assert memory_fit.at(MAPPINGS, place).ranks == 32 == MAPPINGS.ranks[fit.valid].min()


def test_the_card_says_whether_it_fits():
    fit, _ = asked("llama-3.3-70b", "fp8", 4, 4608)
    place = memory_fit.chosen(MAPPINGS, fit)
    said = memory_fit.answer(MAPPINGS, fit, place, "of it")
    assert (
        "**Probably: 21 of 24 GiB** (18 to 26; extrapolated): what the fullest rank of trn2.48xlarge needs of it"
        in said
    )
    assert "so it should fit with TP 4." in said
    # 24 GiB less 18.32 of weights and cache over the other 2.27
    assert (
        "The model no longer fits if they are 2.5 times as large as we estimate, and the range goes beyond that."
        in said
    )
    assert "half as many ranks, on which TP 2 would store 39 GiB." in said
    none = tm.memory_fit("llama-3.1-405b", "trn2.48xlarge", MAPPINGS, batch=64, context=65_536)
    assert not none.valid.any()
    said = memory_fit.answer(MAPPINGS, none, memory_fit.chosen(MAPPINGS, none), "of it")
    assert "so it does not fit; TP 64 comes nearest." in said
    assert said.startswith("> **No: ")
    assert memory_fit.by_ranks(MAPPINGS, none).mapping.unique().tolist() == ["TP 16", "TP 32", "TP 64"]


def test_a_mapping_that_cannot_be_is_refused_in_a_line():
    mapping = memory_fit.mappings(tm.system("trn2.48xlarge"), None, 64, 1)
    with pytest.raises(
        ValueError, match=r"no mapping of tp and ep on trn2\.48xlarge is legal: the software needs a number"
    ):
        memory_fit.chosen(mapping, tm.memory_fit("llama-3.1-8b", "trn2.48xlarge", mapping, batch=1, context=512))


def test_the_chart_has_a_mapping_for_each_number_of_ranks():
    """The least number that holds it, half of that, and all above; of each the mapping with the most room."""
    fit, _ = asked("llama-3.3-70b", "fp8", 4, 4608)
    assert memory_fit.by_ranks(MAPPINGS, fit).mapping.unique().tolist() == [f"TP {n}" for n in (2, 4, 8, 16, 32, 64)]
    fit, _ = asked("qwen3-235b-a22b", "fp8", 8, 65_536)
    table = memory_fit.by_ranks(MAPPINGS, fit).groupby("mapping", sort=False).stored_bytes.sum()
    assert table.index.tolist() == ["TP 4 x EP 4", "TP 4 x EP 8", "TP 8 x EP 8"]


def test_largest_batches_are_the_last_that_fit():
    contexts = np.array([2048.0, 32_768.0])
    around = memory_fit.more_ranks(Mapping(tp=4, ep=8), tm.system("trn2.48xlarge"))
    assert around.tp.ravel().tolist() == [4, 8]
    ask = {"context": contexts, "precision": "fp8"}
    where = "qwen3-235b-a22b", "trn2.48xlarge"
    one, two = (tm.memory_fit(*where, around, batch=n * around.ep, **ask) for n in (1, 2))
    table = memory_fit.sequences(around, one, two, contexts)
    assert len(table) == 4
    for row in table.itertuples():
        mapping = Mapping(tp=int(row.mapping.split()[1]), ep=8)
        last = tm.memory_fit(*where, mapping, batch=[row.batch, row.batch + 8], context=row.context, precision="fp8")
        assert last.valid.tolist() == [True, False]
    nothing = memory_fit.largest_batches(
        Mapping(tp=[1]), *(LLAMA.fit(n, contexts, tp=1) for n in (1, 2)), contexts, "x"
    )
    assert nothing.data == "**No user of x fits** with these mappings."


def test_a_model_is_stretched_four_times_and_no_further():
    assert memory_fit.subject("qwen3-235b-a22b", 4 * 40_960).max_context == 163_840
    assert memory_fit.subject("llama-3.3-70b", 4608) is tm.model("llama-3.3-70b")
    with pytest.raises(ValueError, match="context = 163841 must be from 128 to 163840"):
        memory_fit.subject("qwen3-235b-a22b", 163_841)


def test_pages_hold_the_activations():
    """2 T (f / 16 + 2 h) bytes with f = 2 x 28,672 and h = 8,192, in pages of half a GiB; ideal software has none."""
    tokens = np.array([128.0, 100_000.0])
    pages, ideal = (replace(LLAMA, stack=stack).fit(1, tokens, tokens).scratchpad_bytes for stack in (None, "ideal"))
    assert ideal == pytest.approx(2 * tokens * (2 * 28_672 / 16 + 2 * 8192))
    assert pages == pytest.approx(np.ceil(ideal / (GIB / 2)) * GIB / 2)


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


def solved():
    """The printed capacities with ours, as the chapter asks for them."""
    table, contexts = printed.capacities(), np.arange(128.0, 131_072 + 1, 128)
    prompts = np.minimum(table[["chunk"]].to_numpy(), contexts)
    anchor = Deployment(model="llama-3.1-8b", system="inf2.48xlarge", mapping=Mapping(tp=8), stack=printed.ANCHOR_STACK)
    fit = anchor.fit(table.batch.to_numpy()[:, None], contexts, prompts)
    return anchor, printed.with_longest(table, contexts, fit)


def test_capacities_that_others_solved():
    _, table = solved()
    assert len(table) == 18
    assert table[table.sound].error_with_scores.abs().max() < 0.025
    for found, error in ((table.computed, table.error), (table.with_scores, table.error_with_scores)):
        assert error.tolist() == pytest.approx([x / said - 1 for x, said in zip(found, table.printed, strict=True)])


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


def test_the_longest_contexts_are_the_last_that_fit():
    """In steps of 128; with 32 / 8 heads x prompt x context x 2 B more, in chunks of 1,024 tokens or whole."""
    anchor, table = solved()
    assert table.prefill.tolist() == ["in chunks"] * 9 + ["whole prompt"] * 9
    assert table.batch.tolist() == [2**n for n in range(9)] * 2
    for row in table.itertuples():
        for context, heads in ((row.computed, 0), (row.with_scores, 32 / 8)):
            for more, fits in ((0, True), (128, False)):
                if context + more > 131_072:
                    continue
                prompt = min(row.chunk, context + more)
                found = anchor.fit(row.batch, context + more, prompt)
                stored = float(found.first_rank_total_bytes) + heads * prompt * (context + more) * 2
                assert (stored <= float(found.capacity_bytes)) is fits, (row, more)
    assert (table.computed[:3] == 131_072).all()


def test_runs_are_counted_by_what_they_fill():
    table = printed.by_fill(printed.what_ran()).set_index("filled").runs
    assert table.index.tolist()[:2] == ["0 to 50 %", "50 to 70 %"]
    assert table["too large"] == 0
    assert table.sum() == len(printed.what_ran())


def test_a_chip_of_the_case_by_hand():
    """Llama in FP8 takes 72.7 GB and four users of 4,608 tokens 6.0; a user more takes 320 KiB a token."""
    plan = case.choice("llama-3.3-70b", "trn2.48xlarge")
    ask = {"batch": plan.batch, "context": 4608, "precision": plan.precision, "efficiencies": plan.stack}
    fit = tm.memory_fit("llama-3.3-70b", "trn2.48xlarge", plan.degrees, **ask)
    row = memory_fit.on_a_chip(plan, fit)
    assert row["weight_bytes"] == pytest.approx(70_553_706_496 + 2 * 128_256 * 8192, rel=1e-3)
    assert row["cache_bytes"] == 4 * 4608 * 327_680
    assert row["hbm_bytes"] == 96 * GIB
    assert row["more_users"] == np.floor(float(fit.room_bytes) / (4608 * 327_680 / 4))


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


def test_mixtures_are_those_of_the_page():
    """Kimi-K2.5 on Trainium2: 20.9, 21.9 and 23.4 GiB of a bank, as the page prints them."""
    table = printed.mixtures()
    assert (table.measured_bytes / GIB).round(1).tolist() == [20.9, 21.9, 23.4]
    assert table.context.tolist() == [128, 512, 1024]
