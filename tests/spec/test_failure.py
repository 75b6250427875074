"""Every way that loading can fail is told apart: one row each, with its code, the user's line, and the mend."""

# ruff: noqa: E501 - one row of a table is one line
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amptui.spec.error import SpecError

Refused = Callable[..., SpecError]

GOOD = "from amptui import Project\n\ndef build():\n    return Project(model=object(), name=__name__)\n"
IMPORT = "from amptui import Project\n"

# {p} is the app folder, {python} the interpreter.

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
