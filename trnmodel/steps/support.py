"""Whether documented software runs a model on a system, with which features, and what would have to be ported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trnmodel.catalog import engines, load, options, stacks
from trnmodel.catalog.engines import NOT_STATED, RUNS, ReleaseRow, SupportRow
from trnmodel.catalog.names import folded
from trnmodel.catalog.options import Option
from trnmodel.catalog.specs import Chip
from trnmodel.catalog.stacks import Efficiencies
from trnmodel.catalog.systems import System, chip_of
from trnmodel.declared import MACHINE, MODEL, Named, declare
from trnmodel.models.kinds import kinds_by_architecture, layer_kinds
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import Card, card_of
from trnmodel.steps.rank import site

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["supported", "not listed", "not supported"]
FIRST = {"supported": 0, "contributed": 1, "not listed": 2, "not supported": 3}  # which of several releases answers
SOFTWARE = Named("a software stack or option, or public, hand-tuned or ideal")


class Statement(NamedTuple):
    """What one release says of a model on a chip, and the row that says so; None where none does."""

    word: Literal["supported", "contributed", "not listed", "not supported"]
    release: ReleaseRow
    row: SupportRow | None


class Porting(NamedTuple):
    """What no supported architecture of a release has, and the supported architecture with the most alike layers."""

    kinds: tuple[str, ...]
    nearest: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Support(Card):
    """Whether software runs a model on a system, by the documents of the engine's release.

    `status` is "supported" where the release lists the architecture (`maturity` is then "supported" or "beta"), "not
    listed" where no document names it, and "not supported" where one says that it does not run. A port that somebody
    has contributed is named by `port`, and is not listed. Each of `features` is "supported", "beta", "untested", "not
    supported" or "not stated".
    """

    model: Transformer
    system: System | Chip
    stack: str
    status: Status
    engine: str
    release: str
    release_name: str
    architecture: str
    maturity: str
    printed: str
    features: Mapping[str, str]
    missing: str
    missing_kinds: tuple[str, ...]
    nearest: str
    port: str
    sources: tuple[str, ...]

    @property
    def supported(self) -> bool:
        """Whether the documents say that it runs."""
        return self.status == "supported"

    def card(self) -> list[str]:
        """Return the answer on a few lines: the status, the features, what would have to be ported, the sources."""
        where = f"{self.model.id} ({self.architecture}) on {self.system.id}"
        maturity = f" ({self.maturity})" if self.maturity == "beta" else ""
        by = f" by {self.release_name}" if self.release_name else f" by {self.stack}"
        said = [f"{name}: {word}" for name, word in self.features.items() if word != NOT_STATED]
        sources = [f"sources: {self.sources[0]}", *self.sources[1:]] if self.sources else []
        why = [self.missing] if self.missing else []
        return card_of(f"Support: {where} is {self.status}{maturity}{by}", [said, why, sources])

    def to_frame(self) -> pd.DataFrame:
        """Return the answer as one row: a column for each feature beside the status."""
        import pandas as pd

        row: dict[str, Any] = {
            "model": self.model.id,
            "system": self.system.id,
            "stack": self.stack,
            "architecture": self.architecture,
            "status": self.status,
            "maturity": self.maturity,
            "engine": self.engine,
            "release": self.release,
        }
        row |= dict(self.features)
        row |= {name: getattr(self, name) for name in ("nearest", "missing", "port")}
        return pd.DataFrame([row | {"sources": " ".join(self.sources)}])


def _statement(release: ReleaseRow, architecture: str, model: str, chip: str) -> Statement:
    """Return what a release says of an architecture on a chip."""
    here = chip in release.chips.split()
    row = engines.said(release.id, architecture, model, chip).get("") if here else _refusal(release, chip)
    if row is None or row.status == "untested":
        return Statement("not listed", release, None)
    return Statement("supported" if row.status in RUNS else row.status, release, row)  # type: ignore[arg-type]


def _refusal(release: ReleaseRow, chip: str) -> SupportRow | None:
    """Return the row that says that a release does not run on a chip at all; None where no document says so."""
    rows = engines.support_rows()[release.id]
    return next(
        (one for one in rows if not one.feature and one.architecture == engines.ANY and chip in one.chips), None
    )


def _porting(release: ReleaseRow, model: Transformer, chip: str) -> Porting:
    """Return which kinds of layers of a model none of the architectures has that a release supports on a chip."""
    rows = [row for row in engines.support_rows()[release.id] if not row.feature and row.status in RUNS]
    names = dict.fromkeys(row.architecture for row in rows if not row.chips or chip in row.chips.split())
    known = kinds_by_architecture()
    there = {name: known[name] for name in names if name in known and name != model.architecture}
    needed = layer_kinds(model)
    apart = {name: min(len(needed ^ one) for one in several) for name, several in there.items()}
    nearest = min(apart, key=lambda name: apart[name]) if apart else ""
    every = frozenset(kind for several in there.values() for one in several for kind in one)
    return Porting(tuple(sorted(needed - every)), nearest)


def _reason(answer: Statement, porting: Porting, chip: str) -> str:
    """Return in words what would have to be ported; empty where the release runs the model."""
    release, row = answer.release, answer.row
    if answer.word == "supported":
        return ""
    if chip not in release.chips.split():
        if row:
            return f"{release.name} does not run on {chip}: {row.printed}"
        return f"{release.name} names no {chip}; it runs on {', '.join(release.chips.split())}"
    said = {
        "contributed": "lists no such architecture, but a port has been contributed",
        "not listed": "lists no such architecture",
    }
    reason = said.get(answer.word, f"says of {row.printed} that it does not run on {chip}" if row else "")
    refused = answer.word == "not supported" and not porting.kinds  # the layers are not why
    return f"{release.name} {reason}" + ("" if refused else f"; {_ported(porting)}")


def _ported(porting: Porting) -> str:
    """Return in words what has to be ported: kinds of layers, or a class where each kind of layer is there."""
    if porting.kinds:
        names = [*porting.kinds]
        several = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
        nearest = f"; nearest is {porting.nearest}" if porting.nearest else ""
        return f"no architecture that it supports has {several}{nearest}"
    if porting.nearest:
        kinds = f"each kind of layer is in some architecture that it supports, and nearest is {porting.nearest}"
        return f"{kinds}: what remains is the model's class, with the names of its weights, its norms and activations"
    return "it supports no architecture of the catalogue on this chip"


@lru_cache(maxsize=4096)
def _judged(model: Transformer, chip: str, releases: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of an answer that follow from the model, the chip and the releases that may answer."""
    some = [engines.releases()[name] for name in releases]
    published = "" if model.path else model.id  # a file of the user's own is no checkpoint that a document names
    every = [_statement(one, model.architecture, published, chip) for one in some if chip in one.chips.split()]
    every = every or [_statement(one, model.architecture, published, chip) for one in some]
    if not every:
        return _unreleased()
    answer = min(every, key=lambda one: FIRST[one.word])
    release, row = answer.release, answer.row
    runs = answer.word == "supported"
    here = chip in release.chips.split()
    rows = engines.said(release.id, model.architecture, published, chip) if runs else {}
    spoken = {name: one for name, one in rows.items() if name}
    porting = Porting((), "") if runs or not here else _porting(release, model, chip)
    behind = [release.source, *([row.source] if row else []), *(one.source for one in spoken.values())]
    return {
        "status": "not listed" if answer.word == "contributed" else answer.word,
        "engine": release.engine,
        "release": release.id,
        "release_name": release.name,
        "maturity": row.status if row else "",
        "printed": row.printed if row else "",
        "features": MappingProxyType(
            {name: spoken[name].status if name in spoken else NOT_STATED for name in engines.FEATURES}
        ),
        "missing": _reason(answer, porting, chip),
        "missing_kinds": porting.kinds,
        "nearest": porting.nearest,
        "port": f"{row.source}: {row.locator}" if row and answer.word == "contributed" else "",
        "sources": tuple(dict.fromkeys(behind)),
    }


