"""The share of ideal at which two chips tie, which of two domains wins by software, and other lane counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trnbook.shared.software_kinds import REQUEST, choices, names
from trnmodel.arguments import TINY, listed, numbers
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.draws import DRAWS, range_of
from trnmodel.fabric import what_if
from trnmodel.models.synthetic import synthetic
from trnmodel.models.transformer import Transformer
from trnmodel.result import tidy
from trnmodel.search.choice import Choice
from trnmodel.search.frontier import formats
from trnmodel.steps.request import Request

if TYPE_CHECKING:
    import pandas as pd

SHARES = ["share_of_ideal", "share_of_ideal_low", "share_of_ideal_high"]
LEAST = 1e-3  # tokens/s per chip that replace 0 in a ratio
LANES = {"trn3-nl32x2-pcie160": "aws-lanes-32", "trn3-nl72x2-pcie160": "trn3-nl72x2-aws-lanes"}


def yields(
    model: Any, request: Request, system: str | System, kind: str, tokens_per_s_per_user: ArrayLike, precision: str
) -> NDArray:
    """Return the tokens/s per paid chip of whole requests at each promised speed, 0 if unreached; then low and high.

    Examples
    --------
    >>> yields("llama-3.1-8b", Request(4096, 512), "hgx-h200", "ideal", [1e9], "fp8").tolist()
    [[0.0], [0.0], [0.0]]
    """
    some = choices(model, request, system, kind, tokens_per_s_per_user, precision)
    return np.array([[*c.banded(c.FIGURE).values()] if c else [0.0] * 3 for c in some], dtype=float).T


def ties(
    model: str | Transformer,
    system: str,
    rivals: Iterable[str],
    tokens_per_s_per_user: Iterable[float],
    request: Request = REQUEST,
    precisions: Sequence[str] = ("mxfp8", "fp8", "bf16"),
) -> pd.DataFrame:
    r"""Return the share of its ideal yield that a system must reach to tie with each rival.

    .. math:: x(v) = y_{rival}(v) / y_{ideal}(v)

    Returns
    -------
    table : pandas.DataFrame
        promised_tokens_per_s_per_user (v), system, software, tokens_per_s_per_chip (y, of whole requests),
        share_of_ideal (x; NaN where the rival is not as fast, infinite where only it is) with `_low` and `_high` for
        hand-tuned software; the system's own lines say what it reaches. [-]

    Examples
    --------
    >>> table = ties("llama-3.1-8b", "trn3-nl32x2-pcie160", ["hgx-h200"], [50.0])
    >>> table.software.tolist(), bool(table.share_of_ideal.iloc[0] == 1)
    (['ideal', 'hand-tuned', 'public', 'ideal', 'hand-tuned', 'public'], True)
    """
    speeds, rows = np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY)), list[dict[str, Any]]()
    chosen = formats([system, *listed("rivals", rivals)], precisions)
    whole = yields(model, request, system, "ideal", speeds, chosen[system])[0]
    for name, precision in chosen.items():
        for kind in stacks_of(read_system(name).chip):
            made = yields(model, request, name, kind, speeds, precision)
            with np.errstate(divide="ignore", invalid="ignore"):
                share, *ends = (np.where(x > 0, x / whole, np.nan) for x in made)
            line = {"promised_tokens_per_s_per_user": speeds, "system": name, "software": kind}
            line |= {"precision": precision, "tokens_per_s_per_chip": made[0], "share_of_ideal": share}
            known = [np.nan_to_num(end) if kind == "hand-tuned" else np.full(speeds.shape, np.nan) for end in ends]
            rows.append(line | dict(zip(SHARES[1:], known, strict=True)))
    return tidy(rows)


def tie_table(tables: Mapping[str, pd.DataFrame], system: str, speeds: Sequence[float]) -> pd.DataFrame:
    """Format `ties` by model: the share that the system itself reaches, and the share at a tie.

    Examples
    --------
    >>> found = {"llama-3.1-8b": ties("llama-3.1-8b", "trn3-nl32x2-pcie160", ["gb200-nvl72"], [50.0])}
    >>> tie_table(found, "trn3-nl32x2-pcie160", [50.0]).software.tolist()
    ['hand-tuned', 'ideal', 'hand-tuned', 'public']
    """
    import pandas as pd

    rows = []
    for model, table in tables.items():
        called = names(dict.fromkeys(table.system)) | {system: "its own"}
        for (name, kind), lines in table.groupby(["system", "software"], sort=False):
            if name == system and kind != "hand-tuned":
                continue
            at = lines.set_index("promised_tokens_per_s_per_user").loc[list(speeds)]
            beyond = lines.promised_tokens_per_s_per_user[lines.share_of_ideal > 1]
            row = {"model": model, "whose": called[name], "software": kind}
            row |= {f"at {v:g} tokens/s": _share(*at.loc[v, SHARES]) for v in speeds}
            row["no software ties"] = f"{beyond.min():g} to {beyond.max():g} tokens/s" if len(beyond) else ""
            rows.append(row)
    return pd.DataFrame(rows)


def _share(share: float, low: float, high: float) -> str:
    """Format a share with its band; NaN means not fast enough."""
    if np.isnan(share):
        return "not as fast"
    return f"{share:.2f}" + (f" ({low:.2f} to {high:.2f})" if high > low else "")


def spans(table: pd.DataFrame, system: str, speed: float) -> tuple[float, float]:
    """Return the least and the most of the system's ideal that makes it tie with a rival at a speed, of all rivals.

    No rival that is as fast gives NaN. What a hand-tuned scenario reaches ranks nobody: it is a dial.
    """
    at = table[(table.promised_tokens_per_s_per_user == speed) & (table.system != system)]
    known = at.share_of_ideal[np.isfinite(at.share_of_ideal)]
    return float(known.min()), float(known.max())


def domains(
    total_params: Iterable[float],
    tokens_per_s_per_user: Iterable[float],
    pair: tuple[str | System, str | System],
    *,
    request: Request = REQUEST,
    base: str = "deepseek-v3",
    rule: str = "together",
    precision: str = "mxfp8",
    kinds: Sequence[str] = ("hand-tuned", "ideal"),
) -> pd.DataFrame:
    """Return the yield of a larger domain over a smaller one, over the model's size and the speed per user.

    Parameters
    ----------
    total_params : iterable of float
        Of models grown from `base` by `rule` of `models.synthetic`. [-]
    tokens_per_s_per_user : iterable of float
        Promised speeds. [token/s]
    pair : tuple
        The smaller system and the larger one. [-]

    Returns
    -------
    table : pandas.DataFrame
        rule, total_params, precision, context (the longest), software, tokens_per_s_per_user, ratio (NaN where neither
        is as fast, infinite where only the larger is), small_ and large_tokens_per_s_per_chip, ratio_low, ratio_high,
        sure (whether the band leaves 1 out). `domain_sizes.verdicts` takes it. [-]

    Notes
    -----
    Both run the same software on the same chip, so that a draw moves both: the band is of the ratio within each draw.

    Examples
    --------
    >>> table = domains([671026404352], [50.0], ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160"), kinds=["ideal"])
    >>> table.ratio.round(2).tolist()
    [0.88]
    """
    speeds, rows = np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY)), list[dict[str, Any]]()
    for size, kind in product(np.ravel(numbers("total_params", total_params)).tolist(), listed("kinds", kinds)):
        model = synthetic(size, rule, base)
        both = [choices(model, request, one, kind, speeds, precision) for one in pair]
        small, large = (np.array([c.tokens_per_s_per_chip if c else 0.0 for c in some]) for some in both)
        with np.errstate(divide="ignore", invalid="ignore"):
            line = {"rule": rule, "total_params": size, "precision": precision}
            line |= {"context": request.longest_context, "software": kind}
            line |= {"tokens_per_s_per_user": speeds, "ratio": large / small}
        line |= {"small_tokens_per_s_per_chip": small, "large_tokens_per_s_per_chip": large}
        low, high = np.array([ratio_range(*two) for two in zip(*both, strict=True)]).T
        sure = ~((low < 1) & (high > 1)) & ~np.isnan(line["ratio"])
        rows.append(line | {"ratio_low": low, "ratio_high": high, "sure": sure})
    return tidy(rows)


def ratio_range(small: Choice | None, large: Choice | None) -> tuple[float, float]:
    """Return the 90 % range of a larger domain's yield over a smaller one's, over the draws that both share.

    A draw in which one of them breaks the promise has `LEAST` in its place, one in which both do does not count. The
    range holds the ratio of the choices themselves.
    """
    values = [c.tokens_per_s_per_chip if c else 0.0 for c in (small, large)]
    if not any(values):
        return 1.0, 1.0
    middle = max(values[1], LEAST) / max(values[0], LEAST)
    if any(c and c.stack.kind == "ideal" for c in (small, large)):
        return middle, middle
    drawn = [np.nan_to_num(c.drawn[c.FIGURE]) if c else np.zeros(DRAWS) for c in (small, large)]
    some = np.logical_or(*(x > 0 for x in drawn))
    low, high = range_of(np.maximum(drawn[1], LEAST)[some] / np.maximum(drawn[0], LEAST)[some])
    return min(low, middle), max(high, middle)


def fewer_lanes(system: str | System) -> System:
    """Return a system with the lanes of AWS's page, not the deep dive's; itself if neither counts them.

    Examples
    --------
    >>> rates = {name: fewer_lanes(name).id for name in ("trn3-nl72x2-pcie160", "trn3-nl32x2-torus")}
    >>> rates["trn3-nl72x2-pcie160"], rates["trn3-nl32x2-torus"]
    ('trn3-nl72x2-aws-lanes', 'trn3-nl32x2-torus')
    """
    spec = read_system(system)
    name = LANES.get(spec.id, spec.id)
    return what_if.alternatives(spec).get(name) or read_system(name)
