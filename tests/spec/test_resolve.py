"""Loading what SPEC names: every way it can fail is told apart, in one sentence, at the user's own line."""

# ruff: noqa: E501 - one row of a table is one line
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amptui.spec.error import SpecError
from amptui.spec.reference import Reference, parse_reference
from amptui.spec.resolve import LoadedProject, load_project

Load = Callable[..., LoadedProject]
Refused = Callable[..., SpecError]

GOOD = "from amptui import Project\n\ndef build():\n    return Project(model=object(), name=__name__)\n"
IMPORT = "from amptui import Project\n"


# What loads


@pytest.mark.parametrize(
    ("spec", "files", "name"),
    [
        ("train.py:build", {"train.py": GOOD}, "train"),
        ("train:build", {"train.py": GOOD}, "train"),
        ("my-train.py:build", {"my-train.py": GOOD}, "my-train"),
        ("scripts/train.py:build", {"scripts/train.py": GOOD}, "train"),
        ("pkg/sub/train.py:build", {"pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/train.py": GOOD}, "pkg.sub.train"),
        ("pkg.sub.train:build", {"pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/train.py": GOOD}, "pkg.sub.train"),
        ("pkg/__init__.py:build", {"pkg/__init__.py": GOOD}, "pkg"),
        ("namespace.train:build", {"namespace/train.py": GOOD}, "namespace.train"),
        ("train.py:build", {"train.py": IMPORT + "class build(Project):\n    def __init__(self): super().__init__(model=1, name='own')\n"}, "own"),
        ("train.py:ready", {"train.py": IMPORT + "ready = Project(model=object(), name='bound')\n"}, "bound"),
        ("train.py:Holder.make", {"train.py": GOOD + "class Holder:\n    make = staticmethod(build)\n"}, "train"),
        ("train.py:Holder.make", {"train.py": GOOD + "class Holder:\n    @classmethod\n    def make(cls): return build()\n"}, "train"),
        ("train.py:tuned", {"train.py": GOOD + "import functools\ntuned = functools.partial(build)\n"}, "train"),
        ("train.py:maker", {"train.py": GOOD + "class Maker:\n    def __call__(self): return build()\nmaker = Maker()\n"}, "train"),
        ("train.py:build", {"train.py": "import helpers\nbuild = helpers.build\n", "helpers.py": GOOD}, "helpers"),
        ("pkg/train.py:build", {"pkg/__init__.py": "", "pkg/train.py": "from .parts import build\n", "pkg/parts.py": GOOD}, "pkg.parts"),
        ("train.py:f07", {"train.py": GOOD + "def __getattr__(name):\n    if name != 'f07': raise AttributeError(name)\n    return build\n"}, "train"),
    ],
)  # fmt: skip
def test_files_modules_functions_classes_and_projects_load(
    load: Load, spec: str, files: dict[str, str], name: str
) -> None:
    assert load(spec, files).project.name == name


def test_a_function_gets_the_arguments_by_name(load: Load) -> None:
    source = IMPORT + "def build(width, *, name='x', **more):\n    return Project(model=width, name=f'{name}{more}')\n"
    project = load("train.py:build", {"train.py": source}, width=3, name="n", depth=2).project
    assert (project.model, project.name) == (3, "n{'depth': 2}")


def test_a_function_made_on_the_fly_for_any_name_is_called_as_any_other(load: Load) -> None:
    source = (
        IMPORT + "import inspect\n"
        "def __getattr__(name):\n"
        "    if name.startswith('__'):\n"
        "        raise AttributeError(name)\n"
        "    def factory():\n"
        "        return Project(model=object(), name=name)\n"
        "    factory.__name__ = name\n"
        "    factory.__signature__ = inspect.Signature()\n"
        "    return factory\n"
    )
    loaded = load("cases.py:s14", {"cases.py": source})
    assert loaded.project.name == "s14"
    assert loaded.defined_at.number == 6


