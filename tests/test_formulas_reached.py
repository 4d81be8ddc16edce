"""Every formula makes some answer: a public call enters it, and it is not there for a test alone."""

import importlib
import inspect
import pkgutil
import sys
from dataclasses import replace

import pandas as pd
import pytest

import trnmodel as tm
import trnmodel.formulas
from trnbook.chapters import cost_value as worth
from trnbook.chapters import memory as hbm
from trnbook.chapters import power_claims as claimed
from trnbook.chapters import scale_out
from trnbook.shared import placements
from trnbook.shared import rack_power as rack_power
from trnmodel.catalog.options import documented
from trnmodel.catalog.stacks import IDEAL
from trnmodel.fabric import expert_exchange, scaleout
from trnmodel.reliability import goodput
from trnmodel.serving.drafts import acceptance
from trnmodel.serving.server import disaggregate

OTHERS = {"collectives", "tiers", "exchanges", "bounds", "bands"}  # run by `tm.collective(algorithm=)`; asked for ends
EXPERTS, DENSE, CHUNKED = "qwen3-30b-a3b", "llama-3.1-8b", "llama-4-scout"


def steps():
    degrees = tm.Mapping(tp=4, ep=4)
    for model, stack in ((EXPERTS, None), (CHUNKED, "ideal"), ("gpt-oss-20b", "ideal")):
        ask = {"mapping": degrees, "efficiencies": stack}
        tm.decode_step(model, "trn2.48xlarge", batch=16, context=9000, **ask)
        tm.prefill(model, "trn2.48xlarge", batch=4, input_tokens=2000, **ask)
        tm.memory_fit(model, "trn2.48xlarge", batch=4, context=2000, **ask)
    tm.memory_fit(DENSE, "trn2.48xlarge", tm.Mapping(tp=4, lnc=1), batch=4, context=2000)
    tm.decode_step(EXPERTS, "trn2.48xlarge", degrees, batch=16, context=2000, efficiencies="hand-tuned")
    half = replace(IDEAL, id="half", phase_overlap=0.5, kv_head_policy="replicate")
    tm.decode_step(DENSE, "trn2.48xlarge", tm.Mapping(tp=4), batch=2, context=100, efficiencies=half)
    blocks = replace(IDEAL, id="blocks", prefill_experts="blocks", expert_block_tokens=512, expert_tile_columns=128)
    spills = replace(blocks, prefill_spill_bytes_per_s=1e10, scratchpad_page_bytes=2**20)
    tm.prefill(EXPERTS, "trn2.48xlarge", tm.Mapping(ep=4), batch=4, input_tokens=2000, efficiencies=spills)


def requests():
    for batching in ("continuous", "static"):
        request = tm.Request(512, 64, requests_per_s=1.0)
        tm.serve(DENSE, request, "trn2.48xlarge", tm.Mapping(tp=4), max_batch=8, batching=batching)
    two = "trn2.48xlarge", tm.Mapping(tp=4)
    disaggregate(DENSE, *two, *two, batch=4, input_tokens=512, output_tokens=64)
    tm.plan("llama-3.2-1b", tm.Request(512, 64, tokens_per_s_per_user=20.0), "trn2.3xlarge")
    acceptance(documented()[1])
    tm.plan("llama-3.1-8b", tm.Request(512, 64, 20), "trn2.48xlarge", users=100, availability=0.99).to_data()


def exchanges():
    expert_exchange.dispatch_s(64, 2048, 128, 8, 4)
    expert_exchange.combine_s(64, 2048, 128, 8, 4)


def kernels():
    tm.kernel.matmul("trainium2", 256, 512, 4096, transpose="tensor")
    tm.kernel.attention("trainium2", 256, 512)
    tm.kernel.experts("trainium2", 256, 512, 1024, 2)
    tm.kernel.elementwise("trainium3", "softmax", 128, 512)
    tm.kernel.dma("trainium2", 2**20, 4096)
    tm.kernel.host(1e9, [1e9, 2e9])
    tm.kernel.smallest_contraction("trainium2")
    hbm.pins(["trainium3"])


def rooflines():
    tm.roofline.attainable_flop_per_s(10.0, 1e12, 1e9)
    tm.roofline.ridge_point_flop_per_byte(1e12, 1e9)
    tm.roofline.time_s(1e12, 1e9, 1e12, 1e9, 1.0)
    tm.roofline.ceilings_flop_per_s([10.0, 1.0], 1e12, [1e9, 1e9])


def networks():
    tm.clos(switch_bits_per_s=51.2e12, port_bits_per_s=400e9, tor_bits_per_s=12.8e12, layers=2)
    scaleout.distances("trn2.48xlarge")
    row = {"model": DENSE, "system": "trn2.48xlarge", "cache_bytes": 1e9, "send_s": 0.1, "prefill_s": 1.0}
    scale_out.late(pd.DataFrame([row]))
    placements.exchanges(EXPERTS, ["trn3-nl72x2-pcie160"], [1])


def joules():
    found = tm.energy(tm.decode_step(DENSE, "hgx-h100", tm.Mapping(tp=2), batch=8, context=2048))
    found.footprint(), found.tokens_per_s_per_site_mw, found.chips_per_site_mw, found.chip_j_per_flop
    claimed.claim_sets()
    rack_power.rack_power("trn3-nl72x2-pcie160")


def trained():
    found = tm.train_step("gpt3-6.7b", "hgx-a100", tm.Mapping(tp=2, pp=2), global_batch=8, seq=2048, zero=1)
    found.megatron_flop, found.run_s(1e9)


def lost_time():
    job = tm.goodput("trn3-nl72x2-pcie160", 1024, model=DENSE)
    assert job.ettr_small_loss < 1
    assert job.young_s > job.daly_s > 0
    goodput.replica_availability("trn3-nl72x2-pcie160", 8, 3, 2)


def corrected():
    row = {"instance": "trn2.48xlarge", "workload": DENSE, "tp": 4, "batch": 4, "seq_len": 2048, "metric": "TPOT"}
    tm.calibrate(pd.DataFrame([row | {"value": 9, "unit": "ms"}]))


def money():
    cost = tm.tco("trn3-nl32x2-pcie160", owner="neocloud")
    cost.usd_per_mtoken(100.0), cost.flop_per_s_per_usd_per_h("bf16"), worth.saving_usd(cost, 0.1)
    tm.tco("hgx-h100"), worth.rebate("astera-2026", 200.0), worth.delay_usd(cost, 1.0)
    assert cost.replacement_usd_per_h > 0


@pytest.fixture(scope="module")
def entered():
    """Code that the public calls enter."""
    found = set()

    def note(frame, event, _):
        if event == "call":
            found.add(frame.f_code)

    for call in (
        steps,
        requests,
        kernels,
        rooflines,
        networks,
        joules,
        trained,
        lost_time,
        corrected,
        money,
        exchanges,
    ):
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
    return found


def formulas():
    for page in pkgutil.iter_modules(trnmodel.formulas.__path__):
        module = importlib.import_module(f"trnmodel.formulas.{page.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if not name.startswith("_") and function.__module__ == module.__name__ and page.name not in OTHERS:
                yield pytest.param(function, id=f"{page.name}.{name}")


@pytest.mark.parametrize("function", [*formulas()])
def test_a_public_call_enters_it(function, entered):
    assert function.__code__ in entered
