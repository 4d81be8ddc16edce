"""No time or rate that README, index, tables or captions print beats physics, by arithmetic that is not the package's.

Of a decode step of B sequences on any number of chips, each with bandwidth b and peak p, a chip makes at most

    min(b / (W / B + c L), p / (2 N))   tokens a second,

for N parameters that a token multiplies with, W bytes of them (what one token reads; a batch reads no less), c bytes of
cache a token and L tokens in it. Rates are the largest that `data/facts` prints, so that no ruling of ours enters.
"""

import base64
import csv
import io
import json
import math
import re
from functools import cache

import nbformat
import pandas as pd
import pytest

from trnbook import report

# Billions of parameters in layers (tables of tokens and heads aside), and cached elements of a token.
# Llama-3: layers x (2 h^2 + 2 h kv + 3 h f); DeepSeek-V3: 37 billion active (arXiv 2412.19437, abstract) less two
# tables of 129,280 x 7,168; Kimi-K2: 32 billion (its model card) less two of 163,840 x 7,168; both cache 512 + 64.
L8 = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
L70 = 80 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
BODY = {
    "llama-3.1-8b": (L8, 32 * 2 * 8 * 128),
    **dict.fromkeys(("llama-3.1-70b", "llama-3.3-70b"), (L70, 80 * 2 * 8 * 128)),
    "deepseek-v3": (37e9 - 2 * 129280 * 7168, 61 * (512 + 64)),
    "kimi-k2-instruct": (32e9 - 2 * 163840 * 7168, 61 * (512 + 64)),
}


@cache
def sizes(model):
    """Of `BODY`, else counted in the file that ships: no more than there is, so that the floor stays one."""
    from trnmodel.catalog.load import DATA

    path = DATA / "models" / f"{model}.json"
    if model in BODY or not path.is_file():
        return BODY.get(model)
    it = json.loads(path.read_text())
    return counted(it.get("text_config", it))


