"""Terms of a training step and of a training run."""

from __future__ import annotations

from trnmodel.explained.trees import Branch, Part, Written, made, single, summed
from trnmodel.search.train_run import TrainRun
from trnmodel.training.step import TrainStep
from trnmodel.units import DAY

HIDDEN = "what of them no work hides"
PARTS = {  # of a training step, each with its name and its formula in words
    "forward_s": ("forward pass", "micro-batches x products and reads of the fullest stage"),
    "backward_s": ("backward pass", "micro-batches x products and reads of both gradients"),
    "recompute_s": ("recomputation", "micro-batches x what is computed again"),
    "tensor_s": ("exchanges of tensor parallelism", HIDDEN),
    "expert_s": ("exchanges of expert parallelism", HIDDEN),
    "context_s": ("exchanges of context parallelism", HIDDEN),
    "pipeline_s": ("exchanges between stages", HIDDEN),
    "data_s": ("exchanges of gradients and weights", HIDDEN),
    "host_s": ("waits for the host", "launches that take longer than the work of the chip"),
    "bubble_s": ("bubble of the pipeline", "(stages - 1) / parts of a stage x time of a micro-batch"),
    "optimizer_s": ("optimizer", "bytes of state, gradients and weights / rate of HBM"),
    "straggler_s": ("stragglers", "work x by how much the slowest rank takes longer"),
    "overhead_s": ("fixed cost of a step", ""),
}


def train_tree(step: TrainStep) -> Branch:
    """Return the time of a training step as the sum of its parts.

    Examples
    --------
    >>> import trnmodel as tm
    >>> ask = {"global_batch": 64, "seq": 2048, "interleave": 3, "count": 8}
    >>> tree = train_tree(tm.train_step("gpt3-175b", "hgx-a100", tm.Mapping(tp=8, pp=8), **ask))
    >>> [part.branch.name for part in tree.parts][:2]
    ['forward pass', 'backward pass']
    """
    parts = [Branch(name, formula, "", single(getattr(step, key)), "s") for key, (name, formula) in PARTS.items()]
    return summed("time of a training step", "s", parts)


def run_tree(run: TrainRun, step: TrainStep) -> Branch:
    """Return the days of a training run whose steps are these as a tree: its steps, and the parts of one.

    Examples
    --------
    >>> import trnmodel as tm
    >>> run = tm.train_run("llama-3.1-8b", "trn2.48xlarge", tokens=1e12, chips=64)
    >>> run_tree(run, run.step).formula
    'steps x time of a training step / 86,400 s'
    """
    part, days = train_tree(step), single(step.run_s(run.tokens)) / DAY
    steps = days * DAY / part.value

    def write(of: Written) -> str:
        many = "steps" if of(part) == part.name else f"{steps:,.0f}"
        return f"{many} x {of(part)} / {DAY:,g} s"

    return made("days of the run", "days", days, [Part(part, days / part.value)], write)