def _unreleased(
    status: Status = "not listed", missing: str = "", engine: str = "", printed: str = "", sources: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the fields of an answer for software that is no release of an engine."""
    nothing = dict.fromkeys(("release", "release_name", "nearest", "port"), "")
    return nothing | {
        "status": status,
        "engine": engine,
        "maturity": "",
        "printed": printed,
        "features": MappingProxyType(dict.fromkeys(engines.FEATURES, NOT_STATED)),
        "missing": missing,
        "missing_kinds": (),
        "sources": tuple(sources),
    }


def _software(model: Transformer, chip: Chip, efficiencies: Any) -> Efficiencies | Option:
    """Return the stack or the option that an argument names."""
    if isinstance(efficiencies, Option | Efficiencies):
        return efficiencies
    if isinstance(efficiencies, str) and folded(efficiencies) in load.ids_by_name("option"):
        return options.options(chip, model.id, efficiencies)[0]
    return stacks.find(chip, efficiencies, "efficiencies")


def _of_option(option: Option, model: Transformer, chip: Chip) -> dict[str, Any]:
    """Return the fields of an answer for an option that is of no release: its own document says where it runs."""
    documented = chip.id in option.documented_on and bool({engines.ANY, model.id} & option.covers)
    where = (
        f"{option.id} is documented for {', '.join(sorted(option.covers))} on {', '.join(sorted(option.documented_on))}"
    )
    return _unreleased(
        "supported" if documented else "not listed",
        "" if documented else where,
        option.engine,
        option.engine,
        sorted(load.fact_sources(option)),
    )


@declare(model=MODEL, system=MACHINE, efficiencies=SOFTWARE)
def support(
    model: str | Transformer,
    system: str | System | Chip,
    efficiencies: str | Efficiencies | Option | None = None,
) -> Support:
    """Return whether documented software runs a model on a system, with which features, and what a port would need.

    Parameters
    ----------
    model : str or Transformer
        Id, name, path of a config.json, or object; what counts is its architecture, the `model_type` of its file. [-]
    system : str or System or Chip
        Where it is to run; what counts is the generation of its chips. [-]
    efficiencies : str or Efficiencies or Option, optional
        Software: default the chip's public stack; the id of a stack or of an option, or an object. "ideal" and
        "hand-tuned" are no software that anybody releases. [-]

    Returns
    -------
    support : Support
        `.status` is "supported", "not listed" or "not supported"; `.features` says what is stated of each feature,
        `.missing` what would have to be ported, `.sources` which documents say so.

    Raises
    ------
    ValueError
        Unknown model, system or software; an option that is not one of the model on the chip.

    Notes
    -----
    A stack stands for several releases of engines. Of those that run on the chip the one answers that lists the
    architecture; of several the first, which of an engine is the newest. What no document states is "not stated",
    which is no "not supported". `.missing_kinds` are kinds of layers of the model that no architecture has which
    the release supports on the chip, by the models of the catalogue; `.nearest` is the supported architecture whose
    layers differ least.

    Examples
    --------
    >>> import trnmodel as tm
    >>> tm.support("llama-3.3-70b", "trn2.48xlarge").release
    'vllm-neuron-2.32'
    >>> deepseek = tm.support("deepseek-v3", "trn2.48xlarge")
    >>> deepseek.status, deepseek.missing_kinds
    ('not listed', ('latent attention (MLA)',))
    >>> tm.support("deepseek-v3", "hgx-h200", "sglang-mtp3").features["speculation"]
    'supported'
    """
    chosen, where = read_model(model), site(system).where
    chip = chip_of(where)
    software = _software(chosen, chip, efficiencies)
    if isinstance(software, Option) and software.engine and not software.server:
        answer = _of_option(software, chosen, chip)
    else:
        answer = _judged(chosen, chip.id, _releases(software))
    if not answer["engine"]:
        answer = answer | {"missing": f"{software.id} is no software that a document names"}
    return Support(model=chosen, system=where, stack=software.id, architecture=chosen.architecture, **answer)


def _releases(software: Efficiencies | Option) -> tuple[str, ...]:
    """Return the ids of the releases that software stands for, the newest first."""
    e = software.efficiencies if isinstance(software, Option) else software
    if e.kind != "public":
        return ()
    server = software.server if isinstance(software, Option) else ""
    return _of_stack(software.base_stack if isinstance(software, Option) else e.id, server)


@lru_cache(maxsize=256)
def _of_stack(stack: str, server: str) -> tuple[str, ...]:
    return tuple(release.id for release in engines.of_stack(stack) if server in ("", release.engine))


def support_table(model: str | Transformer, systems: Iterable[str | System] | None = None) -> pd.DataFrame:
    """Return what each release of an engine says of a model on the chips of systems.

    Parameters
    ----------
    model : str or Transformer
        As in `support`. [-]
    systems : list of str or System, optional
        Default every chip that a release runs on. [-]

    Returns
    -------
    table : pandas.DataFrame
        A row for each chip and release: system, chip, release, status, maturity, a column for each feature, missing,
        port, sources.

    Examples
    --------
    >>> table = support_table("gpt-oss-120b", ["trn2.48xlarge"])
    >>> table[table.status == "supported"].release.tolist()
    ['vllm-neuron-2.32']
    """
    import pandas as pd

    chosen = read_model(model)
    places = [site(one).where for one in systems] if systems is not None else [load.chip(one) for one in _chips()]
    rows: list[dict[str, Any]] = []
    for where in places:
        chip = chip_of(where)
        names = [one.id for one in engines.of_stack(chip.default_stack)] if chip.default_stack else []
        for name in names:
            answer = _judged(chosen, chip.id, (name,))
            row = {"system": where.id, "chip": chip.id, "release": name, "engine": answer["engine"]}
            row |= {"status": answer["status"], "maturity": answer["maturity"], **answer["features"]}
            rows.append(
                row | {one: answer[one] for one in ("missing", "port")} | {"sources": " ".join(answer["sources"])}
            )
    return pd.DataFrame(rows)


def _chips() -> list[str]:
    """Return the ids of the chips that some release runs on, in the order of the catalogue."""
    named = {chip for release in engines.releases().values() for chip in release.chips.split()}
    return [chip for chip in load.chips() if chip in named]
