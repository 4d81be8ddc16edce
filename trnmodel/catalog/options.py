"""Documented options of serving software: asynchronous steps and speculation, each a row of `data/` with its source.

"Public" software means the best configuration that is documented for a generation of chips, an engine's release and an
architecture: named in the documentation of the vendor or the engine, or in a measured row together with its settings.
A search tries each option and says which one won. An option without published tokens per step is not listed, for
nobody knows what it gains. The rule is the same for Trainium and for GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from trnmodel.arguments import instance, refuse
from trnmodel.catalog import load, reader, stacks
from trnmodel.catalog.names import folded, resolve
from trnmodel.catalog.posterior import is_file
from trnmodel.catalog.specs import NAN, Chip, Spec
from trnmodel.catalog.stacks import IDEAL, Efficiencies
from trnmodel.catalog.tables import DataError
from trnmodel.result import Basis, weakest

if TYPE_CHECKING:
    import pandas as pd

Drafting = Literal["none", "head", "mtp", "model", "included"]
Server = Literal["", "vllm", "vllm-neuron", "nxd-inference", "tensorrt-llm", "sglang"]
ANY = "any"
NO_SPECULATION = "no-speculation"  # public software without what drafts tokens
ALLOWED = (
    '"public", "no-speculation", "hand-tuned", "ideal", the id of a stack or of an option, a list of these, or a set'
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Option(Spec):
    """A stack with the tokens that a draft proposes in each step, if there is one.

    `drafting` says what proposes them: "head" is one decoder layer trained beside the model (EAGLE), "mtp" the layer of
    the checkpoint, "model" the smaller `draft_model`. Where it is "included", the measured time holds the drafts, or
    nobody printed how many tokens are accepted: `tokens_per_step` is then the printed gain, tokens in the time of a
    plain step, and the drafts cost no more. A draft takes a pass for each token, or `draft_passes` where it is a tree.
    `step_extra_s` is what a step with its drafts took beyond a plain one where it was measured, at `measured_batch`
    sequences; `most_sequences` are those of a replica that a document names with the option, and more is no public
    configuration. `covers` are ids of models, or "any". `vendor` made the chips that the engine is for; it is empty of
    software by others, which no other chip borrows. `borrowed` says from which chip an option is taken over, and is
    empty where it is documented and measured on the chip that was asked for. `server` is the one whose documents give
    the flags that start the option, with the names of the checkpoints that the page prints; without it no page does.
    """

    SHOWN = ("engine", "base_stack", "drafting", "draft_model", "draft_tokens", "tokens_per_step", "lnc", "borrowed")

    efficiencies: Efficiencies = IDEAL
    base_stack: str = ""
    vendor: str = ""
    engine: str = ""
    documented_on: frozenset[str] = frozenset()
    measured_on: frozenset[str] = frozenset()
    covers: frozenset[str] = frozenset()
    drafting: Drafting = "none"
    draft_model: str = ""
    draft_tokens: int = 0
    draft_passes: int = 0
    tokens_per_step: float = 1.0
    step_extra_s: float = 0.0
    measured_batch: float = NAN
    most_sequences: float = inf
    lnc: int = 0
    borrowed: str = ""
    server: Server = ""
    target_checkpoint: str = ""
    draft_checkpoint: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not np.all((self.tokens_per_step >= 1) & np.less_equal(self.tokens_per_step, self.draft_tokens + 1)):
            refuse(
                f"{self.id}: tokens_per_step",
                self.tokens_per_step,
                f"allowed are numbers from 1 to {self.draft_tokens + 1}, the tokens that a step verifies",
            )
        if bool(self.draft_tokens) is not (self.drafting != "none"):
            refuse(f"{self.id}: drafting", self.drafting, "allowed is none without draft_tokens, and a kind with them")
        if self.drafting == "model" and not self.draft_model:
            refuse(f"{self.id}: draft_model", self.draft_model, "allowed is the id of a model that drafts")

    @property
    def passes(self) -> int:
        """Passes of the draft in a step."""
        return self.draft_passes or self.draft_tokens

    @property
    def speculates(self) -> bool:
        """Whether a draft proposes tokens."""
        return self.draft_tokens > 0

    def basis(self, of_steps: Basis) -> Basis:
        """Return what a rate with this option rests on: the steps, and where the option is borrowed or drafts, less.

        Drafts were measured at one number of sequences and are in no fit, so that their gain is extrapolated.

        Examples
        --------
        >>> from trnmodel.catalog.load import chip
        >>> eagle = options(chip("trainium3"), "llama-3.1-8b")[-1]
        >>> eagle.basis(Basis("measured")).word, eagle.borrowed
        ('extrapolated', 'its tokens per step were measured on trainium2')
        """
        reasons = [f"option: {self.borrowed}"] if self.borrowed else []
        if self.speculates:
            many = self.measured_batch
            at = "" if np.isnan(many) else f" at {many:.15g} sequence{'' if many == 1 else 's'}"
            reasons.append(f"option: {self.id} was measured{at}")
        if not reasons:
            return of_steps
        return weakest({"steps": of_steps, "software": Basis("extrapolated", "; ".join(reasons))})


def plain(e: Efficiencies) -> Option:
    """Return the option of a stack as it is, without drafts.

    Examples
    --------
    >>> plain(IDEAL).tokens_per_step, plain(IDEAL).speculates
    (1.0, False)
    """
    return Option(id=e.id, name=e.name, efficiencies=e, base_stack=e.id)


@cache
def _option(entity: str) -> Option:
    """Return an option as its rows state it; DataError, naming the file, where they cannot be."""
    arguments = reader.inherited(Option, reversed(reader.lineage(entity)))
    stack, known = arguments.get("base_stack", ""), load.chips()
    place = f"data/facts/options.csv ({entity})"
    if stack not in stacks.stacks():
        raise DataError(f"{place}: base_stack {stack!r} is none of {', '.join(stacks.stacks())}")
    for name in ("documented_on", "measured_on"):
        if strange := sorted(arguments.get(name, frozenset()) - {*known}):
            raise DataError(f"{place}: {name} {strange[0]!r} is no chip; chips are {', '.join(known)}")
    if not arguments.get("documented_on") or not arguments.get("covers"):
        raise DataError(f"{place}: no row says on which chips, and for which models, it is documented")
    try:
        option = Option(
            **arguments, vendor=load.entity_row(entity).vendor, efficiencies=reader.spec(Efficiencies, stack)
        )
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
    return option


@cache
def documented() -> tuple[Option, ...]:
    """Every option of `data/`, in its order.

    Examples
    --------
    >>> documented()[0].id, documented()[0].efficiencies.id
    ('neuron-async', 'vllm-neuron-2026-async')
    """
    return tuple(_option(entity) for entity in reader.ids("option"))


def _is_own(option: Option, chip: Chip) -> bool:
    """Whether an option of other chips is one of a chip's own engine: of its vendor, and on the chip's public stack."""
    return chip.vendor == option.vendor and chip.default_stack in reader.lineage(option.base_stack)


def _for(option: Option, chip: Chip) -> Option:
    """Return an option on a chip, marked where it was documented or measured on another one."""
    why = ""
    if chip.id not in option.documented_on:
        why = f"documented on {', '.join(sorted(option.documented_on))}"
    elif option.measured_on and chip.id not in option.measured_on:
        why = f"its tokens per step were measured on {', '.join(sorted(option.measured_on))}"
    e = reader.spec(Efficiencies, option.base_stack, chip.catalog_id)
    return replace(option, borrowed=why, efficiencies=e) if why or e is not option.efficiencies else option


def public(chip: Chip, model: str) -> tuple[Option, ...]:
    """Return the options of public software on a chip for a model: the plain stack, those documented, those borrowed.

    Raises ValueError where the chip has no public stack.

    Examples
    --------
    >>> [option.id for option in public(load.chip("trainium2"), "llama-3.3-70b")]
    ['vllm-neuron-2026', 'neuron-async', 'neuron-fused-draft-llama-3.3-70b']
    """
    fitting = [one for one in documented() if one.covers & {ANY, model}]
    own = [one for one in fitting if chip.id in one.documented_on]
    others = [one for one in fitting if one not in own and _is_own(one, chip)]
    first = plain(stacks.find(chip, None, "efficiencies"))
    return (first, *(_for(one, chip) for one in own + others))


@cache
def _names() -> dict[str, str]:
    """Return what each folded name means: a word, the id of a stack, or the id of an option."""
    kinds = {folded(kind): kind for kind in (*stacks.CHIP_FIELDS, "ideal", NO_SPECULATION)}
    return kinds | load.ids_by_name("stack") | load.ids_by_name("option")


def options(
    chip: str | Chip, model: str, efficiencies: str | Efficiencies | Sequence[str] | None = None
) -> tuple[Option, ...]:
    """Return the software options that a search tries on a chip for a model.

    Parameters
    ----------
    chip : str or Chip
        Id, name or object. [-]
    model : str
        Id of the model; an option covers models by id, or any. [-]
    efficiencies : str or Efficiencies or list of str, optional
        "public" (the default): the chip's own stack first, then every option that is documented for the chip and the
        model, then those that its engine has on other generations of the vendor, marked as borrowed. "no-speculation":
        those of them that draft no tokens. "ideal" and "hand-tuned": that stack, and the drafts of these options on it.
        The id of a stack, or a set: that one alone. The ids of one option or several: those. [-]

    Returns
    -------
    options : tuple of Option
        At least one.

    Raises
    ------
    ValueError
        An unknown name (the message lists the nearest); an option that is not one of the chip and the model; a chip
        without a public stack where none is named.

    Examples
    --------
    >>> [one.id for one in options("trainium3", "llama-3.3-70b")]
    ['vllm-neuron-2026', 'neuron-async', 'neuron-fused-draft-llama-3.3-70b']
    >>> [one.id for one in options("trainium3", "llama-3.3-70b", "no-speculation")]
    ['vllm-neuron-2026', 'neuron-async']
    >>> options("trainium3", "llama-3.3-70b")[-1].borrowed
    'documented on trainium2'
    >>> [one.id for one in options("h200", "deepseek-v3", "sglang-mtp3")]
    ['sglang-mtp3']
    """
    where = load.chip(chip)
    several = isinstance(efficiencies, list | tuple) and len(efficiencies) > 0
    names: Any = efficiencies if several else ["public" if efficiencies is None else efficiencies]
    return tuple(dict.fromkeys(one for name in names for one in _chosen(where, model, name)))


def _chosen(chip: Chip, model: str, name: str | Efficiencies) -> tuple[Option, ...]:
    """Return the options that one name means."""
    if isinstance(name, Option):
        return (name,)
    if isinstance(name, Efficiencies):
        return (plain(name),)
    if is_file(instance("efficiencies", name, str, ALLOWED)):
        return (plain(stacks.find(chip, name, "efficiencies")),)
    one = resolve("efficiencies", name, _names())
    if one in ("public", NO_SPECULATION):
        return tuple(option for option in public(chip, model) if one == "public" or not option.speculates)
    if one in reader.ids("option"):
        return (_named(chip, model, one),)
    e = stacks.find(chip, one, "efficiencies")
    return (plain(e), *(_drafted(option, e) for option in _drafts(chip, model) if one in ("ideal", "hand-tuned")))


def _drafts(chip: Chip, model: str) -> tuple[Option, ...]:
    """Return the options of a chip's public software that draft; none where it has no public software."""
    return tuple(one for one in public(chip, model) if one.speculates) if chip.default_stack else ()


