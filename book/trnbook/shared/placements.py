"""Placements of experts on a pair of switched racks: bytes across each tier, and the decode step of each placement.

Experts fill the inner tiers, so a rack is full of them; a placement says which degree spans the two racks instead.
`traffic` counts the bytes that a token sends, `exchanges` times dispatch and combine alone, and `steps` times the whole
decode step. A rank is a whole chip (`lnc` of all its cores), so traffic inside a chip costs nothing. The column
`announced` is True where such a logical core is announced but no software supports it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import TINY, choice, chosen, listed, numbers, refuse
from trnmodel.catalog import load, systems
from trnmodel.catalog.stacks import IDEAL, Efficiencies
from trnmodel.catalog.systems import System
from trnmodel.fabric.collectives import collective
from trnmodel.formulas import moe
from trnmodel.models.terms import Outline
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.steps import mapping as parallelism
from trnmodel.steps.answers import RESOURCES
from trnmodel.steps.inference import decode_step
from trnmodel.steps.rank import site

if TYPE_CHECKING:
    import pandas as pd

# by name: the degree that spans the two racks; "" where the experts are spread over both
PLACEMENTS: Mapping[str, str] = {
    "EP + TP": "tp",
    "EP + CP": "cp",
    "EP of the pair": "",
    "EP + copy": "dp",
}
INNER_EXPERTS = ("ep", "tp", "cp", "pp", "dp")
COPIES = ("expert", "chip", "rack")  # for each of which a token is sent once
STACKS = ("ideal", "exposed", "default")  # of `named_stack`


def racks_of(spec: System) -> tuple[int, int]:
    """Return the number of racks of a domain, and of chips per rack; without racks, one rack."""
    racks = max(int(np.nan_to_num(spec.racks, nan=1.0)), 1)
    return racks, spec.domain_chips // racks


def placement(name: str, system: str | System) -> parallelism.Mapping:
    """Return the degrees of a placement on two racks, a chip being a rank; experts fill the inner tiers.

    Examples
    --------
    >>> mapping = placement("EP + TP", "trn3-nl72x2-pcie160")
    >>> float(mapping.ep), float(mapping.tp), float(mapping.extent("tp")[0])
    (72.0, 2.0, 72.0)
    """
    across = chosen("name", name, PLACEMENTS)
    spec = systems.system(system)
    racks, inside = racks_of(spec)
    degrees = {"ep": inside, across: racks} if across else {"ep": inside * racks}
    return parallelism.Mapping(**degrees, lnc=int(spec.chip.cores), placement=INNER_EXPERTS)


def routed(model: str | Transformer) -> Outline:
    """Return layers, widths and experts of a model with routed experts; raise ValueError for another."""
    outline = read_model(model).outline()
    if not outline.experts:
        raise ValueError(f"model={read_model(model).id!r}: it has no routed experts")
    return outline


def _copies(c: Outline, copies: str, group: int, racks: int) -> dict[str, float]:
    """Return how many copies of a token stay in its rack and how many leave it, with experts over `group` chips."""
    chips, racks_reached = (float(moe.distinct_destinations(c.experts, c.top_k, n)) for n in (group, racks))
    sent = c.top_k if copies == "expert" else chips
    if copies == "rack":
        return {"rack": sent * (1 - racks / group), "pair": racks_reached * (1 - 1 / racks)}
    return {"rack": sent * (1 / racks - 1 / group), "pair": sent * (1 - 1 / racks)}


def _widths(dtypes: tuple[str, str]) -> list[float]:
    """Return bytes per element of dispatch and of combine."""
    if len(listed("dtypes", dtypes, str)) != 2:
        refuse("dtypes", dtypes, "allowed are two, of dispatch and of combine")
    return [chosen("dtypes", dtype, load.dtypes()) for dtype in dtypes]


def traffic(
    model: str | Transformer, system: str | System, copies: str = "expert", dtypes: tuple[str, str] = ("bf16", "bf16")
) -> pd.DataFrame:
    """Return bytes that a token sends per expert layer, by placement, purpose and tier.

    Parameters
    ----------
    copies : str
        "expert": one for each expert of a token, as the steps charge; "chip": one for each chip that holds any; "rack":
        one for each rack, whose chips pass it on and gather the answers. [-]
    dtypes : tuple of str
        Widths of dispatch and of combine. [-]

    Returns
    -------
    table : pandas.DataFrame
        placement, what, tier ("rack": to chips of its own rack, "pair": to the other), bytes_per_token (all ranks that
        serve the token).

    Examples
    --------
    >>> table = traffic("deepseek-v3", "trn3-nl32x2-pcie160").set_index(["placement", "what", "tier"])
    >>> float(table.bytes_per_token["EP of the pair", "dispatch", "pair"])
    57344.0
    """
    import pandas as pd

    choice("copies", copies, COPIES)
    c, racks = routed(model), racks_of(systems.system(system))[0]
    bf16_bytes = load.dtypes()["bf16"]
    widths = dict(zip(("dispatch", "combine"), _widths(dtypes), strict=True))
    attention_width = max(
        (a.heads * (a.latent_value_dim or a.v_dim) for a in read_model(model).attentions()), default=0
    )
    rows = []
    for name, across in PLACEMENTS.items():
        m = placement(name, system)
        sent, served = _copies(c, copies, int(m.ep), 1 if across else racks), int(m.cp)
        for what, width in widths.items():
            rows += [(name, what, tier, served * count * c.hidden * width) for tier, count in sent.items()]
        around = 2 * (racks - 1) * bf16_bytes  # of an all-reduce over the racks, per element
        rows.append((name, "sums of TP", "pair", 2 * around * c.hidden if across == "tp" else 0.0))
        rows.append((name, "partial attention", "pair", around * attention_width if across == "cp" else 0.0))
    return pd.DataFrame(rows, columns=["placement", "what", "tier", "bytes_per_token"])


def exchanges(
    model: str | Transformer,
    names: Iterable[str | System],
    tokens_per_chip: Iterable[float],
    dtypes: tuple[str, str] = ("fp8", "bf16"),
) -> pd.DataFrame:
    """Return dispatch and combine of one decode step with experts over a rack, twins, or the domain.

    A token goes once to each chip that holds any of its experts.

    Returns
    -------
    table : pandas.DataFrame
        system, experts_over ("rack", "twins": a chip and its like in the other rack, "world"), chips, tokens_per_chip,
        expert_layers, dispatch_bytes (of a chip in a layer), layer_s, step_s (all layers), latency_share (of layer_s,
        what empty messages take by the same algorithms), announced.

    Raises
    ------
    ValueError
        The model has no routed experts.

    Examples
    --------
    >>> table = exchanges("deepseek-v3", ["trn3-nl32x2-pcie160"], [16])
    >>> int(table.expert_layers.iloc[0]), table.chips.tolist()
    (58, [32, 2, 64])
    """
    c, tokens, rows = routed(model), np.atleast_1d(numbers("tokens_per_chip", tokens_per_chip)), []
    widths = _widths(dtypes)
    for spec in (one for one in map(systems.system, listed("names", names)) if one.domain_chips > 1):
        racks, inside = racks_of(spec)
        groups = {"rack": (inside, 1), "twins": (racks, inside), "world": (inside * racks, 1)}
        for scope, (chips, stride) in groups.items():
            if chips > 1:
                rows.append(_exchange(c, spec, scope, chips, stride, tokens, widths))
    if not rows:
        refuse("names", names, "none of them has more than one chip")
    return tidy(rows)


def _exchange(
    c: Outline, spec: System, scope: str, chips: int, stride: int, tokens: NDArray, widths: list[float]
) -> dict[str, Any]:
    """Return the columns of `exchanges` for experts over a group of chips that stand `stride` chips apart."""
    at = site(spec, max(spec.chip.lnc_choices + spec.chip.lnc_announced))
    on_chip = at.ranks_per_chip
    twins = stride > 1
    ranks, step = (chips, stride * on_chip) if twins else (chips * on_chip, 1)
    copies = moe.distinct_destinations(c.experts, c.top_k, chips)
    full = np.array(widths)[:, None] * tokens * copies * c.hidden
    group: dict[str, Any] = {
        "system": spec,
        "ranks": ranks,
        "stride": step,
        "lnc": at.lnc,
        "in_graph": True,
        "rate_share": 1.0,
    }
    both = collective("all_to_all", full / on_chip, **group)  # dispatch and combine
    layer_s, empty_s = both.time_s.sum(axis=0), np.zeros_like(tokens)
    for name in set(np.ravel(both.algorithm)):
        alone = collective("all_to_all", 0.0, algorithm=name, **group).time_s
        empty_s = empty_s + alone * np.count_nonzero(both.algorithm == name, axis=0)
    return {
        "system": spec.id,
        "experts_over": scope,
        "chips": chips,
        "tokens_per_chip": tokens,
        "expert_layers": c.expert_layers,
        "dispatch_bytes": full[0] * (1 - 1 / chips),
        "layer_s": layer_s,
        "step_s": c.expert_layers * layer_s,
        "latency_share": empty_s / layer_s,
        "announced": at.announced,
    }


def named_stack(name: str) -> str | Efficiencies | None:
    """Return software by name, as `efficiencies=` takes it: "ideal" hides all traffic, "exposed" none.

    "default" is None, the chip's own stack. Exposed is the ideal stack with AWS's latency per hop, and with all-reduces
    by the fastest algorithm of AWS's library.
    """
    if choice("stack", name, STACKS) == "exposed":
        return _exposed()
    return "ideal" if name == "ideal" else None


@cache
def _exposed() -> Efficiencies:
    """Return the exposed stack, one object for all calls, so that the caches of the fabric recognise it."""
    hop_s = load.value("neuron-stack", "hop_s")
    return replace(IDEAL, id="exposed", hop_s=hop_s, network_overlap=0.0, in_graph="mesh doubling ring")


def steps(
    model: str | Transformer,
    names: Iterable[str | System],
    sequences_per_chip: Iterable[float],
    *,
    context: float,
    precision: str = "mxfp8",
    stack: str = "exposed",
) -> pd.DataFrame:
    """Return one decode step per placement with the same sequences per chip of the domain.

    Returns
    -------
    table : pandas.DataFrame
        system, placement, sequences_per_chip, announced, time_s with its parts, tokens_per_s_per_user,
        tokens_per_s_per_chip; NaN where it does not fit.

    Examples
    --------
    >>> table = steps("deepseek-v3", ["trn3-nl32x2-pcie160"], [32], context=8192)
    >>> table.set_index("placement").network_s.idxmax()
    'EP + CP'
    """
    sequences, e = np.atleast_1d(numbers("sequences_per_chip", sequences_per_chip, TINY)), named_stack(stack)
    times, rows = ("time_s", *(f"{name}_s" for name in RESOURCES), "tokens_per_s_per_user"), []
    for spec, name in product(map(systems.system, listed("names", names)), PLACEMENTS):
        mapping = placement(name, spec)
        batch = sequences * spec.chips / float(mapping.dp)
        step = decode_step(model, spec, mapping, batch=batch, context=context, precision=precision, efficiencies=e)
        fixed: dict[str, Any] = {"system": spec.id, "placement": name, "sequences_per_chip": sequences}
        fixed["announced"] = site(spec, mapping.lnc).announced
        fixed |= {key: getattr(step, key) for key in times}
        rows.append(fixed | {"tokens_per_s_per_chip": step.tokens_per_s / spec.chips})
    return tidy(rows)