@pytest.mark.parametrize(("attribute", "line"), [("build", 3), ("wrapped", 9), ("ready", 15), ("tuned", 3)], ids=str)
def test_the_line_of_the_factory_is_told(load: Load, folder: Path, attribute: str, line: int) -> None:
    source = (
        GOOD + "\nimport functools\n\n\n@functools.cache\ndef wrapped():\n    return build()\n\n\n\n"
        "ready = build()\ntuned = functools.partial(build)\n"
    )
    defined_at = load(f"train.py:{attribute}", {"train.py": source}).defined_at
    assert str(defined_at) == f"{folder}/train.py:{line}"


def test_source_files_are_the_users_own_whichever_way_they_were_loaded(load: Load, folder: Path) -> None:
    hidden = "class Net:\n    def forward(self, x): return x\n    def modules(self): return [self]\n"
    source = (
        IMPORT + "import json, collections, helpers, importlib.util\n"
        "from pathlib import Path\n"
        "spec = importlib.util.spec_from_file_location('hidden', Path(__file__).parent / 'hidden.py')\n"
        "hidden = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(hidden)\n"
        "def build(): return Project(model={'g': hidden.Net()}, decide=helpers.decide)\n"
    )
    files = {"train.py": source, "helpers.py": "def decide(x): return x\n", "hidden.py": hidden, "unused.py": ""}
    loaded = load("train.py:build", files)
    assert loaded.sources == (f"{folder}/helpers.py", f"{folder}/hidden.py", f"{folder}/train.py")


def test_the_app_folder_comes_first_and_the_folder_of_the_file_before_it(load: Load, folder: Path) -> None:
    load("scripts/train.py:build", {"scripts/train.py": GOOD})
    assert sys.path[:2] == [f"{folder}/scripts", str(folder)]
    load("other:build", {"other.py": GOOD})
    assert sys.path[0] == str(folder)
    assert sys.path.count(str(folder)) == 1


def test_a_module_is_looked_for_in_the_app_folder(load: Load) -> None:
    assert load("entry:build", {"src/entry.py": GOOD}, app_dir="src").project.name == "entry"


def test_code_that_reads_the_command_line_finds_only_its_own_file(load: Load, folder: Path) -> None:
    argv = list(sys.argv)
    source = (
        IMPORT + "import argparse, sys\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float, default=0.1)\n"
        "lr = parser.parse_args().lr\nseen = list(sys.argv)\n"
        "def build(): return Project(model=lr, name=str([seen, sys.argv]))\n"
    )
    project = load("train.py:build", {"train.py": source}).project
    assert project.model == 0.1
    assert project.name == str([[f"{folder}/train.py"]] * 2)
    assert sys.argv == argv


def test_a_guarded_script_part_does_not_run(load: Load) -> None:
    assert load("train.py:build", {"train.py": GOOD + "if __name__ == '__main__':\n    raise SystemExit(1)\n"})


def test_settings_files_are_read_by_the_client_only(folder: Path) -> None:
    reference = Reference(kind="settings", target=str(folder / "amptui.yaml"), attribute="", text="amptui.yaml")
    with pytest.raises(ValueError, match="read by the client"):
        load_project(reference, {}, folder=folder)


# What does not load: one row per way to fail. {p} is the app folder, {python} the interpreter.

NEEDS = "def build(cfg): ...\n"

