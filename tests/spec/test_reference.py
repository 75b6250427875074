"""SPEC as text: three forms, nothing evaluated, every slip answered with what was probably meant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amptui.spec.error import SpecError
from amptui.spec.reference import Reference, parse_reference
from amptui.text import safe_text

TRAIN = "from amptui import Project\n\n\ndef build():\n    return Project(model=None)\n\n\ndef helper():\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "my-train.py").write_text(TRAIN)
    (tmp_path / "bound.py").write_text("import amptui\nready = amptui.Project(model=None)\n_hidden = 1\n")
    (tmp_path / "broken.py").write_text("def build(:\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "hollow").mkdir()
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "entry.py").write_text(TRAIN)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "amptui.yaml").write_text("entry: ../train.py:build\n")
    (tmp_path / "run:3").mkdir()
    (tmp_path / "run:3" / "train.py").write_text(TRAIN)
    (tmp_path / "notes.ipynb").write_text("{}")
    os.mkfifo(tmp_path / "pipe.py")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "kind", "target", "attribute"),
    [
        ("train.py:build", "file", "{}/train.py", "build"),
        ("./train.py:build", "file", "{}/train.py", "build"),
        ("pkg/entry.py:build", "file", "{}/pkg/entry.py", "build"),
        ("conf/../train.py:build", "file", "{}/conf/../train.py", "build"),
        ("my-train.py:build", "file", "{}/my-train.py", "build"),
        ("run:3/train.py:build", "file", "{}/run:3/train.py", "build"),
        ("train.py:Holder.build", "file", "{}/train.py", "Holder.build"),
        ("train.py:bücher", "file", "{}/train.py", "bücher"),
        ("train:build", "module", "train", "build"),
        ("pkg.entry:build", "module", "pkg.entry", "build"),
        ("json:loads", "module", "json", "loads"),
        ("nowhere.at.all:build", "module", "nowhere.at.all", "build"),
        ("pkg.entry:a.b.c", "module", "pkg.entry", "a.b.c"),
        ("conf/amptui.yaml", "settings", "{}/conf/amptui.yaml", ""),
    ],
)
def test_a_spec_has_one_of_three_forms(folder: Path, text: str, kind: str, target: str, attribute: str) -> None:
    reference = parse_reference(text, folder=folder)
    assert (reference.kind, reference.target, reference.attribute) == (kind, target.format(folder), attribute)
    assert reference.text == text


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("gan/gan.py:project", "gan"),
        ("gan/train.py:project", "gan/train"),
        ("gan/train.py:small", "gan/train:small"),
        ("gan/../digits/train.py:project", "digits/train"),
        ("/train.py:project", "train"),
        ("package.module:project", "package.module"),
        ("package.module:Holder.build", "package.module:Holder.build"),
    ],
)
def test_a_projects_title_tells_it_from_others(tmp_path: Path, text: str, title: str) -> None:
    for name in ("gan", "digits"):
        (tmp_path / name).mkdir()
        for file in ("gan.py", "train.py"):
            (tmp_path / name / file).write_text(TRAIN)
    made = parse_reference(text, folder=tmp_path) if not text.startswith("/") else None
    reference = made or Reference(kind="file", target="/train.py", attribute="project", text=text)
    assert reference.title == title


def test_an_absolute_path_is_taken_as_it_is_and_a_reference_means_the_same_from_anywhere(folder: Path) -> None:
    reference = parse_reference(f"{folder}/train.py:build", folder="/")
    assert reference.target == f"{folder}/train.py"
    here = parse_reference("train.py:build", folder=folder)
    assert parse_reference(here.absolute, folder="/").target == here.target


def test_a_path_may_begin_at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert parse_reference("~/train.py:build", folder="/").target == f"{folder}/train.py"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        # no form at all
        ("", "form", "empty"),
        ("   ", "form", "empty"),
        (":", "form", "no file or module stands before the ':' of ':'; write the file in it, such as bound.py:ready"),
        (":build", "form", "no file or module stands before the ':' of ':build'; write my-train.py:build"),
        (" :nothing", "form", "write the file in it, such as bound.py:ready"),
        ("train.py", "form", "write train.py:build (train.py defines build, helper)"),
        ("train", "form", "write train:build"),
        ("train.build", "form", "write train:build"),
        ("pkg.entry", "form", "write pkg.entry:build"),
        ("bound.py", "form", "write bound.py:ready"),
        ("broken.py", "form", "has no ':'"),
        ("nowhere.py", "form", "has no ':'"),
        ("pkg", "form", "pkg/entry.py:build"),
        ("pkg/", "form", "pkg/entry.py:build"),
        (".", "form", ". is a folder; write the file in it, such as ./bound.py:ready"),
        (".:build", "form", ". is a folder; write the file in it"),
        ("hollow", "form", "hollow is a folder; write package.module:function"),
        ("pgk/", "form", "'pgk/' has no ':'; did you mean 'pkg'?"),
        ("trian", "form", "has no ':'; did you mean 'train'?"),
        ("nowhere/:build", "file-missing", "there is no folder nowhere; write package.module:function"),
        ("nowhere:", "form", "write nowhere:NAME, NAME being a Project or a function that returns one"),
        ("conf", "form", "write conf/amptui.yaml"),
        ("conf:build", "module", ""),
        # what follows the colon is a name and nothing else
        ("train.py:", "form", "write train.py:build"),
        ("empty.py:", "form", "nothing follows"),
        ("train:", "form", "write train:build"),
        ("train.py:build()", "form", "write train.py:build; "),
        ("train.py:buld()", "form", "write train.py:build; "),
        ("train.py:build(lr=1)", "form", "values for it go under `args`"),
        ("train.py:build ", "form", "write train.py:build; "),
        ("train.py: build", "form", "write train.py:build; "),
        ("train.py:build[0]", "form", "not a name"),
        ("train.py:build.", "form", "not a name"),
        ("train.py:.build", "form", "not a name"),
        ("train.py:a..b", "form", "not a name"),
        ("train.py:1st", "form", "not a name"),
        ("train.py:class", "form", "not a name"),
        ("train.py:lambda: 0", "form", "no .py file|not a name|no module name"),
        ("train.py:a-b", "form", "not a name"),
        ("train.py:a;b", "form", "not a name"),
        ("x:__import__('os').system('id')", "form", "not a name"),
        ("train.py:__import__('os').system('touch /tmp/owned')", "form", "is a folder|no .py file|not a name"),
        ("train.py:build or exit()", "form", "not a name"),
        ("train.py:{build}", "form", "not a name"),
        ("train.py:$(id)", "form", "not a name"),
        ("train.py:`id`", "form", "not a name"),
        # heads
        ("a:b:c", "form", "no module name"),
        ("train:build:x", "form", "no module name"),
        ("C:\\x.py:f", "file-missing", "no file"),
        ("src\\train:f", "form", "write '/' between folders"),
        ("my-train:build", "form", "write my-train.py:build"),
        ("my-trian:build", "form", "write my-train.py:build"),
        ("1train:build", "form", "write train.py:build"),
        ("..train:build", "form", "write train.py:build"),
        ("pkg..entry:build", "form", "no module name"),
        ("import:build", "form", "no module name"),
        ("train -m x:build", "form", "no module name"),
        ("./train:build", "form", "write ./train.py:build"),
        ("./notes.ipynb:build", "form", "no .py file"),
        ("./pkg:build", "form", "is a folder"),
        ("/:build", "form", "is a folder"),
        ("https://example.org/x:build", "form", "no .py file"),
        ("https://example.org/x.py:build", "file-missing", "no folder"),
        # files
        ("trian.py:build", "file-missing", "did you mean 'train.py'?"),
        ("TRAIN.py:build", "file-missing", "did you mean 'train.py'?"),
        ("entry.py:build", "file-missing", "found pkg/entry.py"),
        ("pgk/entry.py:build", "file-missing", "did you mean 'pkg'?"),
        ("../train.py:build", "file-missing", "no file"),
        ("/etc/nowhere/train.py:build", "file-missing", "no folder /etc/nowhere"),
        ("train.py/train.py:build", "file-missing", "no file"),
        ("~nobody/train.py:build", "file-missing", "no file"),
        ("pipe.py:build", "form", "no regular file"),
        ("/dev/null/x.py:build", "file-missing", "no file"),
        (f"{'x' * 300}.py:build", "file-missing", "no file"),
        # settings
        ("amptui.yaml", "file-missing", "no file"),
        ("conf/amptiu.yaml", "file-missing", "did you mean 'amptui.yaml'?"),
        ("conf/amptui.yaml:build", "form", "write conf/amptui.yaml"),
        ("/dev/zero.yaml", "file-missing", "no file"),
        # hostile
        ("a\0b.py:build", "form", "cannot be shown"),
        ("\x1b[2Jtrain.py:build", "form", "cannot be shown"),
        ("train.py:build\x1b]52;c;x\x07", "form", "cannot be shown"),
        ("train.py:build\n", "form", "cannot be shown"),
        ("tr\u202eain.py:build", "form", "cannot be shown"),
        ("tr\u200bain.py:build", "form", "cannot be shown"),
        ("\udcfftrain.py:build", "form", "cannot be shown"),
        ("x" * 10_000, "form", "10,000 characters"),
        ("a." * 1000 + "b:c", "module", ""),
        ("train.py:" + "x" * 3000, "file", ""),
        ("/" * 3000 + "x:y", "form", "no .py file"),
    ],
)
def test_every_other_text_gets_one_sentence_and_what_was_meant(folder: Path, text: str, code: str, said: str) -> None:
    if code in ("module", "file"):  # odd, and yet a form that only loading can refuse
        assert parse_reference(text, folder=folder).kind == code
        return
    with pytest.raises(SpecError) as caught:
        parse_reference(text, folder=folder)
    assert caught.value.code == code
    assert any(part in str(caught.value) for part in said.split("|")), str(caught.value)
    assert safe_text(caught.value, 9999) == str(caught.value)


@pytest.mark.parametrize("text", [":", ":build", ".", "./"])
def test_settings_in_the_folder_that_one_stands_in_are_named(folder: Path, text: str) -> None:
    with pytest.raises(SpecError, match=r"write (\./)?amptui\.yaml$"):
        parse_reference(text, folder=folder / "conf")


def test_a_file_that_may_not_be_read_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    with pytest.raises(SpecError, match=r"train\.py cannot be read: Permission denied"):
        parse_reference("train.py:build", folder=folder)


def test_no_file_is_run_to_find_out_what_it_defines(folder: Path) -> None:
    (folder / "armed.py").write_text(f"open({str(folder / 'owned')!r}, 'w')\ndef build(): pass\n")
    with pytest.raises(SpecError, match=r"write armed\.py:build"):
        parse_reference("armed.py", folder=folder)
    assert not (folder / "owned").exists()


_PIECES = st.sampled_from(
    [
        "train",
        ".py",
        ":",
        "/",
        ".",
        "..",
        "build",
        "pkg",
        "(",
        ")",
        " ",
        "\0",
        "\x1b",
        "é",
        "\\",
        "~",
        ".yaml",
        "-",
        "'",
    ]
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.lists(_PIECES, max_size=8).map("".join))
def test_any_text_is_a_reference_or_a_spec_error(folder: Path, text: str) -> None:
    refused: SpecError | None = None
    try:
        reference = parse_reference(text, folder=folder)
    except SpecError as error:
        refused = error
    if refused is None:
        assert text.endswith(reference.attribute)
        assert parse_reference(reference.absolute, folder="/").target == reference.target
    else:
        assert refused.code in ("form", "file-missing")
        assert safe_text(refused, 9999) == str(refused)


_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in _KEYWORDS)
_KEYWORDS = frozenset(["as", "if", "in", "is", "or", "and", "def", "del", "for", "try", "not", "pass", "from", "with"])
_KEYWORDS |= {"elif", "else", "async", "await", "break", "class", "raise", "while", "yield", "assert", "except"}
_KEYWORDS |= {"global", "import", "lambda", "return", "finally", "continue", "nonlocal"}


@given(module=st.lists(_NAMES, min_size=1, max_size=4), attribute=st.lists(_NAMES, min_size=1, max_size=3))
def test_dotted_names_on_both_sides_come_back_whole(module: list[str], attribute: list[str]) -> None:
    reference = parse_reference(f"{'.'.join(module)}:{'.'.join(attribute)}", folder="/")
    assert (reference.kind, reference.target) == ("module", ".".join(module))
    assert reference.attribute == ".".join(attribute)
