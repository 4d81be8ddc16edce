"""A stack file that somebody edited is checked like any data: one line names the file, the line and the key."""

import re

import pandas as pd
import pytest

import trnmodel as tm
from trnmodel.catalog import posterior

CELLS = {"instance": "trn2.48xlarge", "workload": "Llama-3.1-8B", "tp": 8, "seq_len": 4096, "unit": "ms"}
ASK = {"model": "llama-3.1-8b", "system": "trn2.48xlarge", "mapping": tm.Mapping(tp=8), "batch": 8, "context": 4096}


@pytest.fixture(scope="module")
def text():
    rows = [CELLS | {"batch": batch, "metric": "TPOT", "value": ms} for batch, ms in ((1, 9.5), (16, 14.2), (64, 27))]
    return tm.calibrate(pd.DataFrame(rows)).to_yaml()


def asked(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tm.decode_step(**ASK, efficiencies=str(path))


def test_a_file_says_what_the_stack_is(text, tmp_path):
    path = tmp_path / "cluster.yaml"
    step = asked(path, text)
    assert step.stack.id == "vllm-neuron-2026"
    assert step.basis == "calibrated on 3 rows of yours"
    stated = posterior.read(path)
    assert posterior.written(stated.stack, stated.constants, stated.posterior) == text


def test_an_edited_value_counts(text, tmp_path):
    before = asked(tmp_path / "a.yaml", text)
    value = re.search(r"decode_level: \{value: ([\d.]+), low: ([\d.]+), high: ([\d.]+)", text)
    edited = text.replace(value[0], "decode_level: {value: 2.0, low: 1.5, high: 2.5")
    after = asked(tmp_path / "a.yaml", edited)
    assert float(after.time_s) == pytest.approx(float(before.time_s) * 2 / float(value[1]), rel=1e-6)


def swap(before, after):
    def change(text):
        changed = re.sub(before, after, text, count=1, flags=re.DOTALL)
        assert changed != text
        return changed

    return change


WRONG = {
    "negative": (
        swap(r"decode_level: \{value: [^,]+", "decode_level: {value: -1.0"),
        "constants.decode_level.value=-1",
    ),
    "nan": (swap(r"decode_level: \{value: [^,]+", "decode_level: {value: .nan"), "constants.decode_level.value=nan"),
    "infinite": (
        swap(r"decode_level: \{value: [^,]+", "decode_level: {value: .inf"),
        "constants.decode_level.value=inf",
    ),
    "huge": (swap(r"decode_level: \{value: [^,]+", "decode_level: {value: 1.0e+300"), "constants.decode_level.value"),
    "text": (
        swap(r"decode_level: \{value: [^,]+", "decode_level: {value: fast"),
        "constants.decode_level.value='fast'",
    ),
    "true": (swap(r"decode_level: \{value: [^,]+", "decode_level: {value: true"), "constants.decode_level.value=True"),
    "out of its range": (swap(r"decode_level: \{value: [^,]+", "decode_level: {value: 9.0"), "constants.decode_level="),
    "a share above one": (
        swap(
            r"weight_stream_share: \{value: [^,]+, low: ([^,]+), high: [^,]+",
            r"weight_stream_share: {value: 1.5, low: \1, high: 2.0",
        ),
        "weight_stream_share",
    ),
    "unknown constant": (
        swap("kv_stream_share", "kv_stream_shore"),
        "constants.kv_stream_shore: .*nearest: kv_stream_share",
    ),
    "unknown key": (swap("chips:", "chip:"), "chip: there is no such key; nearest: chips"),
    "missing key": (swap(r"noise: [^\n]+\n", ""), "noise is missing"),
    "missing part of a constant": (swap("origin: [^}]+", ""), "origin is missing|not plain YAML"),
    "unknown release": (
        swap("stack: vllm-neuron-2026", "stack: vllm-neuron-2062"),
        "there is no such release; nearest: vllm-neuron-2026",
    ),
    "ideal": (swap("stack: vllm-neuron-2026", "stack: ideal"), "there is no such release"),
    "rows": (swap("rows: 3", "rows: 0"), "rows=0"),
    "part of a row": (swap("rows: 3", "rows: 2.5"), "rows=2.5"),
    "noise": (swap("noise: {decode: [^,]+", "noise: {decode: -0.1"), "noise.decode=-0.1"),
    "correlation beyond one": (swap(r"  - \[1\.0000, [^,]+", "  - [1.0000, 2.0"), "correlation=2"),
    "one-sided correlation": (swap(r"  - \[1\.0000, [^,]+", "  - [1.0000, 0.9"), "correlation="),
    "short correlation": (swap(r"correlation:([^\n]+)\n  - [^\n]+\n", r"correlation:\1\n"), "correlation="),
    "a list": (lambda text: "- 1\n- 2\n", "allowed is a mapping"),
    "nothing": (lambda text: "", "allowed is a mapping"),
    "half a file": (lambda text: text[: len(text) // 3], "not plain YAML|missing"),
    "an object": (lambda text: text.replace("rows: 3", "rows: !!python/object/apply:os.getcwd []"), "not plain YAML"),
    "bytes": (lambda text: b"\xff\xfe\x00", "not UTF-8"),
    "an alias": (lambda text: text.replace("rows: 3", "rows: &a 3\nscale2: *a"), "not plain YAML|no such key"),
    "large": (lambda text: text + "#" * posterior.MAX_FILE_BYTES, "allowed are up to"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_none_is_refused_on_one_line(name, text, tmp_path):
    change, message = WRONG[name]
    path = tmp_path / "cluster.yaml"
    with pytest.raises(ValueError, match=message) as refused:
        asked(path, change(text))
    assert "cluster.yaml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"^efficiencies=.*none\.yaml: no such file"):
        tm.decode_step(**ASK, efficiencies=str(tmp_path / "none.yaml"))
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ValueError, match=r"folder\.yaml: no regular file"):
        tm.decode_step(**ASK, efficiencies=str(tmp_path / "folder.yaml"))
    with pytest.raises(ValueError, match=r"^efficiencies="):
        tm.decode_step(**ASK, efficiencies="\0.yaml")


def test_a_stack_is_saved_under_a_name_that_calls_know(text, tmp_path):
    rows = pd.DataFrame([CELLS | {"batch": 1, "metric": "TPOT", "value": 9.5}])
    with pytest.raises(ValueError, match=r"^path=.*\.yaml or \.yml"):
        tm.calibrate(rows).save(tmp_path / "cluster.txt")
