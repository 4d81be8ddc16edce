"""The printed form of every public result, compared with `tests/golden/printed.txt`.

`python tests/library/test_printed.py` writes that file anew; read what has changed as a stranger would.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import trnmodel as tm

GOLDEN = Path(__file__).parents[1] / "golden" / "printed.txt"
SMALL, LARGE, TRN2, TRN3 = "llama-3.1-8b", "llama-3.1-70b", "trn2.48xlarge", "trn3-nl72x2-pcie160"
REQUEST = {"input_tokens": 1000, "output_tokens": 200}


def step(tp: Any = 8, **changes: Any) -> Any:
    """Return a small decode step."""
    return tm.decode_step(SMALL, TRN2, tm.Mapping(tp=tp), **{"batch": 4, "context": 2048} | changes)


def cost() -> Any:
    """Return the cost of a token on one system."""
    return tm.token_cost(LARGE, tm.Request(**REQUEST, tokens_per_s_per_user=20), TRN2)


def plan() -> Any:
    """Return a plan on two systems."""
    return tm.plan(LARGE, tm.Request(**REQUEST, tokens_per_s_per_user=30), [TRN2, TRN3])


def compared() -> Any:
    """Return two systems side by side at two speeds."""
    return tm.compare(LARGE, tm.Request(1000, 200), [TRN2, TRN3], speeds=[20, 50])


def paired() -> Any:
    """Return a plan whose prompts may run on a separate pool."""
    return tm.plan(LARGE, tm.Request(1000, 200, 30), TRN3, prefill_systems=TRN2)


def served(rate: Any) -> Any:
    """Return a server under a rate of requests."""
    return tm.serve(SMALL, tm.Request(**REQUEST, requests_per_s=rate), TRN2, tm.Mapping(tp=8), max_batch=8)


def split() -> Any:
    """Return prefill and decode on two systems."""
    from trnmodel.serving.server import disaggregate

    return disaggregate(SMALL, TRN2, tm.Mapping(tp=8), TRN2, tm.Mapping(tp=4), batch=8, **REQUEST)


def trained(**changes: Any) -> Any:
    """Return a step of training."""
    ask = {"global_batch": 64, "seq": 4096} | changes
    return tm.train_step(SMALL, TRN2, tm.Mapping(tp=8, dp=8), **ask)


def deployed() -> Any:
    """Return a model on a system."""
    return tm.Deployment(model=SMALL, system=TRN2, mapping=tm.Mapping(tp=8))


def moved() -> Any:
    """Return what the useful share of two fabrics depends on."""

    def shares(fleet: Any) -> dict[str, Any]:
        names = "nl32x2", "nl72x2"
        return {name: tm.goodput(f"trn3-{name}-pcie160", 16_384, model=LARGE, fleet=fleet) for name in names}

    return tm.sensitivity(shares, {"fleet": tm.fleet()}, draws=500)


CALLS: dict[str, Callable[[], Any]] = {
    "step": step,
    "step, several points": lambda: step([4, 8]),
    "step that does not fit": lambda: tm.decode_step("llama-3.1-405b", "trn2.3xlarge", batch=1, context=8),
    "prefill": lambda: tm.prefill(SMALL, TRN2, tm.Mapping(tp=8), batch=1, input_tokens=2048),
    "memory fit": lambda: tm.memory_fit(SMALL, TRN2, tm.Mapping(tp=8), batch=4, context=2048),
    "memory fit, several points": lambda: tm.memory_fit(SMALL, TRN2, tm.Mapping(tp=8), batch=[4, 64], context=2048),
    "legality": lambda: tm.legal(SMALL, TRN2, tm.Mapping(tp=8)),
    "legality, several points": lambda: tm.legal(SMALL, TRN2, tm.Mapping(tp=[8, 64])),
    "support": lambda: tm.support(LARGE, TRN2),
    "support that is missing": lambda: tm.support("deepseek-v3", TRN2),
    "quality": lambda: tm.quality(SMALL, "mxfp4"),
    "quality that nobody has published": lambda: tm.quality(SMALL, "w4a8"),
    "serving": lambda: served(1.0),
    "serving, several points": lambda: served([0.5, 1.0]),
    "disaggregated": split,
    "plan": plan,
    "choice of a plan": lambda: plan().best,
    "comparison": compared,
    "plan with prefill apart": paired,
    "cost of a token": cost,
    "line of the cost of a token": lambda: cost().lines[0],
    "energy": lambda: tm.energy(step()),
    "energy of a request": lambda: tm.energy(deployed(), batch=4, request=tm.Request(**REQUEST)),
    "request": lambda: tm.Request(4096, 512, 50, 2.0, prefix_share=0.5, requests_per_s=10),
    "energy, several points": lambda: tm.energy(step(batch=[1, 4])),
    "cost": lambda: tm.tco(TRN3),
    "goodput": lambda: tm.goodput(TRN3, 16_384, model="llama-3.1-405b"),
    "goodput, several points": lambda: tm.goodput(TRN3, [1_024, 16_384], model="llama-3.1-405b"),
    "training step": trained,
    "training step, several points": lambda: trained(global_batch=[64, 128]),
    "training run": lambda: tm.train_run(SMALL, TRN2, tokens=1e12, chips=64),
    "training runs": lambda: tm.train_run(SMALL, [TRN2, TRN3, "gb200-nvl72"], tokens=1e12, chips=144),
    "collective": lambda: tm.collective("all_reduce", 2.0**20, TRN2, chips=16, in_graph=True, rate_share=1.0),
    "collective, several points": lambda: tm.collective(
        "all_reduce", [2.0**20, 2.0**30], TRN2, chips=16, in_graph=True, rate_share=1.0
    ),
    "kernel": lambda: tm.kernel.matmul("trainium2", 1024, 1024, 1024),
    "kernel, several points": lambda: tm.kernel.matmul("trainium2", [128, 1024], 1024, 1024),
    "kernel of attention": lambda: tm.kernel.attention("trainium2", 2048, 2048, 8),
    "kernel on elements": lambda: tm.kernel.elementwise("trainium2", "softmax", 1024, 1024),
    "kernel that moves data": lambda: tm.kernel.dma("trainium2", 2.0**20, 4096),
    "kernel that moves data, several points": lambda: tm.kernel.dma("trainium2", [2.0**10, 2.0**20], 512),
    "sensitivity": moved,
    "clos": lambda: tm.clos(switch_bits_per_s=12.8e12, port_bits_per_s=100e9, layers=3),
    "clos, several points": lambda: tm.clos(switch_bits_per_s=[12.8e12, 25.6e12], port_bits_per_s=100e9, layers=2),
    "topology": lambda: tm.topology(TRN3),
    "deployment": deployed,
    "mapping": lambda: tm.Mapping(tp=8, dp=2),
    "mapping, several points": lambda: tm.Mapping(
        tp=[8, 16], moe_ep=8, lnc=1, placement=("ep", "tp", "cp", "pp", "dp")
    ),
    "precision": lambda: tm.Precision(weights="mxfp4", compute="mxfp8"),
    "chip": lambda: tm.chip("trainium3"),
    "chip of another maker": lambda: tm.chip("h100"),
    "system": lambda: tm.system(TRN2),
    "system of two racks": lambda: tm.system(TRN3),
    "owner": lambda: tm.owner("hyperscaler"),
    "owner who rents the building": lambda: tm.owner("neocloud"),
    "rent": lambda: tm.rent(TRN2),
    "rent that nobody publishes": lambda: tm.rent(TRN3),
    "model": lambda: tm.model(SMALL),
}


def printed() -> str:
    """Return the printed form of every call."""
    return "\n\n".join(f"# {name}\n{call()!r}" for name, call in CALLS.items()) + "\n"


SECTIONS = dict(re.findall(r"^# (.+)\n([\s\S]+?)(?=\n\n# |\n\Z)", GOLDEN.read_text(encoding="utf-8"), re.MULTILINE))
PROSE = (
    "support",
    "support that is missing",
    "quality",
    "quality that nobody has published",
    "plan",
    "plan with prefill apart",
    "comparison",
    "cost of a token",
    "training runs",
)  # whose cards are sentences
TYPED = "sensitivity", "deployment", "mapping", "precision", "model"  # which name what a caller types
FORBIDDEN = r"\bUSD\b|mtoken|[a-z]_(s|bytes|usd|flop)\b|(?<!for) a (chip|user|token|rank|h)\b|\bnan\b|\de[+-]\d"


def test_every_result_is_printed_in_the_golden():
    assert list(SECTIONS) == list(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_a_result_prints_as_it_did(name):
    assert repr(CALLS[name]()) == SECTIONS[name]


@pytest.mark.parametrize("name", [name for name in CALLS if name not in PROSE + TYPED])
def test_a_printed_result_names_no_field_and_no_private_unit(name):
    assert not re.search(FORBIDDEN, SECTIONS[name])


if __name__ == "__main__":
    GOLDEN.write_text(printed(), encoding="utf-8")
