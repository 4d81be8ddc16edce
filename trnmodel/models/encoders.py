"""Encoders of the BERT kind and encoder-decoders of the T5 kind, as `families` has the decoders."""

from __future__ import annotations

from dataclasses import replace

from trnmodel.models.blocks import (
    Attention,
    Layer,
    Part,
    Phase,
    dense_ffn,
    grouped_attention,
    norms,
    token_table,
    vocabulary_head,
)
from trnmodel.models.config import HEADS, HIDDEN, INNER, LAYERS, MAX_HEADS, MAX_LAYERS, MAX_TABLE, POSITIONS, Fields
from trnmodel.models.families import Plan, class_count

POOLED = ("bert", "roberta", "xlm-roberta", "camembert", "albert")  # their bare model ends in a pooler


def _only(phase: Phase, *parts: Part) -> tuple[Part, ...]:
    return tuple(replace(part, phases=(phase,)) for part in parts)


def _vocabulary_head(f: Fields, hidden: int, width: int, vocabulary: int) -> tuple[Part, ...]:
    """Transform, norm and table of masked-language modelling; an untied table brings a bias of its own."""
    biases = 1 if f.flag("tie_word_embeddings") or f.model_type not in POOLED else 2
    return _dense_head("transform", hidden, width), norms(1, width, True), vocabulary_head(width, vocabulary, biases)


def _dense_head(name: str, hidden: int, cols: int) -> Part:
    return Part(name=name, group="head", rows=hidden, cols=cols, extra=cols, store="wide")


LANGUAGE_TASKS = ("", "ForMaskedLM", "ForCausalLM", "LMHeadModel")
CLASS_TASKS = ("ForTokenClassification", "ForQuestionAnswering")  # of every token
TASKS = (*LANGUAGE_TASKS, *CLASS_TASKS, "ForPreTraining", "Model", "ForSequenceClassification")


def _task_head(f: Fields, hidden: int, width: int, vocabulary: int) -> tuple[Part, ...]:
    """Return the head of the class that the file names; masked-language modelling where it names none."""
    if f.task not in TASKS:
        f.refuse("architectures", f"allowed endings are {sorted(filter(None, TASKS))}")
    pooler = _dense_head("pooler", hidden, hidden)
    if f.task in LANGUAGE_TASKS:
        return _vocabulary_head(f, hidden, width, vocabulary)
    if f.task == "ForPreTraining" and f.model_type == "electra":  # a discriminator
        return (pooler, _dense_head("classifier", hidden, 1))
    if f.task == "ForPreTraining":
        return (pooler, *_vocabulary_head(f, hidden, width, vocabulary), _dense_head("classifier", hidden, 2))
    if f.task == "Model":
        return (pooler,) if f.model_type in POOLED else ()
    classifier = _dense_head("classifier", hidden, class_count(f))
    return (classifier,) if f.task in CLASS_TASKS else (pooler, classifier)


def _encoder_layers(f: Fields, hidden: int) -> Layer:
    n, heads = f.integer(LAYERS, MAX_LAYERS), f.integer(HEADS, MAX_HEADS)
    if hidden % heads:
        f.refuse(f.name(HIDDEN), f"must be a multiple of {f.name(HEADS)}={heads}", hidden)
    head_dim = hidden // heads
    attention = Attention(kind="bidirectional", heads=heads, kv_heads=heads, qk_dim=head_dim, v_dim=head_dim)
    mixer = grouped_attention(hidden, attention, qkv_bias=True, out_bias=True)
    ffn = dense_ffn(hidden, f.integer(INNER), gated=False, bias=True)
    groups, inner = f.optional("num_hidden_groups", MAX_LAYERS) or n, f.optional("inner_group_num", MAX_LAYERS) or 1
    return Layer(
        name="bidirectional attention + dense",
        count=n * inner,
        stored=groups * inner,
        parts=_only("prefill", *mixer.parts, *ffn, norms(2, hidden, True)),
        attentions=(attention,),
        phases=("prefill",),
    )


