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


# What does not load, beyond the table in test_failure.py


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