def counted(it):
    """Weights that a token meets in projections, feed-forward parts and chosen experts; elements that it caches."""
    h, layers, heads = it["hidden_size"], it["num_hidden_layers"], it["num_attention_heads"]
    key_heads, head = it.get("num_key_value_heads") or heads, it.get("head_dim") or h // heads
    chosen = (it.get("num_experts_per_tok") or 0) + (it.get("n_shared_experts") or 0)
    inner = it.get("moe_intermediate_size") or it["intermediate_size"]
    dense = (it.get("first_k_dense_replace") or 0) if chosen else layers
    wide = 3 * h * (dense * it["intermediate_size"] + (layers - dense) * chosen * inner)
    if latent := it.get("kv_lora_rank"):
        turned, plain, value = (it[name] for name in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
        asks = it.get("q_lora_rank") or 0
        query = asks * h + (asks or h) * heads * (plain + turned)
        return layers * (query + h * (latent + turned) + latent * heads * (plain + value) + heads * value * h) + wide, (
            layers * (latent + turned)
        )
    window = it.get("sliding_window") and it.get("use_sliding_window", True)
    return layers * 2 * h * head * (heads + key_heads) + wide, 0 if window else layers * 2 * key_heads * head


BYTES = {"bf16": 2.0, "fp8": 1.0, "mxfp8": 1.0, "w4a8": 0.5}  # of a weight; scales of blocks come on top
CACHED_BYTES = 1.0  # of an element of the cache, in the smallest format here
KINDS = ("", "public_", "hand_tuned_", "ideal_")


@cache
def rows(name):
    from trnmodel.catalog.load import DATA

    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


@cache
def printed(chip, quantity, dtype=""):
    """The largest figure of a chip that any source prints, of a dense rate in `dtype` where it is named."""
    factors = {row["unit_printed"]: float(row["factor"]) for row in rows("lists/units.csv")}
    found = []
    for name in ("chips", "comparators", "roadmap"):
        for row in rows(f"facts/{name}.csv"):
            kinds = row["qualifier"].split("|")
            fits = row["entity"] == chip and row["quantity"] == quantity and "sparse" not in row["qualifier"]
            if fits and (not dtype or dtype in kinds) and re.fullmatch(r"[\d.,]+", row["value_printed"]):
                found.append(float(row["value_printed"].replace(",", "")) * factors[row["unit_printed"]])
    assert found or dtype, f"{chip}: nobody prints {quantity}"
    return max(found, default=math.nan)


def chip_of(system):
    return next(row["chip"] for row in rows("systems/systems.csv") if row["id"] == system)


def to_come(chip):
    """Whether a chip has announced ratios alone, mostly "at least" so many, from which no floor follows."""
    return chip in {row["entity"] for row in rows("facts/roadmap.csv") if row["quantity"] == "ratio_to_base"}


def most(model, system, batch=math.inf, tokens=0.0, precision=""):
    """Tokens a second of a chip beyond which no step can go."""
    body, cached = sizes(model)
    chip = chip_of(system)
    peak = printed(chip, "peak_flop_per_s", "bf16" if precision == "bf16" else "")
    moved = body * BYTES.get(precision, min(BYTES.values())) / batch + cached * CACHED_BYTES * tokens
    return min(peak / (2 * body), printed(chip, "hbm_bytes_per_s") / moved if moved else math.inf)


def tokens_per_step(model):
    """The most tokens that a documented step of a model yields, as its source prints them; 1 where none drafts."""
    facts = rows("facts/options.csv")
    covers = {row["entity"] for row in facts if row["quantity"] == "covers" and model in row["value_printed"].split()}
    yields = [row for row in facts if row["entity"] in covers and row["quantity"] == "tokens_per_step"]
    return max((float(row["value_printed"]) for row in yields), default=1.0)


def tables(path):
    """Caption, file name and rows of every table of a notebook, in base units and with ids."""
    for cell in nbformat.read(path, 4).cells:
        for output in cell.get("outputs", ()):
            html = "".join(output.get("data", {}).get("text/html", ""))
            if found := re.search(r'download="([^"]+)" href="data:text/csv;base64,([^"]+)"', html):
                text = re.sub(r"<[^>]+>", " ", html.partition("<thead>")[0])
                yield text, found[1], pd.read_csv(io.BytesIO(base64.b64decode(found[2])))


def models_of(slug, *texts):
    """Models that texts name; else those of the notebook's parameters."""
    named = [name for name in BODY if any(name in text for text in texts)]
    given = report.parameters(slug)
    return named or [str(it.default) for name, it in given.items() if name.endswith("model")]


def lightest(slug, name, *texts):
    """The model of a table that names none in a column; a file that is called after experts is about those."""
    found = [model for model in models_of(slug, *texts) if sizes(model)]
    experts = [model for model in found if model in ("deepseek-v3", "kimi-k2-instruct")]
    return min(experts if "experts" in name and experts else found, key=lambda model: sizes(model)[0], default="")


def too_fast(slug, caption, name, frame):
    """Rows of a table that beat the floor, and how many were looked at."""
    rates = [f"{kind}tokens_per_s_per_chip" for kind in KINDS if f"{kind}tokens_per_s_per_chip" in frame]
    if "system" not in frame or not rates:
        return [], 0
    asked = {name: it.default for name, it in report.parameters(slug).items()}
    tokens, seen, bad = float(asked.get("input_tokens", asked.get("context", 0))), 0, []
    for row in frame.to_dict("records"):
        model = row.get("model") or lightest(slug, name, caption)
        for rate in rates:
            if not isinstance(row["system"], str) or not row[rate] > 0 or to_come(chip_of(row["system"])):
                continue
            own = rate == "tokens_per_s_per_chip" and "batch" in row  # other software has another batch in a row
            shape = {"batch": float(row["batch"]), "tokens": tokens} if own else {}
            seen += 1
            software = f"{row.get('option', '')} {row.get('mapping', '')}"
            drafts = re.search("speculation|EAGLE|MTP|draft", software)  # whose steps yield more of each sequence
            drafted = tokens_per_step(model) if drafts else 1.0
            if row[rate] > drafted * most(model, row["system"], precision=row.get("precision", ""), **shape):
                bad.append(f"{slug}/{name}: {model} on {row['system']}: {rate} = {row[rate]:g}")
    return bad, seen


def test_no_table_prints_a_rate_beyond_its_chip(root):
    bad, seen = [], {}
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for caption, name, frame in tables(path):
            found, rows_seen = too_fast(path.stem, caption, name, frame)
            bad += found
            seen[path.stem] = seen.get(path.stem, 0) + rows_seen
    assert not bad
    assert sum(seen.values()) > 200
    assert seen["index"] > 5


def test_no_first_token_of_the_index_comes_before_its_prompt_is_read(root):
    """2 N L FLOP of the prompt on all chips of the replica at the printed peak."""
    (frame,) = [frame for _, name, frame in tables(root / "notebooks" / "index.ipynb") if name == "answers.csv"]
    length = report.parameters("index")["input_tokens"].default
    for row in frame.dropna(subset=["ttft_s"]).to_dict("records"):
        peak = printed(chip_of(row["system"]), "peak_flop_per_s")
        assert row["ttft_s"] > 2 * BODY[row["model"]][0] * length / (row["chips"] * peak), row["model"]


@pytest.mark.parametrize(
    ("model", "billion", "cached"),
    [
        ("llama-3.1-405b", 401.6, 126 * 2 * 8 * 128),  # 126 (2 h^2 + 2 h 1024 + 3 h 53248), h = 16384
        ("qwen3-32b", 31.2, 64 * 2 * 8 * 128),  # its card: 31.2 without embedding
        (
            "mixtral-8x7b-v0.1",
            12.6,
            32 * 2 * 8 * 128,
        ),  # 12.9 active (arXiv 2401.04088) less two tables of 32,000 x 4,096
        ("deepseek-r1", 35.1, 61 * 576),  # as DeepSeek-V3
    ],
)
def test_a_model_that_is_not_listed_is_counted_in_its_file(model, billion, cached):
    assert model not in BODY
    assert sizes(model) == (pytest.approx(1e9 * billion, rel=0.02), cached)


def test_what_is_counted_is_what_is_listed():
    from trnmodel.catalog.load import DATA

    for model, (body, cached) in BODY.items():
        found = counted(json.loads((DATA / "models" / f"{model}.json").read_text()))
        assert found == (pytest.approx(body, rel=0.03 if "llama" not in model else 1e-12), cached), model


RATE = re.compile(r"(\d[\d,.]*) tokens/s (?:a|per(?: paid)?) chip")


def too_fast_words(text, slug="index"):
    """Rates a chip in sentences that exceed the fastest chip's for the lightest model which the page names."""
    chips = {row["chip"] for row in rows("systems/systems.csv") if not to_come(row["chip"])}
    fastest = max(printed(chip, "peak_flop_per_s") for chip in chips)
    bodies = [sizes(model)[0] for model in models_of(slug, text) if sizes(model)]
    return [
        rate
        for rate in RATE.findall(text)
        if float(rate.strip(",.").replace(",", "")) > fastest / 2 / min(bodies, default=L8)
    ]


def test_no_sentence_or_caption_prints_a_rate_beyond_every_chip(root):
    texts = {path.stem: path.read_text() for path in (root / "notebooks" / "digest").glob("*.txt")}
    found = {slug: too_fast_words(text, slug) for slug, text in texts.items() if RATE.search(text)}
    assert len(found) >= 3
    assert not any(found.values())
    assert not RATE.search((root / "README.md").read_text()), "README has rates: hold them above the floor too"


def test_what_is_too_fast_is_found():
    """70B at one byte a weight and batch 1 on one chip of 4.9 TB/s: 72 tokens a second, whatever the software."""
    assert most("llama-3.3-70b", "trn3-nl72x2-pcie160", batch=1, precision="fp8") == pytest.approx(4.9e12 / L70)
    row = {"model": "llama-3.3-70b", "system": "trn3-nl72x2-pcie160", "batch": 1, "precision": "fp8"}
    for rate, n in ((60.0, 0), (73.0, 1)):
        frame = pd.DataFrame([row | {"tokens_per_s_per_chip": rate}])
        assert len(too_fast("index", "", "t", frame)[0]) == n
    assert too_fast_words("llama-3.3-70b makes 400,000 tokens/s a chip") == ["400,000"]
    assert too_fast_words("llama-3.3-70b makes 980 tokens/s a chip") == []
