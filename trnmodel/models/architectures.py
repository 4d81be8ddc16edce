"""Every architecture that can be read, by the model_type of its files, with the traits that the files do not say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trnmodel.models.config import Fields
from trnmodel.models.encoders import bert, t5
from trnmodel.models.experts import (
    biased_experts,
    corrected_experts,
    every_layer_experts,
    leading_dense_experts,
    qwen_experts,
)
from trnmodel.models.families import Decoder, Plan, decoder
from trnmodel.models.sparse import deepseek_sparse, glm5_next
from trnmodel.models.special import (
    GPT2,
    deepseek,
    gemma4,
    jamba,
    linear_hybrid,
    llama4,
    mimo_v2,
    multi_query_gpt,
    nemotron_h,
    opt,
)

PLAIN = Decoder()
SPARSE = Decoder(window="all", ffn=every_layer_experts)
BIASED = Decoder(qkv_bias="attention_bias", out_bias="attention_bias")
LLAMA = replace(BIASED, mlp_bias="mlp_bias")
QWEN = Decoder(qkv_bias=True, window="tail", window_if="use_sliding_window")
GEMMA = replace(BIASED, window="pattern")
NEOX = Decoder(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias=True, gated_mlp=False, layer_norm=True)

DECODERS = {
    "llama": LLAMA,
    "granite": LLAMA,
    "minicpm": LLAMA,  # its scalars of the embedding, the residuals and the logits hold no parameters
    "smollm3": LLAMA,
    "seed_oss": replace(LLAMA, out_bias="attention_out_bias"),
    "internlm3": Decoder(qkv_bias="qkv_bias|attention_bias", out_bias="bias|mlp_bias", mlp_bias="bias|mlp_bias"),
    "helium": Decoder(qkv_bias="attention_bias", mlp_bias="mlp_bias"),
    "ernie4_5": Decoder(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
    "mistral": replace(PLAIN, window="all"),
    "ministral3": replace(PLAIN, window="all"),
    "phi3": replace(PLAIN, window="all"),
    "mixtral": SPARSE,
    "phimoe": replace(
        SPARSE, qkv_bias="attention_bias", out_bias="attention_bias", head_bias="lm_head_bias", layer_norm=True
    ),
    "qwen2": QWEN,
    "qwen3": replace(QWEN, qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head"),
    "qwen3_moe": replace(BIASED, qk_norm="head", window="all", window_if="use_sliding_window", ffn=qwen_experts),
    "gpt_oss": replace(GEMMA, sinks=True, ffn=biased_experts),
    "minimax_m2": Decoder(qk_norm="width", ffn=every_layer_experts),
    "glm": Decoder(qkv_bias="attention_bias"),
    "glm4": Decoder(qkv_bias="attention_bias", norms=4),
    "gemma": BIASED,
    "gemma2": replace(GEMMA, norms=4),
    "gemma3_text": replace(GEMMA, norms=4, qk_norm="head"),
    "vaultgemma": GEMMA,
    "hunyuan_v1_dense": replace(BIASED, qk_norm="head"),
    "apertus": replace(BIASED, qk_norm="head", gated_mlp=False, mlp_loose=2),  # the slopes of xIELU
    "olmo2": replace(BIASED, qk_norm="width"),
    "olmo3": replace(GEMMA, qk_norm="width"),
    "exaone4": Decoder(qk_norm="head", window="pattern"),
    "stablelm": Decoder(qkv_bias="use_qkv_bias", layer_norm=True, qk_norm="heads", qk_norm_if="qk_layernorm"),
    "gpt2": GPT2,
    "gpt_neox": NEOX,
    "biogpt": replace(GPT2, positions=2),
    "xglm": replace(GPT2, positions=None),
    "starcoder2": replace(NEOX, qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", window="all"),
    "phi": replace(GPT2, positions=None, head_bias=True, norms=1, qk_norm="layer", qk_norm_if="qk_layernorm"),
    "hy_v3": replace(LLAMA, qk_norm="head", ffn=leading_dense_experts),
    "afmoe": Decoder(norms=4, qk_norm="head", window="pattern", out_gate=True, ffn=corrected_experts),
    **dict.fromkeys(
        ("glm4_moe", "glm4v_moe_text"),
        Decoder(qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm", ffn=leading_dense_experts),
    ),
}


def plain_decoder(f: Fields) -> Plan:
    """Return a decoder that differs from others in its traits alone."""
    return decoder(f, DECODERS[f.model_type])


def sparse_hybrid(f: Fields) -> Plan:
    """Return a hybrid of linear and softmax attention with experts."""
    return linear_hybrid(f, ffn=qwen_experts)


ARCHITECTURES: dict[str, Callable[[Fields], Plan]] = {
    **dict.fromkeys(DECODERS, plain_decoder),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"), deepseek),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), deepseek_sparse),
    "glm5_next_text": glm5_next,
    "mimo_v2_flash": mimo_v2,
    "llama4_text": llama4,
    "qwen3_next": sparse_hybrid,
    "qwen3_5_text": linear_hybrid,
    "qwen3_5_moe_text": sparse_hybrid,
    "gemma4_text": gemma4,
    "jamba": jamba,
    "nemotron_h": nemotron_h,
    "opt": opt,
    "gpt_bigcode": multi_query_gpt,
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert", "electra"), bert),
    "t5": t5,
}
