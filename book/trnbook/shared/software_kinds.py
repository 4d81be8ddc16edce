"""One question on ideal, hand-tuned and public software: yields with bands, and bars between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from trnmodel.arguments import TINY, listed, numbers
from trnmodel.catalog.stacks import KINDS, Efficiencies, basis, find
from trnmodel.catalog.stacks import kinds as stacks_of
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import tidy
from trnmodel.search import gaps
from trnmodel.search.choice import Choice
from trnmodel.search.frontier import best_at, formats
from trnmodel.search.single import best_choice
from trnmodel.steps.answers import RESOURCES
from trnmodel.steps.inference import decode_step, prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.steps.request import Request
from trnmodel.units import MS, format_digits, format_within

if TYPE_CHECKING:
    import pandas as pd

# the question that the chapters switch-tray and software share
EXPERTS = ("trn3-nl32x2-pcie160", "trn3-nl72x2-pcie160", "trn3-nl32x2-torus")
SPEEDS, REQUEST = (20.0, 50.0), Request(4096, 512)
# mechanisms that take time of a step at a fixed mapping: what is legal and what is stored take none
MECHANISMS: Mapping[str, tuple[str, ...]] = {
    name: fields for name, fields in gaps.MECHANISMS.items() if name != gaps.LAST
}
ORDER = ("public", "hand-tuned", "ideal")
POINT = ("tp", "ep", "pp", "cp", "batch")
PARTS = ("decode_tokens_per_s_per_chip", "prefill_utilisation")
YIELD = ["tokens_per_s_per_chip", "tokens_per_s_per_chip_low", "tokens_per_s_per_chip_high"]
COLUMNS = (
    "promised_tokens_per_s_per_user system software option precision tp ep pp cp batch tokens_per_s_per_chip "
    "tokens_per_s_per_chip_low tokens_per_s_per_chip_high chance decode_tokens_per_s_per_chip prefill_utilisation "
    "stack basis basis_reason reason"
)


def waterfall(
    model: str | Transformer,
    system: str | System,
    mapping: Degrees,
    kinds: Sequence[str] = tuple(KINDS),
    **question: Any,
) -> pd.DataFrame:
    """Split the difference between kinds of software in a decode step into a bar per mechanism.

    Stored bytes have no bar, so that a step can be split even where the last stack would not fit.

    Parameters
    ----------
    kinds : sequence of str
        Of `KINDS`, or ids of stacks, in order; the first has one bar, its whole step. [-]
    question
        batch, context and precision of `decode_step`. [-]

    Returns
    -------
    table : pandas.DataFrame
        software, mechanism, start_s, end_s, bar_s (their difference: one step with the values of a mechanism replaced),
        bar_s_low and bar_s_high (at the ends of their ranges), basis. [-]

    Examples
    --------
    >>> bars = waterfall("llama-3.1-8b", "trn2.48xlarge", Degrees(tp=8), batch=8, context=2048)
    >>> bars.software.unique().tolist(), bool(abs(bars.bar_s.sum() - bars.end_s.iloc[-1]) < 1e-12)
    (['ideal', 'hand-tuned', 'public'], True)
    """
    spec = read_system(system)

    def step(e: Efficiencies) -> float:
        return float(decode_step(model, spec, mapping, efficiencies=e, **question).require_valid().time_s)

    stacks = {kind: find(spec.chip, KINDS.get(kind, kind), "efficiencies") for kind in listed("kinds", kinds)}
    here = stacks[kinds[0]]
    at = step(here)
    rows: list[dict[str, Any]] = [{"software": kinds[0], "mechanism": "the step itself", "start_s": 0.0, "end_s": at}]
    rows[0] |= {"bar_s": at, "bar_s_low": at, "bar_s_high": at, "basis": basis(here, spec.chip, 1, "decode").word}
    for _, kind in pairwise(kinds):
        target = stacks[kind]
        ground = str(basis(target, spec.chip, site(spec, mapping.lnc).lnc, "decode").word)
        for mechanism, there, ends in gaps.walk(here, target, MECHANISMS):
            after = step(there)
            spread = [step(end) for end in ends]
            low, high = min([after, *spread]) - at, max([after, *spread]) - at
            line = {"software": kind, "mechanism": mechanism, "start_s": at, "end_s": after, "bar_s": after - at}
            rows.append(line | {"bar_s_low": low, "bar_s_high": high, "basis": ground})
            here, at = there, after
    bars = tidy(rows)
    return bars[(bars.bar_s != 0) | (bars.bar_s_high != 0)].reset_index(drop=True)


def choices(
    model: str | Transformer,
    request: Request,
    system: str | System,
    kind: str,
    tokens_per_s_per_user: ArrayLike,
    precision: str,
) -> list[Choice | None]:
    """Return the choice of a system on one kind of software at each promised speed; None where it is not reached.

    Examples
    --------
    >>> slow, never = choices("llama-3.1-8b", Request(1024, 256), "hgx-h200", "ideal", [20.0, 1e9], "fp8")
    >>> slow.stack.kind, never is None
    ('ideal', True)
    """
    return best_at(model, request, system, tokens_per_s_per_user, [precision], KINDS[kind])


def in_band(value: float, low: float, high: float, basis: str = "") -> str:
    """Format a yield with its band and basis, in the digits that the band justifies.

    Examples
    --------
    >>> in_band(4085.6, 3398.3, 4833.9), in_band(7529.2, 7529.2, 7529.2)
    ('4,100 (3,400 to 4,800)', '7,529')
    >>> in_band(0.0, 0.0, 824.6, "extrapolated"), in_band(0.0, 0.0, 0.0)
    ('none (to 820; extrapolated)', 'none')
    """
    if value:
        return format_within(value, low, high, basis=basis)
    said = [f"to {format_within(high, high / 2, high).partition(' (')[0]}"] * int(high > 0) + [basis] * bool(basis)
    return f"none ({'; '.join(said)})" if said else "none"


def describe(table: pd.DataFrame, tokens_per_s_per_user: float, system: str) -> str:
    """Describe a row of `answers`: yield and band on each kind of software.

    Examples
    --------
    >>> table = answers("llama-3.1-8b", Request(1024, 256), ["hgx-h200"], [50.0])
    >>> describe(table, 50.0, "hgx-h200").count("per paid chip"), "hand-tuned" in describe(table, 50.0, "hgx-h200")
    (1, True)
    """
    at = table[(table.promised_tokens_per_s_per_user == tokens_per_s_per_user) & (table.system == system)]
    texts = [f"{in_band(*line[:3])} {line.software}" for line in at[[*YIELD, "software"]].itertuples(index=False)]
    return f"{read_system(system).name}: {', '.join(texts)} tokens/s per paid chip"


def names(systems: Iterable[str]) -> dict[str, str]:
    """Return the readable names of systems by id."""
    return {name: read_system(name).name for name in systems}


def side_by_side(table: pd.DataFrame) -> pd.DataFrame:
    """Return `answers` with a row per speed and system: yields with bands, chance of public software, basis, limits."""
    rows = list[dict[str, Any]]()
    for (speed, system), lines in table.groupby(["promised_tokens_per_s_per_user", "system"], sort=False):
        at = lines.set_index("software")
        there = [kind for kind in ORDER if kind in at.index]
        row: dict[str, Any] = {"promised_tokens_per_s_per_user": speed, "of": read_system(system).name}
        row |= {kind: in_band(*at.loc[kind, YIELD]) for kind in there}
        row |= {"chance": at.chance["public"]} if "public" in there else {}
        row |= {"rests on": ", ".join(dict.fromkeys(at.basis[kind] for kind in there if kind != "ideal"))}
        row |= {f"{kind} loses to": at.reason[kind] for kind in there if kind != "ideal"}
        rows.append(row)
    return tidy(rows).rename(columns={"of": "system"})


def line(table: pd.DataFrame, speed: float, system: str, kind: str) -> pd.Series:
    """Return one row of `answers`."""
    at = table[(table.promised_tokens_per_s_per_user == speed) & (table.system == system) & (table.software == kind)]
    return at.iloc[0]


def describe_line(one: pd.Series) -> str:
    """Describe a row of `answers`: yield, band, basis and kind of software."""
    basis = "" if one.basis == one.software else one.basis
    made, low, high = one[YIELD]
    return f"{in_band(made, low, high, basis)} tokens/s per paid chip on {one.software} software"


def decides(table: pd.DataFrame) -> str:
    """Return as a chart title how far software, and how far racks, change the yield."""
    wide = table[table.tokens_per_s_per_chip > 0].pivot(
        index="system", columns="software", values="tokens_per_s_per_chip"
    )
    kinds, racks = (wide.max(axis=1) / wide.min(axis=1)).max(), wide["hand-tuned"].max() / wide["hand-tuned"].min()
    return f"Software moves the yield {format_digits(kinds, 2)} times, racks {format_digits(racks, 2)} times"


def reason(c: Choice) -> str:
    """Return what takes most: on ideal software of all, on others of what they lose, the prompts of a step among it.

    Examples
    --------
    >>> [c] = choices("llama-3.1-8b", Request(2048, 256), "trn2.48xlarge", "hand-tuned", [50.0], "bf16")
    >>> reason(c).endswith(" ms")
    True
    """
    answers = float(c.batch * c.times.tokens_per_step / c.question.request.output_tokens)  # of each step
    prompts_s = answers * float(c.times.prompt_s)
    whole_s = float(c.times.step_s) + prompts_s
    if c.stack.kind == "ideal":
        parts = {name: float(getattr(c.step, f"{name}_s")) for name in RESOURCES} | {"prompts": prompts_s}
        most = max(parts, key=parts.__getitem__)
        return f"{most} {_takes(most)} longest of {whole_s / MS:.1f} ms"
    request = c.question.request
    ask: dict[str, Any] = {"precision": c.precision, "max_context": request.longest_context}
    step = {"batch": c.batch, "context": request.mean_context, "new_tokens": c.option.draft_tokens + 1}
    bars = waterfall(c.step.model, c.system, c.degrees, ["ideal", c.stack.id], **step, **ask)
    lost = dict(zip(bars.mechanism.iloc[1:], bars.bar_s.iloc[1:], strict=True))
    groups = float(c.times.groups)
    new: dict[str, Any] = {"input_tokens": request.new_tokens, "past": request.past_tokens}
    ideal = prefill(c.step.model, c.system, c.degrees, batch=groups, efficiencies="ideal", **new, **ask)
    lost["prompts"] = prompts_s - answers * float(ideal.time_s) / groups
    most = max(lost, key=lost.__getitem__)
    return f"{most} {_takes(most)} {lost[most] / MS:.1f} of {whole_s / MS:.1f} ms"


def _takes(name: str) -> str:
    """Return the verb after the name of a part."""
    return "take" if name in ("kernels", "prompts") else "takes"


def answers(
    model: str | Transformer,
    request: Request = REQUEST,
    systems: Iterable[str] = EXPERTS,
    tokens_per_s_per_user: Iterable[float] = SPEEDS,
    precisions: Sequence[str] = ("mxfp8", "fp8", "bf16"),
) -> pd.DataFrame:
    """Return what each system makes of a request on each kind of software at equal speed, with band and reason.

    Parameters
    ----------
    request : Request
        Its own speed does not count. [-]
    tokens_per_s_per_user : iterable of float
        Promised speeds. [token/s]
    precisions : sequence of str
        Candidates; a system uses the first in which its chip computes. [-]

    Returns
    -------
    table : pandas.DataFrame
        promised_tokens_per_s_per_user, system, software, option, precision, degrees, batch, tokens_per_s_per_chip (of
        whole requests, per paid chip) with `_low` and `_high`, chance, decode_tokens_per_s_per_chip,
        prefill_utilisation, stack, basis, basis_reason, reason. A speed that no mapping reaches has yield 0 and a
        reason; a kind of software without a row for the chip is left out. [-]

    Notes
    -----
    These are the answers of `tm.plan` on one system and kind of software: band and chance are over the common draws, in
    which the mapping stays and the number of sequences in flight adapts.
    """
    chosen_model, rows = read_model(model), list[dict[str, Any]]()
    speeds = np.ravel(numbers("tokens_per_s_per_user", tokens_per_s_per_user, TINY)).tolist()
    for name, precision in formats(systems, precisions).items():
        spec = read_system(name)
        for kind, word in stacks_of(spec.chip).items():
            reached = choices(chosen_model, request, spec, kind, speeds, precision)
            for speed, c in zip(speeds, reached, strict=True):
                line = {"promised_tokens_per_s_per_user": speed, "system": spec.id, "software": kind}
                line |= {"precision": precision, "stack": find(spec.chip, word, "efficiencies").id}
                promised = replace(request, tokens_per_s_per_user=speed)
                rows.append(line | (_line(c) if c else _nothing(chosen_model, promised, spec, word, precision)))
    table = tidy(rows)[COLUMNS.split()]
    return table.sort_values("promised_tokens_per_s_per_user", kind="stable", ignore_index=True)


def _line(c: Choice) -> dict[str, Any]:
    """Return a choice as columns of `answers`."""
    columns = {name: getattr(c, name) for name in (*POINT, "chance", *PARTS)} | c.banded(c.FIGURE)
    return columns | {"stack": c.stack.id, "option": c.option.name, "reason": reason(c)} | _ground(c)


def _ground(c: Choice) -> dict[str, Any]:
    """Return what a choice rests on as columns of `answers`."""
    return {"basis": str(c.basis), "basis_reason": str(c.basis_reason)}


def _nothing(m: Transformer, request: Request, spec: System, word: str | None, precision: str) -> dict[str, Any]:
    """Return the columns of a speed that is not reached, with the reason."""
    line: dict[str, Any] = dict.fromkeys([*POINT, *PARTS], np.nan) | dict.fromkeys([*YIELD, "chance"], 0.0)
    c = best_choice(m, request, spec, word, precision)
    if c is None:
        return line | {"option": "", "reason": "it does not fit", "basis": "", "basis_reason": ""}
    return line | {"option": c.option.name, "reason": f"at most {c.tokens_per_s_per_user:.0f} tokens/s"} | _ground(c)


def shared_point(
    model: str | Transformer, system: str, table: pd.DataFrame, **question: Any
) -> tuple[Degrees, float] | None:
    """Return mapping and batch of the highest yield at the slowest speed that hand-tuned and public software can run.

    It is the hand-tuned choice of `answers`, or the public one where public software has no such mapping. The batch is
    halved until it fits the public stack. The answer is None if it never fits, or if nothing is fast enough.
    """
    there = table[(table.system == system) & (table.tokens_per_s_per_chip > 0)]
    for kind in ("hand-tuned", "public"):
        for line in there[there.software == kind].head(1).itertuples():
            mapping = Degrees(tp=line.tp, ep=line.ep, pp=line.pp, cp=line.cp)
            halvings = np.exp2(np.arange(np.floor(np.log2(line.batch / line.ep)) + 1))
            batch = line.ep * np.floor(line.batch / line.ep / halvings)
            runs = decode_step(model, system, mapping, batch=batch, **question).valid
            if runs.any():
                return mapping, float(batch[runs].max())
    return None
