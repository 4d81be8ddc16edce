"""What a row of a training run asks, a row of its watts, and a row of what a rank stores."""

from __future__ import annotations

from collections.abc import Mapping

from trnmodel.arguments import shown
from trnmodel.evidence.cells import UnreadableRowError
from trnmodel.evidence.meanings_common import MEANING, Question, no_meaning, read_as, whole
from trnmodel.evidence.records import Record, is_known

TRAINING = {
    "step": "train-step",
    "sequence_rate": "train-sequences",
    "train_token_rate": "train-tokens",
    "mfu": "train-mfu",
    "run": "train-run",
    "work_rate": "train-flop-rate-chip",
    "executed_rate": "train-executed-flop-rate-chip",
}
PARTS = "weights, KV cache, scratchpad, collective buffers, rings and code, and their total"
ADAPTERS_SHARE = "0.01"  # of the weights, that is trained where adapters alone are: an assumption (D)


def memory(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of a memory footprint asks: one kind of what a rank stores, or all of it.

    Examples
    --------
    >>> memory({"metric": "HBM total rank 0"}, Record(measure="memory_total", rank="first")).name
    'memory:first'
    """
    part = record.measure.removeprefix("memory_")
    if part in ("", "part"):
        raise UnreadableRowError(
            f"{MEANING}: {shown(row.get('metric', ''))} is none of what the model stores; it stores {PARTS}"
        )
    kind = "first" if record.rank == "first" and part == "total" else part
    experts = {"moe_ep": whole(record.expert_ranks)} if record.expert_ranks > 1 else {}
    return Question(f"memory:{kind}", read_as(record) | experts, "memory footprint")


def training(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of training asks: the figure of a step that it prints.

    The reading takes what the row states of the run from its columns (`trnmodel.evidence.described.run_columns`).

    Examples
    --------
    >>> training({}, Record(measure="sequence_rate", adapters="yes"))[:2]
    ('train-sequences', {'trainable_share': '0.01'})
    """
    if record.measure not in TRAINING:
        raise no_meaning(row, "step time, samples/s, tokens/s, MFU, TFLOP/s per chip, time to train")
    arguments = read_as(record)
    if record.adapters == "yes":
        arguments["trainable_share"] = ADAPTERS_SHARE
    if is_known(record.tensor_ranks):
        arguments["tp"] = whole(record.tensor_ranks)
    return Question(TRAINING[record.measure], arguments, "training")


def energy(row: Mapping[str, str], record: Record) -> Question:
    """Return what a row of watts or joules asks.

    Examples
    --------
    >>> energy({}, Record(measure="watts")).name
    'energy-watts'
    """
    if record.measure != "watts":
        raise no_meaning(row, "power, energy")
    return Question("energy-watts", read_as(record), "energy")
