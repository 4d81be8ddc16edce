"""No answer improves when failures, latencies, watts, prices or imbalance grow: 10^5 random questions of each.

A question compares a random point with the same point after one input, or all of them together, has grown by a random
amount. The points of a system and a model are asked in one call: the first column holds a point as it was drawn, the
others hold it with one input grown each. Where an input may be 0, some of the points draw that.
"""

from dataclasses import fields, replace
from functools import cache
from math import inf

import numpy as np
import pytest

import trnmodel as tm
from trnmodel.catalog import facilities
from trnmodel.catalog.prices import owner, prices
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.trainers import Trainer, trainer
from trnmodel.power.energy import BOUNDARIES
from trnmodel.reliability.goodput import replica_availability, replica_downtime
from trnmodel.reliability.redundancy import rack_alternatives

QUESTIONS = 100_000  # of each of the five properties
ROUNDING = 1e-12

RATES = ("interruptions_per_chip_s", "lane_failures_per_s", "cable_failures_per_s", "switch_failures_per_s")
OUTAGES = ("restart_s", "swap_s", "repair_s")
RACKS = [name for name in tm.systems() if tm.system(name).chips > 1]
SWAPS = ("hot", "drain")

LATENCIES = tuple(one.name for one in fields(Efficiencies) if one.name.endswith("_s") and "_per_" not in one.name)
TRAINING_LATENCIES = tuple(one.name for one in fields(Trainer) if one.name.endswith("_s"))
USUAL_S = {"hop_s": 3e-6, "one_shot_s": 3e-6, "two_shot_s": 9e-6, "shot_rank_s": 2e-7, "server_first_token_s": 0.05}
USUAL_S |= {"step_overhead_s": 3e-3, "prefill_overhead_s": 5e-3, "server_step_s": 2e-3, "step_s": 0.1}
A_LAYER_S = 5e-5  # of every latency that a layer, a sequence, an expert or a block has
STACKS = (None, "hand-tuned", "ideal")

SERVED = [
    ("llama-3.1-8b", "trn2.48xlarge", {"tp": 8}),
    ("llama-3.1-70b", "trn2-ultraserver", {"tp": 32, "pp": 2}),
    ("qwen3-30b-a3b", "trn3-nl72x2-pcie160", {"tp": 4, "ep": 8}),
    ("deepseek-v3", "trn3-nl72x2-pcie160", {"tp": 4, "ep": 32}),
    ("gpt-oss-120b", "trn3-nl32x2-torus", {"tp": 8, "ep": 4}),
    ("qwen3-next-80b-a3b", "trn3-nl32x2-pcie160", {"tp": 4, "ep": 2}),
    ("mixtral-8x7b-v0.1", "hgx-h100", {"tp": 2, "ep": 4}),
    ("deepseek-v3", "gb200-nvl72", {"tp": 1, "ep": 64}),
    ("llama-3.1-70b", "mi300x-8", {"tp": 4, "cp": 2}),
    ("mistral-7b-v0.3", "inf2.48xlarge", {"tp": 8}),
]
EXPERTS = [of for of in SERVED if tm.model(of[0]).outline("decode").experts]
TRAINED = [
    ("llama-3.1-8b", "trn2-ultraserver", {"tp": 8, "dp": 32}),
    ("llama-3.1-8b", "hgx-h100", {"tp": 4, "pp": 2, "dp": 8}),
    ("qwen3-30b-a3b", "hgx-a100", {"tp": 2, "pp": 2, "ep": 8, "dp": 4}),
    ("qwen3-30b-a3b", "trn3-nl72x2-pcie160", {"tp": 4, "ep": 8, "dp": 4}),
    ("bert-large-uncased", "trn1.32xlarge", {"dp": 32}),
]
PRICED = [name for name in tm.systems() if tm.tco(name).valid]
"""Systems whose hour has a price: racks whose parts are counted, and servers as sold."""


