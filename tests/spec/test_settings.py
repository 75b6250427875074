"""amptui.yaml: its type comes from the schema, and everything that is wrong is said with line, column and mend."""

# ruff: noqa: E501 - one row of a table is one line
from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amptui.spec.error import SpecError
from amptui.spec.run_settings import RunSettings
from amptui.spec.settings import read_settings, settings_for
from amptui.text import safe_text

ENTRY = "entry: train.py:build\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("from amptui import Project\ndef build(): return Project(model=None)\n")
    (tmp_path / "src").mkdir()
    return tmp_path


def read(folder: Path, text: str | bytes) -> RunSettings:
    file = folder / "amptui.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_settings(file)


def refused(folder: Path, text: str | bytes) -> str:
    began = time.monotonic()
    with pytest.raises(SpecError) as caught:
        read(folder, text)
    assert time.monotonic() - began < 30, "hostile files are refused early; this bound only catches a hang"
    assert caught.value.code == "settings"
    assert safe_text(caught.value, 9999) == str(caught.value)
    return str(caught.value)


def test_every_key_is_read(folder: Path) -> None:
    settings = read(
        folder,
        "entry: train.py:build\n"
        "args: {width: 64, lr: 1e-3, names: [a, 'no'], deep: {x: null}}\n"
        "app_dir: src\n"
        f"python: {sys.executable}\n"
        "device: cuda:0\n"
        "iterations: 20\n"
        "session: runs/first\n"
        "policy:\n"
        "  dtype: bf16\n"
        "  autocast: true\n"
        "  scaler: {init_scale: 1024, growth_interval: 100}\n"
        "  fp32_regions: [net.0, decoder.norm]\n"
        "  buffers: rollback\n"
        "criteria:\n"
        "  atol: 1e-3\n"
        "  rtol: .5\n"
        "  outputs:\n"
        "    logits: 1e-2\n"
        "    boxes: {atol: 0.5, rtol: 0}\n"
        "  decision_changes: 1\n"
        "  tie: any\n"
        "  quality_drop: 0.01\n"
        "  applied_share: 1\n"
        "  progress: 0.1\n",
    )
    assert settings.entry is not None
    assert (settings.entry.target, settings.entry.attribute) == (str(folder / "train.py"), "build")
    assert settings.args == {"width": 64, "lr": 0.001, "names": ["a", "no"], "deep": {"x": None}}
    assert (settings.app_dir, settings.python) == (str(folder / "src"), sys.executable)
    assert (settings.device, settings.iterations) == ("cuda:0", 20)
    assert settings.session == str(folder / "runs/first")
    assert settings.policy == {
        "dtype": "bfloat16",
        "autocast": True,
        "scaler": {"init_scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 100},
        "fp32_regions": ("net.0", "decoder.norm"),
        "buffers": "rollback",
    }
    assert settings.criteria == {
        "atol": 0.001,
        "rtol": 0.5,
        "outputs": {"logits": 0.01, "boxes": {"atol": 0.5, "rtol": 0.0}},
        "decision_changes": 1,
        "tie": "any",
        "quality_drop": 0.01,
        "applied_share": 1.0,
        "progress": 0.1,
    }


def test_the_app_folder_is_the_files_own_and_the_rest_is_left_open(folder: Path) -> None:
    settings = read(folder, ENTRY)
    assert settings.app_dir == str(folder)
    assert (settings.args, settings.python, settings.device, settings.policy) == (None, None, None, {})


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("criteria: {rtol: 1e-3}", {"rtol": 0.001}),  # text to PyYAML
        ("criteria: {rtol: '1e-3'}", {"rtol": 0.001}),
        ("criteria: {rtol: 1E-3}", {"rtol": 0.001}),
        ("criteria: {rtol: +1.e+2}", {"rtol": 100.0}),
        ("criteria: {rtol: 0}", {"rtol": 0.0}),
        ("criteria: {rtol: null, atol: ~, progress: }", {"rtol": None, "atol": None, "progress": None}),
        ("policy: {autocast: no}", {"autocast": False}),
        ("policy: {autocast: 'off'}", {"autocast": False}),
        ("policy: {autocast: TRUE}", {"autocast": True}),
        ("policy: {scaler: null}", {"scaler": None}),
        ("policy: {scaler: ~}", {"scaler": None}),
        ("policy: {scaler: auto}", {"scaler": "auto"}),
        ("policy: {fp32_regions: [0, 1.0, no, 1:30, 0777]}", {"fp32_regions": ("0", "1.0", "no", "1:30", "0777")}),
        ("policy: {fp32_regions: []}", {"fp32_regions": ()}),
        ("policy: {dtype: half}", {"dtype": "float16"}),
        ("criteria: {outputs: {'0': 1, \"no\": 2}}", {"outputs": {"0": 1.0, "no": 2.0}}),
        ("args: {a: 10, b: 1.0, c: true, d: text, e: , f: '10', g: -2, h: .5}",
         {"a": 10, "b": 1.0, "c": True, "d": "text", "e": None, "f": "10", "g": -2, "h": 0.5}),
        ("args: {a: False, b: FALSE, c: 'true', d: \"a\\nb\", e: -.inf}",
         {"a": False, "b": False, "c": "true", "d": "a\nb", "e": float("-inf")}),
        ("args: {}", {}),
        ("args: |\n", None),
    ],
)  # fmt: skip
def test_the_type_comes_from_the_schema(folder: Path, line: str, value: dict[str, Any] | None) -> None:
    key = line.partition(":")[0]
    if value is None:
        assert "args is ''; write a map" in refused(folder, ENTRY + line)
    else:
        read_value = getattr(read(folder, ENTRY + line), key)
        assert read_value == value
        assert [type(v) for v in read_value.values()] == [type(v) for v in value.values()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # nothing, or nothing useful
        ("", "amptui.yaml:1:1: the file is empty; write entry: train.py:build"),
        ("# only a comment\n", ":1:1: the file is empty"),
        ("---\n", ":1:1: the file is empty"),
        ("- train.py:build\n", ":1:1: the file holds a list; write entry: train.py:build"),
        ("train.py:build\n", ":1:1: the file holds 'train.py:build'; write entry: train.py:build"),
        ("device: cpu\n", ":1:1: entry is missing; write entry: train.py:build"),
        ("{}", ":1:1: entry is missing"),
        # keys
        (ENTRY + "polcy: {}\n", ":2:1: unknown key 'polcy'; did you mean 'policy'?"),
        (ENTRY + "zzz: 1\n", ":2:1: unknown key 'zzz'; known are entry, args, app_dir"),
        (ENTRY + "fp32_regions: [a]\n", ":2:1: unknown key 'fp32_regions'; write it under policy:"),
        (ENTRY + "outputs: {a: 1}\n", ":2:1: unknown key 'outputs'; write it under criteria:"),
        (ENTRY + "criteria:\n  rtoll: 1\n", ":3:3: unknown key 'criteria.rtoll'; did you mean 'rtol'?"),
        (ENTRY + "policy: {scaler: {init: 1}}\n", ":2:19: unknown key 'policy.scaler.init'; did you mean 'init_scale'?"),
        (ENTRY + "criteria: {outputs: {a: {tol: 1}}}\n", ":2:26: unknown key 'criteria.outputs.a.tol'"),
        (ENTRY + "device: cpu\ndevice: cuda\n", ":3:1: 'device' is written twice; keep one; the first is in line 2"),
        (ENTRY + "args: {a: 1, 'a': 2}\n", ":2:14: 'a' is written twice"),
        (ENTRY + "1: 2\n", ":2:1: the key 1 is no text in YAML"),
        (ENTRY + "yes: 2\n", ":2:1: the key yes is no text in YAML; write \"yes\""),
        (ENTRY + "null: 2\n", ":2:1: the key null is no text"),
        ("? \n: 2\n", "the key (nothing) is no text"),
        (ENTRY + "2024-01-01: 2\n", ":2:1: the key 2024-01-01 is no text"),
        (ENTRY + "criteria: {outputs: {0: 1}}\n", ":2:22: the key 0 is no text in YAML; write \"0\""),
        (ENTRY + "[a]: 2\n", ":2:1: a list is no key"),
        (ENTRY + "? {a: 1}\n: 2\n", ":2:3: a map is no key"),
        (ENTRY + "<<: {device: cpu}\n", ":2:1: the merge key '<<' is not allowed"),
        (ENTRY + "args: {a b: 1}\n", ":2:8: args: 'a b' is no name of an argument"),
        (ENTRY + "args: {a-b: 1}\n", ":2:8: args: 'a-b' is no name"),
        # what YAML has and amptui.yaml has not
        (ENTRY + "args: &a {x: 1}\n", ":2:7: '&a' is an anchor, which is not allowed; remove it"),
        (ENTRY + "args: *a\n", ":2:7: '*a' is an alias, which is not allowed"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n", ":1:4: '&a' is an anchor"),
        (ENTRY + "args: !!python/object/apply:os.system ['touch owned']\n", ":2:7: the tag 'tag:yaml.org,2002:python/object/"),
        (ENTRY + "args: {x: !!python/name:os.system }\n", ":2:11: the tag"),
        (ENTRY + "args: {x: !!binary aGk=}\n", ":2:11: the tag"),
        (ENTRY + "args: {x: !!str 1}\n", ":2:11: the tag"),
        (ENTRY + "args: {x: !mine 1}\n", ":2:11: the tag '!mine' is not allowed"),
        (ENTRY + "args: {x: ! 1}\n", ":2:11: the tag '!' is not allowed"),
        ("!!map {entry: train.py:build}\n", ":1:1: the tag"),
        (ENTRY + "---\n" + ENTRY, ":2:1: a second document begins here"),
        (ENTRY + "...\n---\n", ":3:1: a second document begins here"),
        ("%TAG ! tag:x,2000:\n---\n" + ENTRY + "device: !a cpu\n", ":4:9: the tag"),
        # no YAML
        ("entry:\ttrain.py:build\n\tdevice: cpu\n", ":1:7: this is no YAML: found character '\\t' that cannot start any token; write spaces instead"),
        (ENTRY + "  device: cpu\n", ":2:9: this is no YAML: mapping values are not allowed"),
        (ENTRY + "device: 'cpu\n", ":2:9: this is no YAML: found unexpected end of stream; close the quote"),
        (ENTRY + "args: {a: 1\n", "this is no YAML"),
        (ENTRY + "args: [1, 2\ndevice: cpu\n", "separate values by commas"),
        (ENTRY + "device: cpu: x\n", ":2:12: this is no YAML"),
        (ENTRY + "device: @cpu\n", ":2:9: this is no YAML: found character '@'"),
        (ENTRY + "device: %cpu\n", ":2:9: this is no YAML"),
        (ENTRY + "device\n", "write `key: value`"),
        (ENTRY + 'device: "\\q"\n', "this is no YAML"),
        (ENTRY + 'args: {x: "\\UFFFFFFFF"}\n', "this cannot be read"),
        (ENTRY + 'args: {x: "\\ud800"}\n', ":2:11: the text holds half a character"),
        ("%YAML 3.0\n---\n" + ENTRY, "this is no YAML"),
        # bytes
        (b"\xef\xbb\xbf" + ENTRY.encode(), ":1:1: the file begins with a byte order mark (UTF-8); save it as plain UTF-8"),
        (ENTRY.encode("utf-16"), ":1:1: the file begins with a byte order mark (UTF-16)"),
        (b"\xfe\xff" + ENTRY.encode("utf-16-be"), ":1:1: the file begins with a byte order mark (UTF-16)"),
        (ENTRY.encode("utf-16-le"), ":1:2: the file holds a NUL byte"),
        (ENTRY.encode() + b"device: \xff\n", ":2:9: byte 0xff is not UTF-8"),
        (ENTRY + "device: \x1b[2J\n", ":2:9: the character U+001B is not allowed"),
        (ENTRY + "# \x07\n", ":2:3: the character U+0007 is not allowed"),
        (ENTRY + "x" * (1 << 20), "the file is larger than 1 MiB"),
        # sizes
        (ENTRY + "args: {x: " + "[" * 21 + "]" * 21 + "}\n", "nested more than 20 deep"),
        (ENTRY + "args: {x: " + "[" * 100_000, "nested more than 20 deep"),
        (ENTRY + "args:\n" + "".join(f"{' ' * i}a:\n" for i in range(1, 40)), "nested more than 20 deep"),
        ("- " * 100_000, "nested more than 20 deep"),
        ("? " * 100_000, "nested more than 20 deep"),
        (ENTRY + "args:\n" + "".join(f"  k{i}: 1\n" for i in range(60_000)), "more than 5,000 values"),
        (ENTRY + "args: {x: [" + "1," * 400_000 + "]}\n", "more than 5,000 values"),
        (ENTRY + f"iterations: {'9' * 5000}\n", ":2:13: iterations is '999"),
        (ENTRY + f"args: {{n: {'9' * 5000}}}\n", ":2:11: args.n is '999"),
        (ENTRY + f"device: {'x' * 900_000}1\n", ":2:9: device is 'xxx"),
        (ENTRY + "device: 'x" + "\n\n" * 200_000, "close the quote"),
        # entry
        ("entry:\n", ":1:7: entry is empty; write a text such as train.py:project"),
        ("entry: ''\n", ":1:8: entry is ''; write a text"),
        ("entry: null\n", ":1:8: entry is empty"),
        ("entry: train.py\n", ":1:8: entry: 'train.py' has no ':'; write train.py:build"),
        ("entry: trian.py:build\n", "did you mean 'train.py'?"),
        ("entry: train.py:build()\n", ":1:8: entry: 'build()' is not a name"),
        ("entry: amptui.yaml\n", ":1:8: entry is another settings file"),
        ("entry: [train.py, build]\n", ":1:8: entry is a list; write a text"),
        ("entry: {train.py: build}\n", ":1:8: entry is a map; write a text"),
        ('entry: "\\e[2J"\n', ":1:8: entry is '\\x1b[2J'; write it without control characters"),
        # single values
        (ENTRY + "args: 3\n", ":2:7: args is '3'; write a map such as {width: 64}"),
        (ENTRY + "args: {on: 1}\n", ":2:8: the key on is no text in YAML; write \"on\""),
        (ENTRY + "args: {x: no}\n", ":2:11: args.x is 'no', which YAML readers take differently; write \"no\" if it is a text"),
        (ENTRY + "args: {x: [Yes]}\n", ":2:12: args.x[0] is 'Yes', which"),
        (ENTRY + "args: {x: 1:30}\n", ":2:11: args.x is '1:30', which"),
        (ENTRY + "args: {x: 0777}\n", ":2:11: args.x is '0777', which"),
        (ENTRY + "args: {x: 0x1F}\n", ":2:11: args.x is '0x1F', which"),
        (ENTRY + "args: {x: 1_000}\n", ":2:11: args.x is '1_000', which"),
        (ENTRY + "args: {x: 2024-01-01}\n", ":2:11: args.x is '2024-01-01', which"),
        (ENTRY + "args: {x: =}\n", ":2:11: args.x is '=', which"),
        (ENTRY + "app_dir: nowhere\n", ":2:10: app_dir is 'nowhere', and there is no folder"),
        (ENTRY + "app_dir: train.py\n", ":2:10: app_dir is 'train.py', and there is no folder"),
        (ENTRY + f"app_dir: {'x' * 300}\n", "write a shorter path"),
        (ENTRY + "app_dir: ~\n", ":2:10: app_dir is empty"),
        (ENTRY + "python: nowhere/python\n", ":2:9: python is 'nowhere/python', and there is no"),
        (ENTRY + "python: train.py\n", "is no program; write the path of a Python interpreter"),
        (ENTRY + "python: sh\n", "/sh"),
        (ENTRY + "session: train.py\n", ":2:10: session is 'train.py', and"),
        (ENTRY + "device: GPU 0\n", ":2:9: device is 'GPU 0'; write a device such as cpu, cuda or cuda:0"),
        (ENTRY + "device: cuda:one\n", ":2:9: device is 'cuda:one'"),
        (ENTRY + "device: 0\n", ":2:9: device is '0'"),
        (ENTRY + "iterations: 0\n", ":2:13: iterations is '0'; write a whole number from 1, such as 50"),
        (ENTRY + "iterations: -3\n", ":2:13: iterations is '-3'; write a whole number from 1"),
        (ENTRY + "iterations: 1.5\n", ":2:13: iterations is '1.5'; write a whole number such as 50"),
        (ENTRY + "iterations: yes\n", ":2:13: iterations is 'yes'"),
        (ENTRY + "iterations: 0777\n", ":2:13: iterations is '0777'"),
        (ENTRY + "iterations: ٣\n", ":2:13: iterations is '٣'"),
        # policy
        (ENTRY + "policy: fp16\n", ":2:9: policy is 'fp16'; write a map with dtype, autocast, scaler, fp32_regions, buffers"),
        (ENTRY + "policy: {dtype: fp17}\n", ":2:17: policy.dtype is 'fp17'; write 'float16' or 'bfloat16'"),
        (ENTRY + "policy: {dtype: }\n", ":2:16: policy.dtype is empty; write a text"),
        (ENTRY + "policy: {autocast: maybe}\n", ":2:20: policy.autocast is 'maybe'; write true or false"),
        (ENTRY + "policy: {autocast: 1}\n", ":2:20: policy.autocast is '1'; write true or false"),
        (ENTRY + "policy: {scaler: 1024}\n", ":2:18: policy.scaler is '1024'; write auto, null (no scaler), or a map"),
        (ENTRY + "policy: {scaler: }\n", ":2:17: policy.scaler is empty; write auto, null"),
        (ENTRY + "policy: {scaler: {init_scale: -1}}\n", ":2:31: policy.scaler.init_scale is '-1'; write a finite number above 0"),
        (ENTRY + "policy: {scaler: {init_scale: 1e999}}\n", "write a finite number above 0, such as 65536.0"),
        (ENTRY + "policy: {scaler: {init_scale: .nan}}\n", "is '.nan'; write a finite number above 0"),
        (ENTRY + "policy: {scaler: {growth_factor: 1}}\n", "write a finite number above 1, such as 2.0"),
        (ENTRY + "policy: {scaler: {backoff_factor: 2}}\n", "write a number between 0 and 1, such as 0.5"),
        (ENTRY + "policy: {scaler: {growth_interval: 2.5}}\n", "write a whole number such as 50"),
        (ENTRY + "policy: {scaler: {growth_interval: 0}}\n", "write a whole number from 1, such as 2000"),
        (ENTRY + "policy: {fp32_regions: norm}\n", ":2:24: policy.fp32_regions is 'norm'; write a list such as [decoder.norm]"),
        (ENTRY + "policy: {fp32_regions: [a, [b]]}\n", ":2:28: policy.fp32_regions[1] is a list"),
        (ENTRY + "policy: {buffers: drop}\n", ":2:19: policy.buffers is 'drop'; write 'keep' or 'rollback'"),
        # criteria
        (ENTRY + "criteria: [rtol]\n", ":2:11: criteria is a list; write a map with"),
        (ENTRY + "criteria:\n  rtol: 1e-3x\n", ":3:9: criteria.rtol is '1e-3x'; write a number such as 0.001"),
        (ENTRY + "criteria: {rtol: -1}\n", ":2:18: criteria.rtol is '-1'; write a finite number from 0"),
        (ENTRY + "criteria: {rtol: .inf}\n", ":2:18: criteria.rtol is '.inf'; write a finite number from 0"),
        (ENTRY + "criteria: {rtol: nan}\n", ":2:18: criteria.rtol is 'nan'; write a number such as 0.001"),
        (ENTRY + "criteria: {rtol: 1:30}\n", ":2:18: criteria.rtol is '1:30'; write a number"),
        (ENTRY + "criteria: {rtol: 1_0}\n", ":2:18: criteria.rtol is '1_0'; write a number"),
        (ENTRY + "criteria: {rtol: 0.001%}\n", "criteria.rtol is '0.001%'; write a number"),
        (ENTRY + "criteria: {applied_share: 1.1}\n", "write a share from 0 to 1, such as 0.9"),
        (ENTRY + "criteria: {applied_share: }\n", "criteria.applied_share is empty; write a number"),
        (ENTRY + "criteria: {decision_changes: -1}\n", "write a whole number from 0"),
        (ENTRY + "criteria: {decision_changes: 0.5}\n", "write a whole number such as 50"),
        (ENTRY + "criteria: {tie: maybe}\n", ":2:17: criteria.tie is 'maybe'; write 'same' or 'any'"),
        (ENTRY + "criteria: {outputs: 1}\n", ":2:21: criteria.outputs is '1'; write outputs: {output: {atol: 1}} by the output's name, or atol: 1 for every"),
        (ENTRY + "criteria: {outputs: [a]}\n", "criteria.outputs is a list; write outputs: {output: {atol: 0.05}} by the output's"),
        (ENTRY + "criteria: {output.atol: 0.05}\n", ":2:12: unknown key 'criteria.output.atol'; write outputs: {output: {atol: 0.05}}"),
        (ENTRY + "criteria:\n  outputs.output.atol: 0.1\n", ":3:3: unknown key 'criteria.outputs.output.atol'; write outputs: {output: {atol: 0.1}}"),
        (ENTRY + "criteria: {outputs.a.b.rtol: x}\n", "write outputs: {\"a.b\": {rtol: 0.05}}"),
        (ENTRY + "criteria: {outputs.logits: 0.2}\n", "write outputs: {logits: {atol: 0.2}}"),
        (ENTRY + "criteria: {logits: {rtol: 0.01}}\n", "unknown key 'criteria.logits'; write outputs: {logits: {rtol: 0.01}}"),
        (ENTRY + "criteria: {outputs: {logits.atol: 0.05}}\n", "unknown key 'criteria.outputs.logits.atol'; write outputs: {logits: {atol: 0.05}}"),
        (ENTRY + "criteria: {atol: {logits: 0.05}}\n", "criteria.atol is a map; write a number, or outputs: {output: {atol: 0.05}} for one"),
        (ENTRY + "criteria: {outputs: {a: -1}}\n", ":2:25: criteria.outputs.a is '-1'; write a finite number from 0"),
        (ENTRY + "criteria: {outputs: {a: {rtol: x}}}\n", ":2:32: criteria.outputs.a.rtol is 'x'; write a number"),
        (ENTRY + "criteria: {outputs: {a: }}\n", "criteria.outputs.a is empty; write a number"),
    ],
    ids=lambda value: repr(value[:40]) if isinstance(value, str | bytes) else None,
)  # fmt: skip
def test_whatever_is_wrong_is_said_with_its_place_and_mend(folder: Path, text: str | bytes, said: str) -> None:
    error = refused(folder, text)
    assert error.startswith("amptui.yaml")
    assert said in error
    assert not (folder / "owned").exists()


