"""A language model's operators: parameters, FLOP, cache and bytes by phase, for scalars or arrays of tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, lru_cache
from os.path import normpath
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trnmodel.arguments import choice, flag, instance, integer, label, numbers, refuse, shown, together
from trnmodel.catalog import load
from trnmodel.catalog.names import resolve
from trnmodel.catalog.specs import Precision
from trnmodel.catalog.untrusted import printed
from trnmodel.declared import MODEL, Named, declare
from trnmodel.formulas.step import work_flop
from trnmodel.models import operators as op
from trnmodel.models.architectures import ARCHITECTURES
from trnmodel.models.blocks import Attention, Layer, Numeric, Part, Phase
from trnmodel.models.config import read_fields, read_json
from trnmodel.models.operators import ExpertRead, Operator, element_bytes
from trnmodel.models.shipped import MODELS, aliases, catalog, known
from trnmodel.models.terms import Outline, Term, account, alike, outline

LONGEST_ID = 60
BACKWARD_OVER_FORWARD = 2  # gradients of inputs and of weights: two products for one


@dataclass(frozen=True, kw_only=True, eq=False)
class Transformer:
    """A model as its configuration describes it. All FLOP and cache figures are for one sequence.

    FLOP count 2 per multiply-accumulate; lookups, norms, softmax and gates count nothing. Layers that are alike are
    counted, not looped over. Multi-token-prediction layers of a checkpoint are in `prediction` only; of a multimodal
    file the language model alone is read.

    Examples
    --------
    >>> import trnmodel as tm
    >>> llama = tm.model("llama-3.1-8b")
    >>> llama.total_params, llama.kv_bytes_per_token("bf16")
    (8030261248, 131072.0)
    """

    id: str
    architecture: str
    hidden_size: int
    vocab_size: int
    max_context: int
    layers: tuple[Layer, ...]
    outer: tuple[Part, ...]
    prediction: tuple[Layer, ...] = ()
    path: str = ""  # of the configuration, where it is not a shipped one

    def __post_init__(self) -> None:
        label("id", self.id), label("architecture", self.architecture), instance("path", self.path, str, "a text")
        for name, low in (("hidden_size", 1), ("vocab_size", 1), ("max_context", 0)):
            object.__setattr__(self, name, integer(name, getattr(self, name), low))
        for name, kind in (("layers", Layer), ("outer", Part), ("prediction", Layer)):
            object.__setattr__(self, name, tuple(instance(name, getattr(self, name), tuple | list, "a tuple")))
            for part in getattr(self, name):
                instance(name, part, kind, f"a tuple of {kind.__name__}")

    def __repr__(self) -> str:
        return f"Transformer(id={self.id!r}, architecture={self.architecture!r}, total_params={self.total_params})"

    @cached_property
    def n_layers(self) -> int:
        """Layers that run, of all kinds."""
        return sum(layer.count for layer in self.layers)

    @cached_property
    def total_params(self) -> int:
        """All parameters, tied tables once."""
        return sum(layer.params for layer in self.layers) + sum(part.params for part in self.outer)

    @property
    def generates(self) -> bool:
        """Whether the model has a decode step; an encoder has none."""
        return any("decode" in layer.phases for layer in self.layers)

    @property
    def reads_source(self) -> bool:
        """Whether an encoder reads a source that decode steps attend to."""
        return any(a.kind == "cross" for layer in self.layers for a in layer.attentions)

    @cached_property
    def kind(self) -> str:
        """Which rows speak of it: "encoder", "hybrid" (has recurrent layers), "expert" or "dense"."""
        if not self.generates:
            return "encoder"
        if any(layer.recurrence for layer in self.layers):
            return "hybrid"
        return "expert" if any(part.group == "experts" for layer in self.layers for part in layer.parts) else "dense"

    def active_params(self, input_embedding: bool = True) -> int:
        """Parameters that one token uses.

        Parameters
        ----------
        input_embedding : bool
            Whether the token table counts; a tied table stays in both counts, for it is the head too. [-]

        Examples
        --------
        >>> import trnmodel as tm
        >>> tm.model("qwen3-30b-a3b").active_params(input_embedding=False)
        3041867776
        """
        tables = 0 if flag("input_embedding", input_embedding) else self._table_params
        active = sum((layer.stored or layer.count) * sum(p.active_params for p in layer.parts) for layer in self.layers)
        return active + sum(part.active_params for part in self.outer) - tables

    @property
    def _table_params(self) -> int:
        return sum(part.params for part in self.outer if part.name == "embedding")

    def terms(self, precision: str | Precision = "bf16", phase: Phase = "decode") -> tuple[Term, ...]:
        """Return the account of the model's work in a precision and a phase: a term per operator of a kind of layer."""
        return _account(self, load.precision(precision), choice("phase", phase, op.PHASES))[0]

    def summed_terms(self, precision: str | Precision = "bf16", phase: Phase = "decode") -> tuple[Term, ...]:
        """Return the same account with alike terms summed."""
        return _account(self, load.precision(precision), choice("phase", phase, op.PHASES))[1]

    def attentions(self, phase: Phase = "decode") -> list[Attention]:
        """Return the kinds of attention that run in a phase."""
        return [term.attention for term in self.summed_terms(phase=phase) if term.attention]

    def outline(self, phase: Phase = "decode") -> Outline:
        """Return the layers, widths and experts in a phase."""
        return _outline(self, choice("phase", phase, op.PHASES))

    def prefill_flop(
        self, tokens: Numeric, past: Numeric = 0, attention: str = "causal", logits: str = "last"
    ) -> NDArray:
        """Return the work of `tokens` new tokens of one sequence [FLOP].

        Parameters
        ----------
        tokens : numeric
            New tokens of the sequence; the source's tokens for an encoder. [token]
        past : numeric
            Tokens cached before, by earlier chunks or by a shared prefix. [token]
        attention : str
            "causal" (each token sees itself, what came before and no more than its window) or "full" (the whole square,
            windows and mask ignored, as MFU is often defined). Encoders always see all. [-]
        logits : str
            Rows of logits: "last", "all" or "none". [-]

        Notes
        -----
        Chunks add up to the whole, but for logits. Latent attention (MLA) expands the new tokens' latents alone:
        software that expands cached latents again in every chunk does more.

        Examples
        --------
        >>> import trnmodel as tm
        >>> float(tm.model("llama-3.1-8b").prefill_flop(2048))
        29688401494016.0
        """
        tokens, past = numbers("tokens", tokens), numbers("past", past)
        together(tokens=tokens, past=past)
        causal = choice("attention", attention, op.MASKS) == "causal"
        rows = op.logit_rows(tokens, choice("logits", logits, op.LOGITS))
        work = np.zeros(np.broadcast_shapes(tokens.shape, past.shape))
        for term in self.summed_terms(phase="prefill"):
            pairs = term.attention.pairs(tokens, past, causal) if term.attention else 0.0
            work = work + work_flop(term.row_flop, tokens, term.logit_flop, rows) + term.pair_flop * pairs
        return work[()]

    def decode_flop(self, context: Numeric, tokens: Numeric = 1, source: Numeric = 0) -> NDArray:
        """Return the work of one decode step of one sequence, all its logits included [FLOP].

        Parameters
        ----------
        context : numeric
            Tokens at the end of the step, the new ones included. [token]
        tokens : numeric
            New tokens of the step; more than one where a draft is verified. [token]
        source : numeric
            Encoded tokens that an encoder-decoder attends to. [token]

        Notes
        -----
        Latent attention (MLA) is absorbed: queries meet the cached latents directly.

        Examples
        --------
        >>> import trnmodel as tm
        >>> float(tm.model("deepseek-v3").decode_flop(8192))
        212432977920.0
        """
        self._require_decoder()
        tokens, source = numbers("tokens", tokens, 1), numbers("source", source)
        ends = numbers("context", context, 1)
        together(context=ends, tokens=tokens, source=source)
        if not np.all(ends >= tokens):
            refuse("context", context, f"must count the new tokens, tokens={shown(tokens.tolist())}")
        work = np.zeros(np.broadcast_shapes(tokens.shape, ends.shape, source.shape))
        for term in self.summed_terms(phase="decode"):
            a, pairs = term.attention, np.zeros(())
            if a:
                pairs = tokens * source if a.kind == "cross" else a.pairs(tokens, ends - tokens, causal=True)
            work = work + work_flop(term.row_flop, tokens, term.logit_flop, tokens) + term.pair_flop * pairs
        return work[()]

    def train_flop(self, seq: Numeric, attention: str = "full") -> NDArray:
        """Return the work of forward and backward over a sequence of `seq` tokens, all logits [FLOP].

        Attention is "full" as Megatron-LM defines MFU, or "causal"; recomputation is no model work.
        """
        choice("attention", attention, op.MASKS)
        if self.reads_source:
            raise ValueError(f"{self.id}: training work of an encoder-decoder is not defined by one sequence length")
        return (1 + BACKWARD_OVER_FORWARD) * self.prefill_flop(numbers("seq", seq), attention=attention, logits="all")

    def _require_decoder(self) -> None:
        if not self.generates:
            raise ValueError(f"{self.id}: an encoder ({self.architecture}) has no decode step")

    def kv_bytes_per_token(self, dtype: str = "bf16") -> float:
        """Return the cache that one generated token adds over all layers, before any window is full [B]."""
        return sum(t.cached_bytes for t, a in self._cached(dtype) if a.kind != "cross")

    def _cached(self, dtype: str) -> list[tuple[Term, Attention]]:
        """Return the terms that have a cache of a dtype, with their attention."""
        element_bytes(dtype)
        terms = self.summed_terms(replace(load.precision("bf16"), kv=dtype))
        return [(t, t.attention) for t in terms if t.attention]

    def kv_bytes(self, context: Numeric, dtype: str = "bf16", source: Numeric = 0) -> NDArray:
        """Return the cache of one sequence, windows and latents honoured; recurrent states are in `state_bytes` [B].

        Parameters
        ----------
        context : numeric
            Tokens of the sequence. [token]
        dtype : str
            Storage of the cache, of the closed list of dtypes. [-]
        source : numeric
            Encoded tokens that an encoder-decoder attends to. [token]

        Examples
        --------
        >>> import trnmodel as tm
        >>> float(tm.model("gpt-oss-120b").kv_bytes(32768, "bf16"))
        1212678144.0
        """
        context, source = numbers("context", context), numbers("source", source)
        together(context=context, source=source)
        cache = np.zeros(np.broadcast_shapes(context.shape, source.shape))
        for t, a in self._cached(dtype):
            cache = cache + t.cached_bytes * (source if a.kind == "cross" else a.cached_tokens(context))
        return cache[()]

    def state_bytes(self, dtype: str = "fp32", conv_dtype: str = "bf16") -> float:
        """Return the recurrent states and convolution tails of one sequence, whatever its length [B]."""
        kinds = [(layer.count, layer.recurrence) for layer in self.layers if layer.recurrence]
        state = sum(count * recurrence.state_elements for count, recurrence in kinds)
        tail = sum(count * recurrence.conv_elements for count, recurrence in kinds)
        return state * element_bytes(dtype) + tail * element_bytes(conv_dtype, "conv_dtype")

    def weight_bytes(self, precision: str | Precision = "bf16", prediction: bool = False) -> float:
        """Return all weights in storage [B].

        Matrices have the precision's format; head, tables, routers, norms and biases stay as wide as activations.
        `prediction` adds the multi-token-prediction layers that a checkpoint may hold.

        Examples
        --------
        >>> import trnmodel as tm
        >>> tm.model("gpt-oss-120b").weight_bytes("mxfp4-moe")
        65248815744.0
        """
        stored = sum(term.stored_bytes for term in self.summed_terms(precision))
        if flag("prediction", prediction):
            stored += sum(t.stored_bytes for t in account(self.prediction, (), load.precision(precision), "decode"))
        return stored

    def weight_bytes_read(
        self,
        batch: Numeric,
        precision: str | Precision = "bf16",
        expert_read: ExpertRead = "distinct",
        phase: Phase | None = None,
    ) -> NDArray:
        """Return the weights that a step over `batch` tokens reads, with a row of the token table for each of them [B].

        Parameters
        ----------
        batch : numeric
            Tokens of the step: sequences of a decode step, or all tokens of a prefill. [token]
        precision : str or Precision
            Preset or object. [-]
        expert_read : str
            Experts read in a layer of E, k used by a token: "distinct" E(1-(1-k/E)^batch), expected under uniform
            routing; "per_token" k times batch until all are cheaper; "all" E. [-]
        phase : str
            "prefill" or "decode"; they differ for encoders alone. [-]

        Examples
        --------
        >>> import trnmodel as tm
        >>> float(tm.model("llama-3.1-70b").weight_bytes_read(64, "bf16"))
        139007115264.0
        """
        tokens = numbers("batch", batch)
        choice("expert_read", expert_read, op.EXPERT_READS)
        phase = ("decode" if self.generates else "prefill") if phase is None else phase
        read = np.zeros(tokens.shape)
        for term in self.summed_terms(precision, phase):
            read = read + term.weights_read(tokens, expert_read)
        return read[()]

    def operators(
        self,
        phase: Phase,
        *,
        batch: Numeric = 1,
        tokens: Numeric = 1,
        past: Numeric = 0,
        source: Numeric = 0,
        precision: str | Precision = "bf16",
        expert_read: ExpertRead = "distinct",
        attention: str = "causal",
        logits: str = "all",
    ) -> tuple[Operator, ...]:
        """Return every operator of a step, each over its layers, the batch and the new tokens of each sequence.

        A decode step at context c has past = c - tokens. The sums are the figures of `prefill_flop` or `decode_flop`,
        `weight_bytes_read` and `kv_bytes`; activation bytes are inputs and outputs of each matrix, unfused.
        """
        if choice("phase", phase, op.PHASES) == "decode":
            self._require_decoder()
        named = {"batch": batch, "tokens": tokens, "past": past, "source": source}
        sizes = {name: numbers(name, value) for name, value in named.items()}
        together(**sizes)
        step = op.Step(
            **sizes,
            absorbed=phase == "decode",
            causal=choice("attention", attention, op.MASKS) == "causal",
            logits=choice("logits", logits, op.LOGITS),
            expert_read=choice("expert_read", expert_read, op.EXPERT_READS),
        )
        return tuple(op.operator(term, step) for term in self.terms(precision, phase) if term.layers)