FAILURES = [
    # the module that SPEC names
    ("entry:build", {"pkg/entry.py": GOOD}, "module-missing", None, "no module named 'entry'",
     "looked in {p} and on the path of {python}; found pkg/entry.py: write pkg/entry.py:build"),
    ("trian:build", {"train.py": GOOD}, "module-missing", None, "no module named 'trian'", "did you mean 'train'?"),
    ("zzz:build", {"train.py": GOOD}, "module-missing", None, "no module named 'zzz'", "looked in {p}"),
    ("pkg.entyr:build", {"pkg/__init__.py": "", "pkg/entry.py": GOOD}, "module-missing", None,
     "the package 'pkg' has no module 'entyr'", "did you mean 'entry'?"),
    ("train.build:x", {"train.py": GOOD}, "module-missing", None, "'train' is a single file", "write train:build"),
    # what the user's code imports
    ("train.py:build", {"train.py": "x = 1\nimport nosuchdep\n"}, "dependency-missing", "train.py:2",
     "your code needs the module 'nosuchdep', which is not installed in {python}", "--python"),
    ("train.py:build", {"train.py": "import helpers\n", "helpers.py": "\n\nimport nosuchdep.deep\n"},
     "dependency-missing", "helpers.py:3", "'nosuchdep'", "install it there"),
    ("train.py:build", {"train.py": IMPORT + "def build():\n    import nosuchdep\n"}, "dependency-missing",
     "train.py:3", "'nosuchdep'", "install it there"),
    ("train:build", {"train.py": "import train.more\n"}, "own-module-missing", "train.py:1", "no module 'train.more'",
     "'train' is a single file"),
    ("pkg.rel:build", {"pkg/__init__.py": "", "pkg/rel.py": "from .gone import x\n"}, "own-module-missing",
     "pkg/rel.py:1", "your code has no module 'pkg.gone'", ""),
    ("pkg.rel:build", {"pkg/__init__.py": "", "pkg/rel.py": "import pkg.helprs\n", "pkg/helpers.py": ""},
     "own-module-missing", "pkg/rel.py:1", "'pkg.helprs'", "did you mean 'helpers'?"),
    ("pkg/__init__.py:build", {"pkg/__init__.py": "from pkg.gone import x\n"}, "own-module-missing",
     "pkg/__init__.py:1", "'pkg.gone'", ""),
    ("pkg/train.py:build", {"pkg/__init__.py": "", "pkg/train.py": "import layers\n", "pkg/layers.py": ""},
     "dependency-missing", "pkg/train.py:1", "'layers'", "write app_dir: {p}/pkg in amptui.yaml"),
    ("train.py:build", {"train.py": "from layers import Net\n", "src/layers/__init__.py": ""}, "dependency-missing",
     "train.py:1", "'layers'", "found {p}/src/layers: run amptui from {p}/src, or write app_dir: {p}/src"),
    ("train.py:build", {"train.py": "import json.nosuch\n"}, "dependency-missing", "train.py:1", "'json.nosuch'",
     "install the 'json' that your code is written for"),
    # syntax
    ("train.py:build", {"train.py": "x = 1\ndef build(:\n"}, "syntax", "train.py:2", "def build(:", "correct it"),
    ("train.py:build", {"train.py": "import bad\n", "bad.py": "\n\n  x = 1\n"}, "syntax", "bad.py:3",
     "unexpected indent", "correct it"),
    ("train.py:build", {"train.py": "x = 1\nexec('1 +')\n"}, "syntax", "train.py:2", "1 +", "correct it"),
    # code that ran
    ("train.py:build", {"train.py": "x = 1\nx / 0\n"}, "raises", "train.py:2",
     "your module raised ZeroDivisionError: division by zero while being imported",
     "cd {p} && {python} -c 'import train'"),
    ("train.py:build", {"train.py": "import helpers\n", "helpers.py": "def f():\n    return {}['k']\nf()\n"}, "raises",
     "helpers.py:2", "KeyError: 'k'", "traceback"),
    ("train.py:build", {"train.py": "import json\njson.loads('{')\n"}, "raises", "train.py:2", "JSONDecodeError", ""),
    ("train.py:build", {"train.py": IMPORT + "def build():\n    raise RuntimeError('no\\n  data')\n"}, "raises",
     "train.py:3", "build() raised RuntimeError: no data", "import train; train.build()"),
    ("train.py:build", {"train.py": "raise BaseException('x')\n"}, "raises", "train.py:1", "BaseException: x", ""),
    ("train.py:build", {"train.py": "class E(Exception):\n    def __str__(self): raise E()\nraise E()\n"}, "raises",
     "train.py:3", "E: (its text cannot be read)", ""),
    ("train.py:build", {"train.py": "def f(): f()\nf()\n"}, "raises", "train.py:1", "RecursionError", ""),
    ("train.py:build", {"train.py": "from helpers import gone\n", "helpers.py": ""}, "raises", "train.py:1",
     "cannot import name 'gone'", ""),
    ("flat/train.py:build", {"flat/train.py": "from .model import Net\n", "flat/model.py": ""}, "raises",
     "flat/train.py:1", "attempted relative import", "add an __init__.py to it"),
    ("train.py:build", {"train.py": "raise ValueError('\\x1b[2J\\u202e')\n"}, "raises", "train.py:1", "\\x1b[2J", ""),
    ("train.py:build", {"train.py": "raise ValueError('x' * 100000)\n"}, "raises", "train.py:1", "xxx…", "traceback"),
    ("train.py:thing", {"train.py": "def __getattr__(name):\n    return [][0]\n"}, "raises", "train.py:2",
     "IndexError", ""),
    ("train.py:thing", {"train.py": "def __getattr__(name):\n    return 'text'.nosuch\n"}, "raises", "train.py:2",
     "AttributeError", ""),
    # code that ends the process
    ("train.py:build", {"train.py": "import sys\nsys.exit(2)\n"}, "exits", "train.py:2",
     "your module called sys.exit(2) while being imported", "`if __name__ == '__main__':`"),
    ("train.py:build", {"train.py": "exit()\n"}, "exits", "train.py:1", "called sys.exit() while", "__main__"),
    ("train.py:build", {"train.py": "raise SystemExit('bye')\n"}, "exits", "train.py:1", "sys.exit('bye')", ""),
    ("train.py:build", {"train.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('data')\np.parse_args()\n"},
     "exits", "train.py:4", "sys.exit(2) while being imported, in argparse", "__main__"),
    ("train.py:build", {"train.py": "def build():\n    raise SystemExit\n"}, "exits", "train.py:2",
     "build() called sys.exit()", "under `args` in amptui.yaml"),
    ("train.py:thing", {"train.py": "class T:\n    def __call__(self): ...\n    def __getattr__(self, n):\n        return {}[n]\nthing = T()\n"},
     "raises", "train.py:4", "KeyError", ""),
    # attributes
    ("train.py:buld", {"train.py": GOOD}, "attribute-missing", None, "{p}/train.py has no 'buld'",
     "did you mean 'build'?"),
    ("train.py:zzz", {"train.py": GOOD}, "attribute-missing", None, "has no 'zzz'", "it defines build"),
    ("train.py:zzz", {"train.py": "x = 1\n"}, "attribute-missing", None, "has no 'zzz'", "no function and no Project"),
    ("train.py:Holder.mak", {"train.py": "class Holder:\n    def make(self): ...\n"}, "attribute-missing", None,
     "'Holder' has no 'mak'", "did you mean 'make'?"),
    ("train.py:x.y", {"train.py": "x = 1\n"}, "attribute-missing", None, "'x' has no 'y'", "it is an int"),
    ("pkg:train.build", {"pkg/__init__.py": "", "pkg/train.py": GOOD}, "attribute-missing", None, "has no 'train'",
     "write pkg.train:…"),
    ("train.py:buіld", {"train.py": GOOD}, "attribute-missing", None, "has no", "CYRILLIC SMALL LETTER"),
    ("train.py:bu𝗂ld", {"train.py": GOOD}, "attribute-missing", None, "has no", "did you mean 'build'?"),
    ("train.py:f08", {"train.py": "def __getattr__(name):\n    raise AttributeError(name)\n"}, "attribute-missing", None,
     "has no 'f08'", ""),
    # arguments
    ("train.py:build", {"train.py": "\n" + NEEDS}, "needs-arguments", "train.py:2",
     "build() cannot be called without 'cfg'", "args: {{cfg: …}} in amptui.yaml"),
    ("train.py:build", {"train.py": "def build(a, b=1, *c, d, **e): ...\n"}, "needs-arguments", "train.py:1",
     "without 'a', 'd'", "args: {{a: …, d: …}}"),
    ("train.py:build", {"train.py": "def build(a, /): ...\n"}, "needs-arguments", "train.py:1", "without 'a'", "by name only"),
    # values that a Project refuses, and what is no Project
    ("train.py:build", {"train.py": IMPORT + "def build():\n    return Project(model=1, iterations=0)\n"}, "project",
     "train.py:3", "Project(iterations=0): write a whole number from 1, or None", ""),
    ("train.py:build", {"train.py": IMPORT + "def build():\n    return Project(modle=1)\n"}, "project", "train.py:3",
     "Project(…) has no field 'modle'", "did you mean 'model'?"),
    ("train.py:build", {"train.py": IMPORT + "def build():\n    return Project()\n"}, "project", "train.py:3",
     "Project(…) lacks 'model'", ""),
    ("train.py:build", {"train.py": IMPORT + "def build():\n    return Project(1)\n"}, "project", "train.py:3",
     "takes its fields by name only", "Project(model=…)"),
    ("train.py:build", {"train.py": "from amptui import Policy\n\npolicy = Policy(dtype='fp17')\n"}, "project",
     "train.py:3", "Policy(dtype='fp17'): write 'float16' or 'bfloat16'", ""),
    ("train.py:build", {"train.py": "def build(): pass\n"}, "wrong-type", "train.py:1", "build() returned nothing",
     "return Project(…)"),
    ("train.py:build", {"train.py": "def build(): return {'model': 1, 'optimizer': 2, 'loss': 3, 'lr': 4}\n"},
     "wrong-type", "train.py:1", "build() returned a dict with the keys model, optimizer, loss, lr",
     "return Project(model=…, updates=[Update(optimizer=…, loss=…)]) ('lr': no field of a Project)"),
    ("train.py:build", {"train.py": "async def build(): pass\n"}, "wrong-type", "train.py:1", "a coroutine", "not async"),
    ("train.py:build", {"train.py": "def build(): yield 1\n"}, "wrong-type", "train.py:1", "a generator", "not yield"),
    ("train.py:build", {"train.py": "build = 3\n"}, "wrong-type", "train.py:1", "build is an int", "write a function"),
    ("train.py:os", {"train.py": "import os\n"}, "wrong-type", "train.py:1", "os is the module os", "write a function"),
    # another file of the same name
    ("json.py:build", {"json.py": GOOD}, "stdlib-shadow", None, "importing 'json' gave", "rename {p}/json.py"),
    ("json:build", {"json.py": GOOD}, "stdlib-shadow", None, "not {p}/json.py", "rename {p}/json.py"),
    ("json/entry.py:build", {"json/__init__.py": "", "json/entry.py": GOOD}, "stdlib-shadow",
     None, "not {p}/json/__init__.py", "rename {p}/json"),
    ("time.py:build", {"time.py": GOOD}, "stdlib-shadow", None, "a module built into Python, not {p}/time.py", "rename"),
    ("pytest.py:build", {"pytest.py": GOOD}, "shadowed", None, "importing 'pytest' gave", "rename {p}/pytest.py"),
    ("train.py:build", {"train.py": "import random\nrandom.make()\n", "random.py": "def make(): ...\n"}, "stdlib-shadow",
     "train.py:2", "importing 'random' gave", "rename {p}/random.py"),
    ("train.py:build", {"train.py": "from random import make\n", "random.py": "def make(): ...\n"}, "stdlib-shadow",
     "train.py:1", "not {p}/random.py", "rename {p}/random.py"),
    ("train.py:build", {"train.py": "import json.mine\n", "json/__init__.py": "", "json/mine.py": ""}, "stdlib-shadow",
     "train.py:1", "not {p}/json/__init__.py", "rename {p}/json"),
    ("train.py:build", {"train.py": "import sndhdrs, wave\nwave.open('x')\n", "sndhdrs.py": "", "wave.py": "mine = 1\n"},
     "stdlib-shadow", "train.py:2", "importing 'wave' gave {p}/wave.py, which hides Python's own", "rename {p}/wave.py"),
    ("train.py:build", {"train.py": "import random\nrandom.slip()\n", "random.py": "def make(): ...\n"}, "raises",
     "train.py:2", "AttributeError", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "files", "code", "where", "said", "hint"), FAILURES, ids=[f"{row[2]}-{row[0]}" for row in FAILURES]
)
def test_every_way_to_fail_is_told_apart(
    refused: Refused, folder: Path, spec: str, files: dict[str, str], code: str, where: str | None, said: str, hint: str
) -> None:
    error = refused(spec, files)
    names = {"p": folder, "python": sys.executable}
    assert error.code == code, str(error)
    assert error.where == (where and f"{folder}/{where}")
    assert said.format(**names) in error.message
    assert hint.format(**names) in error.hint