def points(combinations, inputs):
    """Return how many points each of some combinations draws, so that together they ask all questions."""
    return -(-QUESTIONS // (combinations * (inputs + 1)))


def grown(rng, usual, rows, least=0.0):
    """Return random inputs around their usual values: as drawn, then each larger by itself, then all of them.

    A share, whose name says so, ends at 1.
    """
    inputs = {}
    for place, (name, middle) in enumerate(usual.items(), 1):
        most = 1.0 if name.endswith("_share") else inf
        drawn = np.clip(middle * 10 ** rng.uniform(-2, 1, rows), least, most)
        drawn[rng.random(rows) < 0.1] = least
        larger = np.minimum(drawn + middle * 10 ** rng.uniform(-3, 1.5, rows), most)
        values = np.repeat(drawn[:, None], len(usual) + 2, axis=1)
        values[:, place] = values[:, -1] = larger
        inputs[name] = values
    return inputs


def usual_of(spec, names):
    """Return the latencies of a stack, and what is usual of those that it does not have."""
    return {name: getattr(spec, name) or USUAL_S.get(name, A_LAYER_S) for name in names}


def never_falls(figure, inputs, what):
    """Fail where a figure that counts what is lost, such as a time or a cost, is less than that of the point as drawn.

    An answer that has no number may not get one from worse inputs.
    """
    names, values = [*inputs, "all of them"], np.asarray(figure, float)
    values = np.broadcast_to(values, np.broadcast_shapes(values.shape, next(iter(inputs.values())).shape))
    first, others = values[:, :1], values[:, 1:]
    assert not np.isnan(first).all(), what
    less = (others < first) & ~np.isclose(others, first, rtol=ROUNDING, atol=0)
    row, column = np.nonzero(less | (np.isnan(first) & ~np.isnan(others)))
    assert not row.size, f"{what}: {names[column[0]]} at point {row[0]}, {first[row[0]]} to {values[row[0]]}"


def never_rises(figure, inputs, what):
    """Fail where a figure that counts what is gained, such as a rate or a share, is more than that as drawn."""
    never_falls(-np.asarray(figure, float), inputs, what)


def logarithmic(rng, low, high, rows):
    """Return a column of whole numbers, evenly in logarithms."""
    return np.round(np.exp(rng.uniform(np.log(low), np.log(high), (rows, 1))))


def random_of(what):
    """Return the random numbers of a combination, which are the same in each run."""
    return np.random.default_rng(list(str(what).encode()))


# Failures


@cache
def racks():
    """Return the racks and servers of several chips, switched ones with each use of their redundant lanes too."""
    return [one for name in RACKS for one in rack_alternatives(name).values()]


def random_fleets(rng, rows):
    """Return fleets of which a rate or a time of an outage grows, and what grows; a time of 0 is no outage."""
    fleet = tm.fleet()
    worse = grown(rng, {name: getattr(fleet, name) for name in (*RATES, *OUTAGES)}, rows)
    shares = {name: rng.uniform(size=(rows, 1)) for name in ("exposed_share", "repaired_share")}
    return replace(fleet, id="random", ranges={}, **shares, **worse), worse


def test_more_failures_and_longer_outages_never_help_a_job():
    """Spares are whole failure domains, of which one more than is needed gains up to 0.001: goodput has them given."""
    for system in racks():
        for swap in SWAPS:
            what = (system.id, len(system.scaleup_lanes), swap)
            rng, rows = random_of(what), points(2 * len(racks()), len(RATES + OUTAGES))
            fleet, worse = random_fleets(rng, rows)
            asked = {"checkpoint_bytes": 10 ** rng.uniform(9, 14, (rows, 1)), "fleet": fleet, "swap": swap}
            chips = logarithmic(rng, 1, 1e5, rows)
            fewest, given = tm.goodput(system, chips, **asked), tm.goodput(system, chips, spare_chips=4096, **asked)
            at_times = tm.goodput(system, chips, interval_s=10 ** rng.uniform(1, 5, (rows, 1)), **asked)
            for name in ("mtbf_s", "useful_share", "running_share", "speed"):
                never_rises(getattr(fewest, name), worse, (*what, name))
            never_rises(given.ready_share, worse, what)
            never_rises(given.goodput, worse, what)
            never_rises(at_times.useful_share, worse, what)


def test_more_failures_and_longer_outages_never_help_replicas():
    for system in racks():
        for swap in SWAPS:
            what = (system.id, len(system.scaleup_lanes), swap, "replicas")
            rng, rows = random_of(what), points(2 * len(racks()), len(RATES + OUTAGES))
            fleet, worse = random_fleets(rng, rows)
            chips, replicas = logarithmic(rng, 1, 1000, rows), logarithmic(rng, 1, 50, rows)
            needed = np.ceil(replicas * rng.uniform(size=(rows, 1)))
            asked = {"swap": swap, "fleet": fleet}
            never_rises(replica_availability(system, chips, replicas, needed, **asked), worse, what)
            never_falls(sum(replica_downtime(system, chips, **asked).values()), worse, what)


@pytest.mark.parametrize("swap", SWAPS)
def test_no_failures_lose_nothing_and_failures_all_the_time_leave_nothing(swap):
    for system in racks():
        asked = {"checkpoint_bytes": 1e12, "swap": swap}
        never, always = (replace(tm.fleet(), id="x", ranges={}, **dict.fromkeys(RATES, x)) for x in (0.0, 1e15))
        chips = np.array([1.0, 100, 1e5])
        assert np.all(tm.goodput(system, chips, fleet=never, **asked).goodput == 1)
        assert np.all(replica_availability(system, [1, 64], swap=swap, fleet=never) == 1)
        assert np.all(tm.goodput(system, chips, fleet=always, **asked).goodput == 0)
        assert np.all(replica_availability(system, [1, 64], swap=swap, fleet=always) < 1e-3)


# Latency


def with_latencies(rng, system, stack, rows):
    """Return a stack whose latencies grow, and what grows."""
    e = tm.efficiencies(system.chip, stack)
    worse = grown(rng, usual_of(e, LATENCIES), rows)
    return replace(e, **worse), worse


def joules_and_dollars_never_fall(step, worse, what):
    """Fail where a step gains at a boundary of power, or in dollars; a chip without watts has neither."""
    if np.isnan(step.system.chip.tdp_w):
        return
    energy = tm.energy(step)
    for boundary in BOUNDARIES:
        never_falls(getattr(energy, f"{boundary}_j_per_token"), worse, (*what, boundary))
    if step.system.id in PRICED:
        never_falls(tm.tco(step.system, energy=energy).usd_per_mtoken(step), worse, (*what, "dollars"))


@pytest.mark.parametrize(("model", "system", "degrees"), SERVED)
def test_longer_latencies_never_help_a_step(model, system, degrees):
    where, mapping = tm.system(system), tm.Mapping(**degrees)
    for stack in STACKS:
        if stack == "hand-tuned" and not where.chip.hand_tuned_stack:
            continue
        what = (model, system, stack)
        rng, rows = random_of(what), points(len(SERVED) * len(STACKS), len(LATENCIES))
        e, worse = with_latencies(rng, where, stack, rows)
        batch, tokens = logarithmic(rng, 1, 512, rows), logarithmic(rng, 1, 1e5, rows)
        decode = tm.decode_step(model, where, mapping, batch=batch, context=tokens, efficiencies=e)
        prompts = {"batch": np.minimum(batch, 8), "input_tokens": tokens, "past": tokens // 3}
        prefill = tm.prefill(model, where, mapping, **prompts, efficiencies=e)
        for phase, step in (("decode", decode), ("prefill", prefill)):
            never_falls(step.time_s, worse, (*what, phase))
            never_rises(step.tokens_per_s, worse, (*what, phase))
            joules_and_dollars_never_fall(step, worse, (*what, phase))


@pytest.mark.parametrize(("model", "system", "degrees"), SERVED[:4] + SERVED[6:7])
def test_longer_latencies_never_help_a_server(model, system, degrees):
    rng, rows, where = random_of((model, system, "server")), 40, tm.system(system)
    e, worse = with_latencies(rng, where, None, rows)
    request = tm.Request(2048, 256, requests_per_s=10 ** rng.uniform(-3, 1, (rows, 1)))
    served = tm.serve(model, request, where, tm.Mapping(**degrees), max_batch=32, efficiencies=e)
    for name in ("ttft_p50_s", "ttft_p99_s", "tpot_mean_s", "request_s"):
        never_falls(getattr(served, name), worse, (model, system, name))


@pytest.mark.parametrize(("model", "system", "degrees"), TRAINED)
def test_longer_latencies_never_help_training(model, system, degrees):
    where = tm.system(system, count=512)
    for stack in (None, "ideal"):
        what = (model, system, stack, "training")
        rng, rows = random_of(what), points(2 * len(TRAINED), len(TRAINING_LATENCIES))
        e = trainer(where.chip, stack)
        worse = grown(rng, usual_of(e, TRAINING_LATENCIES), rows)
        sizes = {"global_batch": 256 * logarithmic(rng, 1, 16, rows), "seq": 2.0 ** rng.integers(7, 10, (rows, 1))}
        sizes["trainable_share"] = rng.choice([0.01, 1.0], (rows, 1))
        step = tm.train_step(model, where, tm.Mapping(**degrees), **sizes, efficiencies=replace(e, **worse))
        never_falls(step.time_s, worse, what)
        never_rises(step.mfu, worse, what)


ODD = [  # experts on Trainium1, logical cores of one, a long context, a chunked one, experts on one rack of GPUs
    ("deepseek-v2-lite", "trn1.32xlarge", {"tp": 8, "ep": 2}, 3e4),
    ("qwen3-30b-a3b", "trn2.48xlarge", {"tp": 16, "ep": 4, "lnc": 1}, 3e4),
    ("qwen3-30b-a3b", "trn3-nl72x2-pcie160", {"tp": 8, "ep": 8, "lnc": 1}, 3e4),
    ("llama-3.1-8b", "trn3-nl72x2-pcie160", {"tp": 8, "cp": 8}, 1e6),
    ("llama-4-scout", "trn3-nl72x2-pcie160", {"tp": 8, "cp": 4}, 1e6),
    ("qwen3-30b-a3b", "gb200-nvl72", {"ep": 8}, 2e5),
]


@pytest.mark.parametrize(("model", "system", "degrees", "longest"), ODD)
def test_neither_do_odd_steps_gain(model, system, degrees, longest):
    where, what = tm.system(system), (model, system, str(degrees))
    rng, rows, mapping = random_of(what), 500, tm.Mapping(**degrees)
    e, worse = with_latencies(rng, where, None, rows)
    worse["expert_spread"] = 0.1 * rng.uniform(size=(rows, 1)) * np.arange(len(LATENCIES) + 2)
    e = replace(e, expert_spread=worse["expert_spread"])
    tokens = logarithmic(rng, 1000, longest, rows)
    decode = tm.decode_step(model, where, mapping, batch=logarithmic(rng, 1, 64, rows), context=tokens, efficiencies=e)
    for step in (decode, tm.prefill(model, where, mapping, input_tokens=tokens, efficiencies=e)):
        never_falls(step.time_s, worse, what)
        joules_and_dollars_never_fall(step, worse, what)


FABRIC = {"hop_s": 2e-6, "collective_launch_s": 1e-5, "switch_s": 2e-7, "scaleout_hop_s": 1e-5}
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")


def test_longer_latencies_of_links_and_switches_never_help_a_collective():
    names = [name for name in RACKS if name.startswith(("trn", "hgx-h", "gb", "mi300"))]
    for name in names:
        rng, rows, where = random_of(name), points(len(names) * len(KINDS), len(FABRIC)), tm.system(name, count=4)
        worse = grown(rng, FABRIC, rows)
        chip = replace(where.chip, **{part: worse[part] for part in ("hop_s", "collective_launch_s")})
        slow = replace(where, chip=chip, **{part: worse[part] for part in ("switch_s", "scaleout_hop_s")})
        sizes = 10 ** rng.uniform(2, 9, (rows, 1))
        for kind in KINDS:
            chips = float(rng.choice([2, 4, where.domain_chips, where.chips]))
            found = tm.collective(kind, sizes, slow, chips=chips)
            never_falls(found.time_s, worse, (name, kind, chips))


# Watts

OF_CHIP = {"tdp_w": 800.0, "idle_share": 0.3}
OF_SERVER = {"host_w_per_chip": 200.0, "server_ratio": 1.1, "all_in_ratio": 1.7}
OF_SITE = {"annual_pue": 1.2, "peak_pue": 1.4}


def test_more_watts_never_take_fewer_joules_nor_dollars():
    """The TDP, the share that an idle chip draws, hosts, supplies and both PUEs of a site."""
    for model, system, degrees in SERVED:
        where = tm.system(system)
        chip, site = where.chip, facilities.site(where)
        power, what = facilities.power(chip), (model, system, "watts")
        rng, rows = random_of(what), points(2 * len(SERVED), len(OF_CHIP | OF_SERVER | OF_SITE))
        of_chip = OF_CHIP if np.isnan(chip.all_in_w) else OF_CHIP | {"all_in_w": 1500.0}
        worse = grown(rng, of_chip | OF_SERVER | OF_SITE, rows, least=1e-3)
        hot = replace(chip, ranges={}, **{name: worse[name] for name in of_chip})
        power = replace(power, ranges={}, **{name: worse[name] for name in OF_SERVER})
        site = replace(site, ranges={}, **{name: worse[name] for name in OF_SITE})
        tokens = logarithmic(rng, 16, 3e4, rows)
        asked = (model, replace(where, chip=hot), tm.Mapping(**degrees))
        batch = logarithmic(rng, 1, 512, rows)
        for step in (tm.decode_step(*asked, batch=batch, context=tokens), tm.prefill(*asked, input_tokens=tokens)):
            energy = tm.energy(step, facility=site, power=power)
            for boundary in BOUNDARIES:
                never_falls(getattr(energy, f"{boundary}_j_per_token"), worse, (*what, boundary))
            never_rises(energy.tokens_per_s_per_site_mw, worse, what)
            never_rises(energy.chips_per_site_mw, worse, what)
            if system in PRICED:
                bill = tm.tco(step.system, energy=energy, facility=site, power=power)
                never_falls(bill.usd_per_h, worse, (*what, "usd_per_h"))
                never_falls(bill.energy_usd_per_h, worse, (*what, "energy_usd_per_h"))


# Prices

PARTS = {name: getattr(prices(), name) for name in vars(prices()) if "usd" in name and not name.endswith("per_chip")}
PARTS = {name: price for name, price in PARTS.items() if isinstance(price, float)} | {"chip_markup": 1.0}
CAPITAL = {"rate_per_year": 0.08, "electricity_usd_per_j": 2e-8, "operations_share": 0.03}
BUILDINGS = {"hyperscaler": {"build_usd_per_w": 11.5}, "neocloud": {"colocation_usd_per_w_h": 2e-4}}
OF_CALL = {"chip_usd": 8000.0, "server_usd": 3e4}


def test_higher_prices_never_cost_less():
    """Prices of parts, of whole servers and of chips, capital, buildings and electricity of both kinds of owner."""
    for system in PRICED:
        for who, building in BUILDINGS.items():
            what = (system, who)
            usual = PARTS | CAPITAL | building | OF_CALL
            rng, rows = random_of(what), points(2 * len(PRICED), len(usual))
            worse = grown(rng, usual, rows, least=1e-9)
            worse["chip_markup"] += 1  # a package costs no less than what is in it
            payer = replace(owner(who), ranges={}, **{name: worse[name] for name in CAPITAL | building})
            dear = replace(prices(), ranges={}, **{name: worse[name] for name in PARTS})
            stated = {} if rng.random() < 0.5 else {"chip_usd": worse["chip_usd"]}
            if system in prices().server_usd_per_chip:
                stated = {"server_usd": worse["server_usd"]}
            cost = tm.tco(system, owner=payer, prices=dear, utilisation=rng.uniform(0.1, 1, (rows, 1)), **stated)
            for name in ("capital_usd", "usd_per_h", "useful_usd_per_h"):
                never_falls(getattr(cost, name), worse, (*what, name))
            never_falls(cost.usd_per_mtoken(10 ** rng.uniform(0, 5, (rows, 1))), worse, what)


# Imbalance


def test_less_even_experts_never_help_a_step():
    """The load of the fullest rank of experts, as given, and the spread of loads of which a stack makes one."""
    for model, system, degrees in EXPERTS:
        where = tm.system(system)
        for stack in STACKS:
            if stack == "hand-tuned" and not where.chip.hand_tuned_stack:
                continue
            e, what = tm.efficiencies(where.chip, stack), (model, system, stack, "imbalance")
            rng, rows = random_of(what), points(2 * len(EXPERTS) * len(STACKS), 0)
            given = grown(rng, {"expert_imbalance": 1.5}, rows, least=1.0)
            spread = grown(rng, {"expert_spread": 0.05}, rows)
            uneven = replace(e, **spread, prefill_experts="routed", expert_read="distinct")
            for worse, asked in ((given, given | {"efficiencies": e}), (spread, {"efficiencies": uneven})):
                sizes = {"batch": logarithmic(rng, 1, 2048, rows), "precision": rng.choice(["bf16", "fp8"])}
                tokens, mapping = logarithmic(rng, 16, 3e4, rows), tm.Mapping(**degrees)
                decode = tm.decode_step(model, where, mapping, context=tokens, **sizes, **asked)
                prefill = tm.prefill(model, where, mapping, input_tokens=tokens, **sizes, **asked)
                for step in (decode, prefill):
                    never_falls(step.time_s, worse, what)
                    never_rises(step.tokens_per_s, worse, what)
                    joules_and_dollars_never_fall(step, worse, what)


def test_less_even_work_never_helps_training():
    """Experts that are chosen more often than others, ranks that are slower, and steps that differ between chips."""
    for model, system, degrees in TRAINED:
        for stack in (None, "ideal"):
            rng, rows, what = random_of((model, system, stack)), 2000, (model, system, stack)
            worse = grown(rng, {"expert_imbalance": 0.5, "straggler": 0.05}, rows)
            worse["expert_imbalance"] += 1
            sizes = {"global_batch": 256 * logarithmic(rng, 1, 16, rows), "seq": 2.0 ** rng.integers(7, 10, (rows, 1))}
            asked = sizes | {"count": 512, "efficiencies": stack}
            step = tm.train_step(model, system, tm.Mapping(**degrees), **asked, **worse)
            never_falls(step.time_s, worse, what)
            never_falls(step.memory_bytes_per_rank, worse, what)
    for system in RACKS:
        rng = random_of(system)
        worse = grown(rng, {"step_spread": 0.02}, 1000)
        job = tm.goodput(system, logarithmic(rng, 1, 1e5, 1000), checkpoint_bytes=4e12, **worse)
        never_rises(job.goodput, worse, system)


# Plans

CHAT = tm.Request(1024, 256, tokens_per_s_per_user=20)
PLANNED = [
    ("llama-3.1-8b", "trn2.48xlarge"),
    ("qwen3-30b-a3b", "trn3-nl72x2-pcie160"),
    ("gpt-oss-120b", "hgx-h100"),
    ("llama-3.1-70b", "trn3-nl32x2-torus"),
]
MOVED = (*LATENCIES, "expert_spread")


def yields(answer):
    """Return the tokens and the requests of a second of a chip at a plan's best point; 0 where no promise holds."""
    best = answer.best
    return (float(best.tokens_per_s_per_chip), 1 / float(best.request_chip_s)) if best.valid else (0.0, 0.0)


@pytest.mark.parametrize(("model", "system"), PLANNED)
def test_worse_software_never_raises_the_yield_of_a_plan(model, system):
    """Of the best point of all mappings and batches, so that another point may take its place."""
    rng, e = random_of((model, system)), tm.efficiencies(tm.system(system).chip)
    usual = usual_of(e, LATENCIES) | {"expert_spread": 0.05}
    for _ in range(8):
        request = replace(CHAT, tokens_per_s_per_user=rng.uniform(5, 60), ttft_s=rng.choice([1.0, 5.0]))
        drawn = {name: middle * 10 ** rng.uniform(-2, 0.3) for name, middle in usual.items()}
        grown_ones = rng.choice(MOVED, 3, replace=False)
        larger = drawn | {name: drawn[name] * 10 ** rng.uniform(0, 1) for name in grown_ones}
        first, worse = (tm.plan(model, request, system, efficiencies=replace(e, **x)) for x in (drawn, larger))
        for one, other in zip(yields(first), yields(worse), strict=True):
            assert other <= one * (1 + ROUNDING), (request, grown_ones, drawn)


@pytest.mark.parametrize(("model", "system"), PLANNED)
def test_a_higher_rent_never_makes_a_plan_cheaper(model, system):
    rng = random_of((model, system, "rent"))
    usd = np.sort(rng.uniform(0.5, 20, 6))
    sized = [tm.plan(model, CHAT, system, users=100, pricing=float(price)) for price in usd]
    assert np.all(np.diff([float(one.capacity.usd_per_month) for one in sized]) >= 0)
    costs = [tm.token_cost(model, CHAT, system, pricing=float(price)).lines for price in usd]
    for software in zip(*costs, strict=True):
        assert np.all(np.diff([float(one.generated_usd_per_mtoken) for one in software]) >= 0)


# Equal racks

PAIRS = [  # a rack, and the one that is given its data
    ("trn3-nl72x2-pcie160", "trn3-nl32x2-pcie160", {"tp": 4, "ep": 8}),
    ("trn2-ultraserver", "trn2.48xlarge", {"tp": 8, "ep": 2}),
    ("hgx-h100", "hgx-h200", {"tp": 2, "ep": 4}),
    ("gb200-nvl72", "gb300-nvl72", {"tp": 1, "ep": 8}),
    ("trn1.32xlarge", "inf2.48xlarge", {"tp": 8}),
]


BY_RACK = ("server_usd_per_chip", "server_year", "scaleout_bytes_per_s_per_dir")  # what prices list by rack


def figures_of(result):
    """Return the numbers of a result with their low and high ends, and what they rest on."""
    found = {}
    for name in result.figures():
        low, high = result.ends(name) if name not in result.UNBANDED else (np.nan, np.nan)
        found[name] = (result.figure(name), low, high)
    return found | {"reason": str(result.reason), "basis": str(result.basis)}


def priced_as(of, name):
    """Return prices that list a rack under another name too: a price is of the product that its seller names."""
    known = prices()
    own = {f"{field}[{of}]": f"{field}[{name}]" for field in BY_RACK}
    listed = {field: dict(getattr(known, field)) for field in BY_RACK}
    changes = {field: rows | ({name: rows[of]} if of in rows else {}) for field, rows in listed.items()}
    ranges = {new: known.ranges[old] for old, new in own.items() if old in known.ranges}
    return replace(known, ranges=known.ranges | ranges, **changes)


def all_answers(system, degrees, of):
    """Return what each call answers of a rack, with the prices and the rent that `of` has."""
    model, mapping = "qwen3-30b-a3b" if "ep" in degrees else "llama-3.1-8b", tm.Mapping(**degrees)
    asked = {"batch": np.array([1.0, 32]), "context": 2048}
    decode = tm.decode_step(model, system, mapping, **asked)
    rent = replace(tm.rent(of, "capacity-block"), ranges={})
    results = {
        "decode": decode,
        "prefill": tm.prefill(model, system, mapping, input_tokens=[100, 4096]),
        "memory": tm.memory_fit(model, system, mapping, **asked),
        "serving": tm.serve(model, tm.Request(1024, 256, requests_per_s=0.5), system, mapping, max_batch=16),
        "all-to-all": tm.collective("all_to_all", 1e6, system, chips=[2, 8], efficiencies="ideal"),
        "all-reduce": tm.collective("all_reduce", 10.0 ** np.arange(9), system, chips=8, efficiencies="ideal"),
        "goodput": tm.goodput(system, [16, 10_000], checkpoint_bytes=4e12),
        "drained": tm.goodput(system, 10_000, checkpoint_bytes=4e12, swap="drain"),
        "energy": tm.energy(decode),
        "cost": tm.tco(system, prices=priced_as(of, system.id)),
        "training": tm.train_step("llama-3.1-8b", system, tm.Mapping(tp=8, dp=4), count=8, global_batch=64, seq=2048),
        "plan": tm.plan(model, CHAT, system).best,
    }
    if not rent.why:
        results |= {one.stack_kind: one for one in tm.token_cost(model, CHAT, system, pricing=rent).lines}
    return {name: figures_of(result) for name, result in results.items()}


@pytest.mark.parametrize(("one", "other", "degrees"), PAIRS)
def test_the_name_of_a_rack_decides_nothing(one, other, degrees):
    """All answers are the same to the last digit, of a rack of another name and of one that is given the other's data.

    A published price is of the product that its seller names, so that the racks compared have the rows of the first. A
    rent of a range is drawn for each rack by itself, and their names tell the draws apart: here it has none.
    """
    rack = tm.system(one)
    stranger = replace(rack, id="x", name="another rack")
    data = {field.name: getattr(rack, field.name) for field in fields(rack) if field.name != "id"}
    given = replace(tm.system(other), **data)
    wanted = all_answers(rack, degrees, one)
    for twin in (stranger, given):
        found = all_answers(twin, degrees, one)
        assert found.keys() == wanted.keys()
        for name, figures in wanted.items():
            for figure, values in figures.items():
                np.testing.assert_equal(found[name][figure], values, err_msg=f"{twin.id}: {name}, {figure}")
