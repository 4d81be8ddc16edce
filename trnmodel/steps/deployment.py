"""A deployment: a model on a system with a mapping, a precision and a stack, asked one question after another."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trnmodel.catalog.stacks import IDEAL, Efficiencies, efficiencies
from trnmodel.catalog.systems import system as read_system
from trnmodel.models.transformer import Transformer
from trnmodel.result import weakest
from trnmodel.steps.inference import MemoryFit, Step, decode_step, memory_fit, prefill
from trnmodel.steps.mapping import Mapping as Degrees
from trnmodel.steps.rank import site


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model on a system: mapping, precision and software stack, asked the same questions one after another."""

    model: str | Transformer
    system: str
    mapping: Degrees
    precision: str = "bf16"
    stack: str | Efficiencies | None = None

    @property
    def e(self) -> Efficiencies:
        """The efficiencies in force."""
        return efficiencies(read_system(self.system).chip, self.stack)

    @property
    def ask(self) -> dict[str, Any]:
        """Arguments that every call takes."""
        names = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "stack"}
        return names | {"efficiencies": self.e}

    def basis(self, batch: float, input_tokens: float, context: float) -> str:
        """What its times rest on: the weaker of a prefill and of a decode step."""
        steps = {
            "prefill": self.prefill(input_tokens=input_tokens),
            "decode": self.decode(batch=batch, context=context),
        }
        return str(weakest({part: step.judge() for part, step in steps.items()}).word)

    @property
    def ideal(self) -> Deployment:
        """The same with nothing lost and nothing padded."""
        return replace(self, stack=IDEAL)

    def decode(self, **question: Any) -> Step:
        """A decode step."""
        return decode_step(**self.ask, **question)

    def prefill(self, **question: Any) -> Step:
        """A prefill."""
        return prefill(**self.ask, **question)

    def fit(self, batch: ArrayLike, context: ArrayLike, prompt: ArrayLike | None = None, **degrees: Any) -> MemoryFit:
        """Memory of a rank, with other degrees where given."""
        mapping = replace(self.mapping, **degrees)
        return memory_fit(**self.ask | {"mapping": mapping}, batch=batch, context=context, prompt_tokens=prompt)

    @property
    def chips(self) -> float:
        """Chips of the deployment, all its replicas."""
        return float(np.ceil(self.mapping.ranks / site(self.system, self.mapping.lnc).ranks_per_chip))