@pytest.mark.parametrize(
    ("given", "said", "hint"),
    [
        ({"widht": 1}, "build() has no argument 'widht'", "did you mean 'width'?"),
        ({"zzz": 1}, "build() has no argument 'zzz'", "it takes width, depth"),
    ],
)
def test_arguments_that_the_function_does_not_take(
    refused: Refused, given: dict[str, int], said: str, hint: str
) -> None:
    error = refused("train.py:build", {"train.py": "def build(width=1, *, depth=2): ...\n"}, **given)
    assert (error.code, error.message, error.hint) == ("unexpected-arguments", said, hint)


def test_arguments_for_what_takes_none(refused: Refused) -> None:
    assert refused("train.py:build", {"train.py": GOOD}, lr=1).hint == "it takes none"
    error = refused("bound.py:ready", {"bound.py": IMPORT + "ready = Project(model=1)\n"}, lr=1)
    assert (error.code, error.message) == ("unexpected-arguments", "ready is a Project, so it takes no `args`")


def test_models_and_optimizers_are_known_for_what_they_are(refused: Refused) -> None:
    head = "import torch\n"
    error = refused("a.py:build", {"a.py": head + "def build(): return torch.nn.Linear(1, 1)\n"})
    assert "returned the nn.Module Linear" in error.message
    assert "return Project(model=…)" in error.hint
    error = refused("b.py:model", {"b.py": head + "model = torch.nn.Linear(1, 1)\n"})
    assert (error.code, "the nn.Module Linear" in error.message) == ("wrong-type", True)
    error = refused("c.py:Net", {"c.py": head + "class Net(torch.nn.Module):\n    def __init__(self, w): ...\n"})
    assert (error.code, "a class of nn.Module" in error.message) == ("wrong-type", True)
    source = head + "def build():\n    m = torch.nn.Linear(1, 1)\n    return m, torch.optim.SGD(m.parameters(), 1)\n"
    error = refused("d.py:build", {"d.py": source})
    assert "return Project(model=…, updates=[Update(optimizer=…, loss=…)])" in error.hint