@lru_cache(maxsize=512)
def _account(model: Transformer, precision: Precision, phase: Phase) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """Return the terms of a model, and their sums."""
    terms = tuple(account(model.layers, model.outer, precision, phase))
    return terms, alike(terms)


@lru_cache(maxsize=512)
def _outline(model: Transformer, phase: Phase) -> Outline:
    return outline(model.layers, model.hidden_size, model.vocab_size, phase)


def model_ids() -> list[str]:
    """Return the ids of all shipped models.

    Returns
    -------
    ids : list of str
        What `tm.model` takes beside paths and other names, in the order of the catalog.

    Examples
    --------
    >>> "llama-3.1-8b" in model_ids()
    True
    """
    return list(catalog())


@cache
def _shipped(model_id: str) -> Transformer:
    return _read(MODELS / catalog()[model_id].file, model_id)


def _read(path: Path, model_id: str = "") -> Transformer:
    values = read_json(path)
    config = read_fields(values, printed(path))
    plan = ARCHITECTURES[config.model_type](config)
    parts = {one.name: getattr(plan, one.name) for one in fields(plan)}
    name, place = (model_id, "") if model_id else (_own_id(path, values.get("_name_or_path")), str(path))
    return Transformer(id=name, architecture=config.model_type, path=place, **parts)


