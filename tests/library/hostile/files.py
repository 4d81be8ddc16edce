"""Hostile files: configurations of models and tables of measurements, in a folder that goes with the process."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

import pandas as pd

import trnmodel as tm
from trnmodel.models.transformer import Transformer

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = ("llama-3.1-8b", "deepseek-v2-lite", "jamba-v0.1", "t5-small")
WORDS = r"""
null true false 0 -1 -0.0 0.5 1e308 1e999 -1e999 Infinity 12 1000000007 "" "x" "1" [] [1] [null] ["x"] [[]] {} {"a":1}
"<img/src=x/onerror=alert(1)>" "\u0000" "\ud800" "../../etc/passwd" ["LlamaForCausalLM"] [0.0,Infinity]
{"rope_type":"yarn","factor":-1}
"""
TOKENS = (
    *map(repr, WORDS.split()),
    "'9'*400",
    "'9'*5000",
    "'[' + '0,'*10**4 + '0]'",
    "'\"' + 'A'*10**5 + '\"'",
)
TEXTS = (
    "''",
    "'null'",
    "'[]'",
    "'{}'",
    "'{'",
    "'\\ufeff{}'",
    "'\\0'",
    "'{\"a\":' * 10**5",
    "'{\"hidden_size\":NaN}'",
    "'{\"hidden_size\":-Infinity}'",
    "'{\"hidden_size\":' + '['*60 + ']'*60 + '}'",
    "'['*10**5",
    '\'{"model_type":"llama","model_type":"llama"}\'',
    "'{\"architectures\":[\"' + 'A'*96_000 + '\"]}'",
    "'{\"architectures\":[\"' + 'ForCausalLM'*9_000 + '\"]}'",
    "'{\"architectures\":[' + '\"LlamaForCausalLM\",'*9_000 + '\"x\"]}'",
    "'{\"' + 'k'*10**5 + '\":NaN}'",
    "' ' * 2**21",
    "b'\\xff\\xfe{'",
    "b'\\x80'",
    "'{}'.encode('utf-16')",
)
TABLES = (
    "''",
    "'\\n'",
    "'instance,workload,metric,value,unit'",
    "'instance,workload,metric,value,unit\\n\\n\\n'",
    "'instance,workload,metric,value,unit\\na'",
    "'instance,workload,metric,value,unit\\na,b,c,d,e,f,g,h'",
    "'instance,workload,metric,value,unit\\n\"a'",
    "'instance,instance,workload,metric,value,unit\\na,b,c,d,e,f'",
    "'instance,workload,metric,value,unit\\n' + 'x'*10**6",
    "'instance,workload,metric,value,unit\\n' + '\\0,'*9",
    "','*10**5",
    "'\\ufeffinstance,workload,metric,value,unit\\na,b,c,1,s'",
    "'instance;workload;metric;value;unit\\na;b;c;1;s'",
    "'x'*10**6",
    "'<html></html>'",
    "b'\\xff\\xfe\\0'",
    "b'PK\\x03\\x04'",
    "'instance,workload\\n'.encode('utf-16')",
)


@cache
def _folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True)


def written(name: str, text: str | bytes) -> Path:
    """A file with a text in a folder that goes with the process."""
    path = Path(_folder().name) / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", errors="surrogatepass"))
    return path


@cache
def keys(name: str) -> dict[str, str]:
    """The keys of a shipped configuration with the text of their values."""
    text = (ROOT / "data" / "models" / f"{name}.json").read_text(encoding="utf-8")
    return {key: json.dumps(value) for key, value in json.loads(text).items()}


class Config:
    """A shipped configuration with some of its values as other texts of JSON."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, **changes: str) -> Transformer:
        pairs = (keys(self.name) | changes).items()
        return tm.model(written("config.json", "{" + ",".join(f'"{key}":{text}' for key, text in pairs) + "}"))


def config_file(text: str | bytes) -> Transformer:
    """The model of a file."""
    return tm.model(written("config.json", text))


def named_file(name: str) -> Transformer:
    """A good configuration under another name."""
    return tm.model(written(name, "{" + ",".join(f'"{k}":{v}' for k, v in keys("llama-3.1-8b").items()) + "}"))


def renamed(name: object) -> Transformer:
    """Read a good configuration under another name of its model."""
    path = written("renamed.json", (ROOT / "data" / "models" / "llama-3.1-8b.json").read_text(encoding="utf-8"))
    return tm.model(path, name=name)  # type: ignore[arg-type]


def table_file(text: str | bytes) -> pd.DataFrame:
    """The measurements of a file, judged."""
    return tm.validate(written("rows.csv", text))