def test_ctrl_c_passes_through_from_import_lookup_and_factory(load: Load) -> None:
    files = {
        "a.py": "raise KeyboardInterrupt\n",
        "b.py": "def __getattr__(name):\n    raise KeyboardInterrupt\n",
        "c.py": "def build():\n    raise KeyboardInterrupt\n",
    }
    for spec in ("a.py:build", "b.py:thing", "c.py:build"):
        with pytest.raises(KeyboardInterrupt):
            load(spec, files)


def test_a_file_that_is_gone_by_now_is_named(load: Load, folder: Path) -> None:
    (folder / "train.py").write_text(GOOD)
    reference = parse_reference("train.py:build", folder=folder)
    (folder / "train.py").unlink()
    with pytest.raises(SpecError, match=r"no file .*/train\.py") as caught:
        load_project(reference, {}, folder=folder)
    assert caught.value.code == "file-missing"


@pytest.mark.parametrize("name", ["train.v2.py", "v1.0/train.py"])
def test_a_name_with_a_dot_cannot_be_imported(refused: Refused, name: str) -> None:
    error = refused(f"{name}:build", {name: GOOD, f"{Path(name).parent}/__init__.py": ""})
    assert (error.code, "has a '.'" in error.message) == ("form", True)


def test_two_files_of_one_name_are_never_mixed_up(load: Load, refused: Refused) -> None:
    load("one/train.py:build", {"one/train.py": GOOD})
    error = refused("two/train.py:build", {"two/train.py": GOOD})
    assert error.code == "shadowed"
    assert "one/train.py" in error.message
    assert "two/train.py" in error.hint