def _own_id(path: Path, name: object) -> str:
    """Return the id of a model of the user's own: its configuration's name, or that of its file or folder."""
    absolute = Path(normpath(path.absolute()))
    file = absolute.parent.name if absolute.name == "config.json" else absolute.name.removesuffix(".json")
    own = name.replace("\\", "/").rstrip("/").rpartition("/")[2] if isinstance(name, str) else ""
    return plain_id(own) or plain_id(file) or "model"


def plain_id(name: str) -> str:
    """Return a name as an id: nothing in it means anything in HTML or to a shell.

    Examples
    --------
    >>> plain_id("our <b>llama</b> 8B"), plain_id(".."), plain_id("")
    ('our--b-llama--b--8B', '', '')
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:LONGEST_ID] if name.strip(" .-") else ""


def _is_folder(name: str) -> bool:
    try:
        return bool(name.strip()) and Path(name).is_dir()
    except OSError:  # too long for a path, or in a folder that is closed
        return False


@declare(source=MODEL, name=Named("the model, as it is to be called"))
def model(source: str | Path | Transformer, name: str | None = None) -> Transformer:
    """Return a model by id, by any of its names, or from a Hugging Face `config.json`; a `Transformer` stays as it is.

    Parameters
    ----------
    source : str, Path or Transformer
        "llama-3.1-70b", "Qwen/Qwen3-32B", "path/to/config.json" or a folder that holds one. [-]
    name : str, optional
        Name of a model that is read from a file; default its `_name_or_path`, or the name of its file or folder. [-]

    Returns
    -------
    model : Transformer
        Frozen; shipped models are read once.

    Raises
    ------
    ValueError
        Unknown name (with the two nearest), unknown architecture, or a file that is damaged, contradictory or hostile.

    Examples
    --------
    >>> import trnmodel as tm
    >>> tm.model("meta-llama/Llama-3.1-70B").total_params
    70553706496
    """
    if name is not None:
        return _renamed(model(source), name)
    if isinstance(source, Transformer):
        return source
    place = str(instance("model", source, str | Path, "an id, a name or the path of a config.json"))
    if isinstance(source, str) and (shipped := known(source)):
        return _shipped(shipped)
    if isinstance(source, Path) or place.endswith(".json") or place.startswith(PATHS) or _is_folder(place):
        return _read(Path(place))
    return _shipped(resolve("model", place, aliases()))


PATHS = ("/", "./", "../")  # beginnings of what is a path and no name


def _renamed(own: Transformer, name: object) -> Transformer:
    """Return a model of the user's own with another id; a shipped model keeps its own."""
    if not own.path:
        refuse("name", name, f"{own.id} is a shipped model, which keeps its name")
    if not isinstance(name, str) or plain_id(name) != name or not name:
        refuse("name", name, f"allowed are up to {LONGEST_ID} letters, digits, '.', '_' and '-'")
    return replace(own, id=name)