def _drafted(option: Option, e: Efficiencies) -> Option:
    """Return the drafts of an option on another stack: a model accepts as many tokens, and steps lose what `e` loses.

    What a measured step lost to the public host is left out with that host.
    """
    borrowed = option.borrowed or "its drafts were measured on public software"
    return replace(option, efficiencies=e, base_stack=e.id, step_extra_s=0.0, borrowed=borrowed)


def _named(chip: Chip, model: str, option_id: str) -> Option:
    """Return an option that was named, where its engine runs on the chip and it covers the model."""
    here = {one.id: one for one in public(chip, model)[1:]}
    if option_id in here:
        return here[option_id]
    option = _option(option_id)
    what = f"it is documented for {', '.join(sorted(option.covers))} on {', '.join(sorted(option.documented_on))}"
    allowed = ", ".join(["public", *here])
    return refuse("efficiencies", option_id, f"{what}; allowed for {model} on {chip.id} are {allowed}")


def option_table() -> pd.DataFrame:
    """Return every documented option with what it gains and the sources of its figures.

    Returns
    -------
    table : pandas.DataFrame
        id, name, engine, base_stack, drafting, draft_tokens, tokens_per_step, step_extra_s, measured_batch,
        most_sequences, lnc, server, target_checkpoint, draft_checkpoint, documented_on, measured_on, covers, sources.

    Examples
    --------
    >>> option_table().set_index("id").drafting["trtllm-mtp3"]
    'mtp'
    """
    import pandas as pd

    names: tuple[str, ...] = ("id", "name", "engine", "base_stack", "drafting", "draft_tokens", "tokens_per_step")
    names += ("step_extra_s", "measured_batch", "most_sequences", "lnc")
    names += ("server", "target_checkpoint", "draft_checkpoint")
    rows = []
    for one in documented():
        row = {name: getattr(one, name) for name in names}
        row |= {name: " ".join(sorted(getattr(one, name))) for name in ("documented_on", "measured_on", "covers")}
        rows.append(row | {"sources": " ".join(sorted(load.fact_sources(one)))})
    return pd.DataFrame(rows)