def test_a_fault_inside_an_installed_package_points_at_the_users_line(
    refused: Refused, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "env" / "site-packages"
    (installed / "thirdparty").mkdir(parents=True)
    (installed / "thirdparty" / "__init__.py").write_text("def fail():\n    raise OSError('deep')\n")
    (installed / "halfthere.py").write_text("import nosuchdep\n")
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(installed)])
    error = refused("train.py:build", {"train.py": "import thirdparty\n\nthirdparty.fail()\n"})
    assert (error.code, error.where) == ("raises", f"{folder}/train.py:3")
    error = refused("other.py:build", {"other.py": "\nimport halfthere\n"})
    assert (error.code, error.where) == ("dependency-missing", f"{folder}/other.py:2")
    # an installed package that is itself the project is the user's code
    (installed / "project").mkdir()
    (installed / "project" / "__init__.py").write_text("\n\nimport nosuchdep\n")
    error = refused("project:build", {})
    assert (error.code, error.where) == ("dependency-missing", f"{installed}/project/__init__.py:3")
    (installed / "project" / "__init__.py").write_text("import project.gone\n")
    error = refused("project:build", {})
    assert (error.code, error.where) == ("own-module-missing", f"{installed}/project/__init__.py:1")
    (installed / "project" / "__init__.py").write_text("import thirdparty.gone\n\n")
    error = refused("project:build", {})
    assert (error.code, error.where) == ("dependency-missing", f"{installed}/project/__init__.py:1")


