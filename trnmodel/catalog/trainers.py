"""Software stacks for training: shares of a chip's rates, fixed times, overlaps and policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from trnmodel.arguments import instance, refuse
from trnmodel.catalog import reader
from trnmodel.catalog.specs import Chip, Spec, mapping_field
from trnmodel.catalog.stacks import Construction, ExpertSplit, HeadSplit, Kind, KvHeads, stack_id, table_of

if TYPE_CHECKING:
    import pandas as pd

Masked = Literal["skipped", "computed"]
Scores = Literal["fused", "kept"]
Library = Literal["best", "nccl"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Trainer(Spec):
    """Efficiencies, overheads and policies of a training stack. The class defaults are the ideal one: nothing is lost.

    Shares are of printed rates: `matmul_share` of linear layers, `attention_share` of scores and weighted values (at
    most the former), `stream_share` of what norms, masks, activations and the optimizer read and write, `link_share`
    and `scaleout_share` of what exchanges send. A step of an exchange starts in the time that the fabric documents, or
    in `hop_s` where it documents none; with a `hop_s` of 0 nothing has a start-up. The `library` is "nccl", which sums
    by rings and trees, or the "best" algorithm of the fabric. Gradients and weights go in messages of `bucket_bytes`,
    or of `bucket_rank_bytes` for each replica where that is more, in ZeRO-3 layer by layer.

    A layer costs `layer_s` besides in each pass over it, a step `step_s`. The host launches each pass over a layer in
    `host_layer_s`, and in `host_adapter_s` more where adapters are trained beside frozen weights; it runs ahead of the
    chip, so that a micro-batch takes the longer of both. An overlap is the share of the shorter of an exchange and of
    the work beside it that hides; `straggler` is by how much the slowest rank's work is longer than the mean. `scores`
    that are "kept" are written out (unfused attention), those of `masked` pairs may be "computed".

    `width` is the half-width of its errors, models left out, on `fitted_on` chips, of which a run had at most
    `fitted_chips`; each doubling beyond adds `octave_width` in quadrature. `head_split`, `expert_split` and
    `sequence_parts` (equal parts of a sequence that a rank of CP takes) say what is legal; `steps.legal` reads them.
    `construction` is "parts" of a scenario: each part was measured somewhere, nobody has published them all together.
    """

    matmul_share: float = 1.0
    attention_share: float = 1.0
    stream_share: float = 1.0
    stream_overlap: float = 1.0
    link_share: float = 1.0
    scaleout_share: float = 1.0
    layer_s: float = 0.0
    step_s: float = 0.0
    hop_s: float = 0.0
    bucket_bytes: float = float("inf")
    bucket_rank_bytes: float = 0.0
    library: Library = "best"
    host_layer_s: float = 0.0
    host_adapter_s: float = 0.0
    straggler: float = 0.0
    tp_overlap: float = 1.0
    ep_overlap: float = 1.0
    cp_overlap: float = 1.0
    pp_overlap: float = 1.0
    dp_overlap: float = 1.0
    gradient_bytes: float = 2.0
    optimizer_bytes: float = 12.0
    mask_bytes: float = 0.0
    scores: Scores = "fused"
    masked: Masked = "skipped"
    kv_head_policy: KvHeads = "even"
    head_split: HeadSplit = "cut"
    expert_split: ExpertSplit = "cut"
    sequence_parts: float = 1.0
    construction: Construction = "fitted"
    width: float = 0.0
    octave_width: float = 0.0
    fitted_chips: float = float("inf")
    fitted_on: Mapping[str, tuple[str, ...]] = mapping_field()

    @property
    def kind(self) -> Kind:
        """Kind of the stack: ideal, a hand-tuned scenario, public software, or a caller's."""
        if self is IDEAL:
            return "ideal"
        if self.construction == "parts":
            return "hand-tuned"
        return "public" if self.sources else "given"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (*SHARES, *POSITIVE):
            if np.any(np.equal(getattr(self, name), 0)):
                refuse(f"{self.id}: {name}", getattr(self, name), "allowed are numbers above 0")


POSITIVE = ("bucket_bytes",)
SHARES = ("matmul_share", "attention_share", "stream_share", "link_share", "scaleout_share")
IDEAL = Trainer(id="ideal", name="ideal: nothing lost, all that may hide hides")


def shipped(e: Trainer) -> bool:
    """Whether a training stack is one of `data/`, no value of it changed.

    Examples
    --------
    >>> import trnmodel as tm
    >>> from dataclasses import replace
    >>> own = trainer(tm.chip("a100"))
    >>> shipped(own), shipped(replace(own, matmul_share=0.9)), shipped(IDEAL)
    (True, False, False)
    """
    return e.id in trainers()[1:] and reader.spec(Trainer, e.id) is e


def trainers() -> list[str]:
    """Ids of all training stacks of `data/`, the ideal one first."""
    return ["ideal", *reader.ids("trainer")]


def trainer_table() -> pd.DataFrame:
    """Return every training stack, in the columns of `stack_table`.

    Examples
    --------
    >>> trainer_table().set_index("id").public_on["megatron-2021"]
    'a100'
    """
    return table_of([IDEAL, *(reader.spec(Trainer, name) for name in trainers()[1:])], *CHIP_FIELDS.values())


CHIP_FIELDS = {"public": "training_stack", "hand-tuned": "hand_tuned_training_stack"}  # fields of a chip, by word


def trainer(chip: Chip, stack: str | Trainer | None = None, argument: str = "efficiencies") -> Trainer:
    """Return a training stack: the chip's own "public" (the default) or "hand-tuned" one, "ideal", or one by id.

    A `Trainer` is returned as it is. Raises ValueError for an unknown id, and where the chip has no such stack.

    Examples
    --------
    >>> import trnmodel as tm
    >>> trainer(tm.chip("a100")).id, trainer(tm.chip("trainium1"), "ideal").matmul_share
    ('megatron-2021', 1.0)
    >>> tuned = trainer(tm.chip("trainium3"), "hand-tuned")
    >>> tuned.kind, tuned.range("matmul_share")[1]
    ('hand-tuned', 0.911)
    """
    if isinstance(stack, Trainer):
        return stack
    instance(argument, "" if stack is None else stack, str, "the id of a training stack, or a training stack itself")
    name = stack_id(chip, stack, argument, "trainer", CHIP_FIELDS)
    return IDEAL if name == "ideal" else reader.find(Trainer, "trainer", name, argument)
