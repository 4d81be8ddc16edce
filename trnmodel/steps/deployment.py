"""A deployment: a model on a system with a mapping, a precision and a stack, for one question after another."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from trnmodel.arguments import instance, number
from trnmodel.catalog import load
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.stacks import IDEAL, Efficiencies, efficiencies
from trnmodel.catalog.systems import System
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.models.transformer import model as read_model
from trnmodel.result import weakest
from trnmodel.steps.inference import MemoryFit, Step, decode_step, memory_fit, prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site
from trnmodel.units import Numeric


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Deployment:
    """A model on a system: mapping, precision and software stack, for several questions one after another.

    `batch` are the sequences of a replica that decode together, where a plan chose them; `replicas` of the mapping
    stand side by side, and `spares` are replicas that stand by. Raises ValueError for an unknown name, a wrong type or
    a number out of its range.
    """

    model: str | Transformer
    system: str | System
    mapping: Degrees
    precision: str | Precision = "bf16"
    stack: str | Efficiencies | None = None
    batch: float | None = None
    replicas: float = 1.0
    spares: float = 0.0

    def __post_init__(self) -> None:
        read_model(self.model)
        spec = read_system(instance("system", self.system, str | System, "an id or a System"))
        instance("mapping", self.mapping, Degrees, "a Mapping")
        load.precision(self.precision)
        efficiencies(spec.chip, self.stack)
        if self.batch is not None:
            number("batch", self.batch, 1)
        number("replicas", self.replicas)  # 0 where one takes more than a system
        number("spares", self.spares)

    def __repr__(self) -> str:
        """Print the call that makes it; model, system, precision and stack by their ids, also where they are objects.

        Examples
        --------
        >>> Deployment(model=read_model("llama-3.1-8b"), system="trn2.48xlarge", mapping=Degrees(tp=8), batch=4)
        Deployment(model='llama-3.1-8b', system='trn2.48xlarge', mapping=Mapping(tp=8), precision='bf16', stack=None,
        batch=4, replicas=1.0, spares=0.0)
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        ids = {name: getattr(x, "id", x) for name, x in values.items()}
        ids["precision"] = getattr(self.precision, "name", self.precision)
        return f"Deployment({', '.join(f'{name}={x!r}' for name, x in ids.items())})"

    @property
    def e(self) -> Efficiencies:
        """The efficiencies in force."""
        return efficiencies(read_system(self.system).chip, self.stack)

    @property
    def ask(self) -> dict[str, Any]:
        """Arguments that every call takes."""
        names = "model", "system", "mapping", "precision"
        return {name: getattr(self, name) for name in names} | {"efficiencies": self.e}

    def basis(self, batch: float, input_tokens: float, context: float) -> str:
        """Return what its times rest on at one point: the weaker basis of a prefill and of a decode step."""
        steps = {
            "prefill": self.prefill(input_tokens=number("input_tokens", input_tokens, 1)),
            "decode": self.decode(batch=number("batch", batch, 1), context=number("context", context, 1)),
        }
        return str(weakest({part: step.judge() for part, step in steps.items()}).word)

    @property
    def ideal(self) -> Deployment:
        """The same with nothing lost and nothing padded."""
        return replace(self, stack=IDEAL)

    def decode(
        self,
        *,
        batch: Numeric,
        context: Numeric,
        max_context: Numeric | None = None,
        compiled_batch: Numeric | None = None,
        expert_read: str | None = None,
        expert_imbalance: Numeric | None = None,
        compute_memory_overlap: Numeric | None = None,
        network_overlap: Numeric | None = None,
        new_tokens: Numeric = 1,
        breakdown: bool = False,
    ) -> Step:
        """Return a decode step; the arguments are those of `tm.decode_step`."""
        return decode_step(
            **self.ask,
            batch=batch,
            context=context,
            max_context=max_context,
            compiled_batch=compiled_batch,
            expert_read=expert_read,
            expert_imbalance=expert_imbalance,
            compute_memory_overlap=compute_memory_overlap,
            network_overlap=network_overlap,
            new_tokens=new_tokens,
            breakdown=breakdown,
        )

    def prefill(
        self,
        *,
        input_tokens: Numeric,
        batch: Numeric = 1,
        past: Numeric = 0,
        max_context: Numeric | None = None,
        expert_imbalance: Numeric | None = None,
        compute_memory_overlap: Numeric | None = None,
        network_overlap: Numeric | None = None,
        breakdown: bool = False,
    ) -> Step:
        """Return a prefill; the arguments are those of `tm.prefill`."""
        return prefill(
            **self.ask,
            batch=batch,
            input_tokens=input_tokens,
            past=past,
            max_context=max_context,
            expert_imbalance=expert_imbalance,
            compute_memory_overlap=compute_memory_overlap,
            network_overlap=network_overlap,
            breakdown=breakdown,
        )

    def fit(
        self,
        batch: Numeric,
        context: Numeric,
        input_tokens: Numeric | None = None,
        *,
        prompts: Numeric = 1,
        tp: Numeric | None = None,
        pp: Numeric | None = None,
        dp: Numeric | None = None,
        ep: Numeric | None = None,
        cp: Numeric | None = None,
    ) -> MemoryFit:
        """Return the memory of a rank, as of `tm.memory_fit`; a degree that is passed replaces that of the mapping."""
        degrees = {"tp": tp, "pp": pp, "dp": dp, "ep": ep, "cp": cp}
        changed: dict[str, Any] = {name: degree for name, degree in degrees.items() if degree is not None}
        mapping = replace(self.mapping, **changed)
        sizes: dict[str, Any] = {"batch": batch, "context": context, "input_tokens": input_tokens, "prompts": prompts}
        return memory_fit(**self.ask | {"mapping": mapping}, **sizes)

    @property
    def chips(self) -> float:
        """Chips of the deployment, of all its replicas and spares."""
        each = float(np.ceil(self.mapping.ranks / site(self.system, self.mapping.lnc).ranks_per_chip))
        return each * (self.replicas + self.spares)
