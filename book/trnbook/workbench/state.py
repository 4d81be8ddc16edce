"""What the workbench is set to: a server or a training step, as plain values, and how public calls are asked for it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trnmodel as tm
from trnmodel.catalog.options import Option, options
from trnmodel.catalog.stacks import kinds

SCENARIOS = ("hand-tuned", "ideal")  # software beside the public one, in the order of the list
TRAINING_ORDER = ("tp", "cp", "ep", "dp", "pp")  # neighbours first, as `tm.train_step` lays them


@dataclass(frozen=True, kw_only=True)
class ServingState:
    """A server: model, system, format, degrees, batch, lengths, the promised speed, software and its drafts.

    `lnc` of 0 is the chip's default, `speed` of 0 is no promise, and an empty `software` is the chip's public stack.
    `context` is the longest one: the prompt and its answer.
    """

    model: str = "llama-3.3-70b"
    system: str = "trn2.48xlarge"
    precision: str = "fp8"
    tp: int = 4
    ep: int = 1
    pp: int = 1
    cp: int = 1
    lnc: int = 0
    batch: int = 4
    prompt: int = 4096
    context: int = 4608
    speed: float = 50.0
    software: str = ""
    drafts: str = ""

    @property
    def mapping(self) -> tm.Mapping:
        """Its degrees."""
        return tm.Mapping(tp=self.tp, ep=self.ep, pp=self.pp, cp=self.cp, lnc=self.lnc or None)

    @property
    def request(self) -> tm.Request:
        """What a user sends and is promised; ValueError where the context has no room for an answer."""
        if self.context <= self.prompt:
            raise ValueError(
                f"a context of {self.context:,} tokens has no room for an answer to a prompt of {self.prompt:,}"
            )
        return tm.Request(self.prompt, self.context - self.prompt, tokens_per_s_per_user=self.speed or None)

    @property
    def option(self) -> Option:
        """Its software with its drafts, as a search names it; ValueError where the chip has none of that name."""
        return option_of(self.model, self.system, self.software, self.drafts)

    @property
    def scenario(self) -> dict[str, Any]:
        """The state as a scenario, which `tm.scenario` and `trnmodel plan --scenario` read."""
        request, one = self.request, self.option
        step: dict[str, Any] = {"tp": self.tp, "ep": self.ep, "pp": self.pp, "cp": self.cp, "batch": self.batch}
        step |= {"lnc": self.lnc} if self.lnc else {}
        step |= {"context": _plain(request.mean_context), "max_context": self.context}
        step |= {"new_tokens": one.draft_tokens + 1} if one.speculates else {}
        sent: dict[str, Any] = {"input_tokens": self.prompt, "output_tokens": self.context - self.prompt}
        sent |= {"tokens_per_s_per_user": _plain(self.speed)} if self.speed else {}
        return {
            **_subject(self.model, self.system),
            "request": sent,
            "precision": self.precision,
            "efficiencies": self.drafts or self.software or one.id,
            "step": step,
        }


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """A training step: model, system, format, degrees, batches, what is computed again and what replicas share out.

    `tokens` are those of the whole run. The scale-up domains follow from the degrees.
    """

    model: str = "llama-3.3-70b"
    system: str = "trn2.48xlarge"
    precision: str = "bf16"
    tp: int = 16
    pp: int = 4
    dp: int = 128
    ep: int = 1
    cp: int = 1
    lnc: int = 0
    micro_batch: int = 1
    global_batch: int = 2048
    seq: int = 8192
    interleave: int = 2
    recompute: str = "none"
    zero: int = 1
    tokens: float = 2e12
    software: str = ""

    @property
    def mapping(self) -> tm.Mapping:
        """Its degrees, neighbours first."""
        degrees = {"tp": self.tp, "pp": self.pp, "dp": self.dp, "ep": self.ep, "cp": self.cp}
        return tm.Mapping(**degrees, lnc=self.lnc or None, placement=TRAINING_ORDER)

    @property
    def count(self) -> int:
        """Scale-up domains that hold its ranks."""
        spec = tm.system(self.system)
        ranks_per_chip = spec.chip.cores / spec.chip.logical(self.lnc or None)
        return max(1, -int(-self.mapping.ranks // (spec.domain_chips * ranks_per_chip)))

    @property
    def ask(self) -> dict[str, Any]:
        """The arguments of `tm.train_step` beside model, system and mapping."""
        names = ("micro_batch", "global_batch", "seq", "interleave", "recompute", "zero", "precision")
        return {name: getattr(self, name) for name in names} | {
            "count": self.count,
            "efficiencies": self.software or None,
        }

    @property
    def command(self) -> str:
        """The line that searches all mappings of the run at the terminal."""
        run = self.scenario["training"]
        flags = {"--systems": self.system, "--tokens": f"{self.tokens:.12g}", "--chips": run["chips"]}
        flags |= {"--seq": self.seq, "--batch": self.global_batch, "--precision": self.precision}
        flags |= {"--stack": self.software} if self.software else {}
        words = [word for name, value in flags.items() for word in (name, str(value))]
        return shlex.join(["trnmodel", "train", self.model, *words])

    @property
    def scenario(self) -> dict[str, Any]:
        """The run as a scenario for `trnmodel train --scenario`, which searches all mappings of its chips."""
        chips = self.count * tm.system(self.system).domain_chips
        run: dict[str, Any] = {"tokens": _plain(self.tokens), "chips": _plain(chips), "seq": self.seq}
        run |= {"global_batch": self.global_batch, "precision": self.precision}
        run |= {"efficiencies": self.software} if self.software else {}
        return {**_subject(self.model, self.system), "training": run}


State = ServingState | TrainingState


def _plain(number: Any) -> int | float:
    """Return a whole number as an integer, as a person writes it in a file."""
    value = float(number)
    return int(value) if value % 1 == 0 else value


def _subject(model: str, system: str) -> dict[str, Any]:
    """Return model and system as a scenario names them; a path is whole, since a file sees it from its own folder."""
    spec = tm.model(model)
    named: dict[str, Any] = {"model": spec.id}
    if spec.path:
        named = {"model": str(Path(spec.path).resolve()), "name": spec.id}
    return {**named, "systems": [tm.system(system).id]}


def software(model: str, system: str) -> dict[str, str]:
    """Return the software that a server of a model on a system may run, by id, with names; drafts are listed apart.

    Examples
    --------
    >>> list(software("llama-3.3-70b", "trn2.48xlarge"))
    ['vllm-neuron-2026', 'neuron-async', 'hand-tuned', 'ideal']
    """
    chip = tm.system(system).chip
    there = kinds(chip)
    public = options(chip, tm.model(model).id) if "public" in there else ()
    named = {one.id: one.name for one in public if not one.speculates}
    return named | {kind: kind for kind in SCENARIOS if kind in there}


def drafts(model: str, system: str, name: str) -> dict[str, str]:
    """Return the documented drafts on a public stack, by id, with names; none on another kind of software.

    Examples
    --------
    >>> list(drafts("llama-3.3-70b", "trn2.48xlarge", "vllm-neuron-2026"))
    ['neuron-fused-draft-llama-3.3-70b']
    >>> drafts("llama-3.3-70b", "trn2.48xlarge", "neuron-async")
    {}
    """
    chip = tm.system(system).chip
    if name in SCENARIOS or "public" not in kinds(chip):
        return {}
    every = options(chip, tm.model(model).id)
    stack = next((one.efficiencies for one in every if one.id == name), every[0].efficiencies)
    return {one.id: one.name for one in every if one.speculates and one.efficiencies.id == stack.id}


def option_of(model: str, system: str, name: str, drafting: str) -> Option:
    """Return software with its drafts as an option of the catalogue; an empty name is the chip's public stack.

    Examples
    --------
    >>> option_of("llama-3.3-70b", "trn2.48xlarge", "", "").id
    'vllm-neuron-2026'
    """
    chip = tm.system(system).chip
    return options(chip, tm.model(model).id, drafting or name or None)[0]


def training_software(system: str) -> list[str]:
    """Return the kinds of training software of a system's chip, the public one first.

    Examples
    --------
    >>> training_software("trn2.48xlarge")
    ['public', 'hand-tuned', 'ideal']
    """
    chip = tm.system(system).chip
    there = {"public": chip.training_stack, "hand-tuned": chip.hand_tuned_training_stack, "ideal": "ideal"}
    return [kind for kind, stack in there.items() if stack]