def test_files_that_are_no_files_do_not_block(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    for path, said in (
        (folder / "pipe.yaml", "no regular file"),
        (folder, "cannot be read"),
        (folder / "x", "No such"),
    ):
        with pytest.raises(SpecError, match=said):
            read_settings(path)
    with pytest.raises(SpecError, match="no regular file"):
        read_settings("/dev/zero")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tail=st.text(alphabet="ab:{}[],-?&*!|>'\"%@`# \n\t~<=.0e1", max_size=80)
    | st.binary(max_size=40).map(lambda data: data.decode("latin-1"))
)
def test_any_text_is_settings_or_a_spec_error(folder: Path, tail: str) -> None:
    refused: SpecError | None = None
    try:
        settings = read(folder, ENTRY + tail)
    except SpecError as error:
        refused = error
    if refused is None:
        assert settings.entry is not None
    else:
        assert refused.code == "settings"
        assert safe_text(refused, 9999) == str(refused)


def test_the_command_line_overrides_the_file_field_by_field(folder: Path) -> None:
    read(
        folder,
        ENTRY + "device: cuda\niterations: 5\npolicy: {dtype: fp16, buffers: rollback}\ncriteria: {rtol: 1, atol: 2}\n",
    )
    options = RunSettings(device="cpu", session="/runs/x", policy={"dtype": "bf16"}, criteria={"atol": 3.0})
    settings = settings_for("amptui.yaml", options, folder=folder)
    assert (settings.device, settings.iterations, settings.session) == ("cpu", 5, "/runs/x")
    assert settings.policy == {"dtype": "bfloat16", "buffers": "rollback"}
    assert settings.criteria == {"rtol": 1.0, "atol": 3.0}


def test_without_a_file_the_working_folder_is_the_app_folder(folder: Path) -> None:
    settings = settings_for("train.py:build", RunSettings(iterations=3), folder=folder)
    assert settings.entry is not None
    assert (settings.entry.attribute, settings.app_dir, settings.iterations) == ("build", str(folder), 3)


def test_paths_in_a_file_elsewhere_begin_at_its_folder(folder: Path) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "amptui.yaml").write_text("entry: ../train.py:build\napp_dir: ../src\n")
    settings = settings_for("conf/amptui.yaml", RunSettings(), folder=folder)
    assert settings.entry is not None
    assert Path(settings.entry.target).samefile(folder / "train.py")
    assert Path(settings.app_dir or "").samefile(folder / "src")


def test_nothing_loads_pyyaml_before_a_file_is_read() -> None:
    script = "import sys; import amptui.spec.settings; print([n for n in sys.modules if n in ('yaml', 'torch')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