def test_a_wrapped_factory_keeps_its_signature(load: Load) -> None:
    source = GOOD + (
        "import functools\ndef logged(f):\n    @functools.wraps(f)\n    def g(*a, **k): return f(*a, **k)\n    return g\n"
        "@logged\ndef wide(width=1): return Project(model=width)\n"
    )
    assert load("train.py:wide", {"train.py": source}, width=5).project.model == 5


def test_loading_needs_the_standard_library_only(folder: Path) -> None:
    (folder / "train.py").write_text(GOOD)
    script = (
        "import sys\n"
        "for name in ('yaml', 'torch', 'rich', 'textual', 'platformdirs'):\n"
        "    sys.modules[name] = None\n"
        "from amptui.spec.reference import parse_reference\n"
        "from amptui.spec.resolve import load_project\n"
        "from amptui.spec.run_settings import RunSettings, criteria_over, policy_over\n"
        "reference = parse_reference('train.py:build', folder='.')\n"
        "print(load_project(reference, {}, folder='.').project.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("train\n", "")


def test_a_file_called_torch_takes_nothing_from_torch(load: Load, refused: Refused, folder: Path) -> None:
    import torch

    source = IMPORT + "import torch\ndef build(): return Project(model=torch.nn.Linear(1, 1))\n"
    project = load("train.py:build", {"train.py": source, "torch.py": "raise RuntimeError\n"}).project
    assert isinstance(project.model, torch.nn.Linear)
    error = refused("torch.py:build", {})
    assert (error.code, error.hint) == ("shadowed", f"rename {folder}/torch.py")