def bert(f: Fields) -> Plan:
    """BERT and its kin: summed embeddings, post-norm layers, a head by class."""
    hidden, vocabulary = f.integer(HIDDEN), f.integer("vocab_size", MAX_TABLE)
    width = f.optional("embedding_size") or hidden
    head = _only("prefill", *_task_head(f, hidden, width, vocabulary))
    tied = f.flag("tie_word_embeddings") and any(part.name == "head" for part in head)
    table = token_table(vocabulary, width)
    outer = [
        replace(table, shared=tied),
        replace(table, name="positions", rows=f.integer(POSITIONS, MAX_TABLE), shard="none"),
        norms(1, width, True),
    ]
    types = f.optional("type_vocab_size", MAX_TABLE, 0)
    if types:
        outer.append(replace(table, name="token_types", rows=types, shard="none"))
    if width != hidden or f.model_type == "albert":
        outer.append(Part(name="project_in", group="ffn", rows=width, cols=hidden, extra=hidden))
    return Plan(
        hidden_size=hidden,
        vocab_size=vocabulary,
        max_context=f.integer(POSITIONS, MAX_TABLE),
        layers=(_encoder_layers(f, hidden),),
        outer=(*_only("prefill", *outer), *head),
    )


def _cross_attention(hidden: int, attention: Attention) -> tuple[Part, ...]:
    """Keys and values of the source are made once, when it is encoded."""
    q, kv, o = (replace(part, name=f"cross_{part.name}") for part in grouped_attention(hidden, attention).parts)
    return (*_only("decode", q, o), *_only("prefill", kv))


def _is_gated(f: Fields) -> bool:
    kind = f.raw("feed_forward_proj")
    if kind is not None and not isinstance(kind, str):
        f.refuse("feed_forward_proj", 'allowed is the name of an activation, with "gated-" where it is gated')
    return str(kind).startswith("gated")


def t5(f: Fields) -> Plan:
    """T5: an encoder over the source, a decoder with cross-attention; relative positions, RMS norms."""
    hidden, vocabulary = f.integer("d_model"), f.integer("vocab_size", MAX_TABLE)
    heads, width = f.integer("num_heads", MAX_HEADS), f.integer("d_kv")
    n = f.integer("num_layers", MAX_LAYERS)
    dims = {"heads": heads, "kv_heads": heads, "qk_dim": width, "v_dim": width}
    kinds = {kind: Attention(kind=kind, **dims) for kind in ("bidirectional", "causal", "cross")}
    ffn = dense_ffn(hidden, f.integer("d_ff"), gated=_is_gated(f))
    encoder = Layer(
        name="bidirectional attention + dense",
        count=n,
        parts=_only("prefill", *grouped_attention(hidden, kinds["bidirectional"]).parts, *ffn, norms(2, hidden)),
        attentions=(kinds["bidirectional"],),
        phases=("prefill",),
    )
    decoder = Layer(
        name="causal attention + cross attention + dense",
        count=f.optional("num_decoder_layers", MAX_LAYERS) or n,
        parts=(
            *_only("decode", *grouped_attention(hidden, kinds["causal"]).parts, *ffn, norms(3, hidden)),
            *_cross_attention(hidden, kinds["cross"]),
        ),
        attentions=(kinds["causal"], kinds["cross"]),
        phases=("decode",),
    )
    bias = f.integer("relative_attention_num_buckets", MAX_TABLE) * heads
    stack = Part(name="norms", group="norm", extra=hidden + bias, store="wide")
    table = token_table(vocabulary, hidden)
    if f.task == "EncoderModel":
        return Plan(hidden_size=hidden, vocab_size=vocabulary, max_context=0, layers=(encoder,), outer=(table, stack))
    table = replace(table, shared=f.flag("tie_word_embeddings"))
    (head,) = _only("decode", vocabulary_head(hidden, vocabulary))
    outer = (table, *_only("prefill", stack), *_only("decode", stack), head)
    return Plan(hidden_size=hidden, vocab_size=vocabulary, max_context=0, layers=(encoder, decoder), outer=outer)
