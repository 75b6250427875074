"""What the globals in a pickle mean for whoever really loads it: safe, known, the project's own code, or dangerous.

Safe is what torch's own `weights_only` loading allows (torch 2.13, torch/_weights_only_unpickler.py). The rest needs
`weights_only=False` or an allow-list. Of that, data classes of Python, NumPy and the training frameworks are known;
other classes are the project's own; every function that a load would call, and everything of the standard library
that is not plain data, is dangerous: an allow-list of a few names, as lists of forbidden names are always incomplete.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal

from amptui.inspection.nodes import ITEMSIZE, Global
from amptui.inspection.pickle_walk import Use

Grade = Literal["safe", "known", "own", "dangerous"]

_TORCH_KINDS = [
    "BFloat16",
    "Bool",
    "Byte",
    "Char",
    "Double",
    "Float",
    "Half",
    "Int",
    "Long",
    "Short",
    "ComplexDouble",
    "ComplexFloat",
]
_TORCH_KINDS += ["QInt32", "QInt8", "QUInt2x4", "QUInt4x2", "QUInt8"]
_SAFE = frozenset(
    [
        "_codecs.encode",
        *(f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("bytearray", "complex", "set")),
        "collections.Counter",
        "collections.OrderedDict",
        "torch.Size",
        "torch.Tensor",
        "torch.device",
        "torch._tensor._rebuild_from_type_v2",
        *(
            f"torch._utils._rebuild_{name}"
            for name in [
                "device_tensor_from_cpu_tensor",
                "device_tensor_from_numpy",
                "meta_tensor_no_storage",
                "nested_tensor",
                "parameter",
                "parameter_with_state",
                "qtensor",
                "sparse_tensor",
                "tensor",
                "tensor_v2",
                "tensor_v3",
                "wrapper_subclass",
            ]
        ),
        "torch.nn.parameter.Parameter",
        "torch.serialization._get_layout",
        "torch.storage.TypedStorage",
        "torch.storage.UntypedStorage",
        *(f"torch.{name}" for name in ITEMSIZE),
        *(
            f"torch.{name}"
            for name in ["per_channel_affine", "per_channel_affine_float_qparams", "per_channel_symmetric"]
        ),
        *(
            f"torch.{name}"
            for name in [
                "per_tensor_affine",
                "per_tensor_symmetric",
                "bits16",
                "bits1x8",
                "bits2x4",
                "bits4x2",
                "bits8",
            ]
        ),
        *(f"torch.{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)),
        *(
            f"torch.{module}{kind}Tensor"
            for module in ("", "cuda.", "sparse.", "cuda.sparse.")
            for kind in _TORCH_KINDS
        ),
        *(f"torch.{module}{kind}Storage" for module in ("", "cuda.") for kind in _TORCH_KINDS),
    ]
)

#: Plain data beyond torch's list: by exact name.
_KNOWN = frozenset(
    [
        *(
            f"{module}.{name}"
            for module in ("builtins", "__builtin__")
            for name in [
                "bool",
                "bytes",
                "dict",
                "float",
                "frozenset",
                "int",
                "list",
                "object",
                "range",
                "slice",
                "str",
                "tuple",
                "long",
                "unicode",
            ]
        ),
        "argparse.Namespace",
        "collections.defaultdict",
        "collections.deque",
        "copyreg._reconstructor",
        "copy_reg._reconstructor",
        "datetime.date",
        "datetime.datetime",
        "datetime.time",
        "datetime.timedelta",
        "datetime.timezone",
        "decimal.Decimal",
        "fractions.Fraction",
        "io.BytesIO",
        "_io.BytesIO",
        *(
            f"pathlib.{name}"
            for name in ["Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"]
        ),
        *(f"pathlib._local.{name}" for name in ["Path", "PosixPath", "PurePath", "PurePosixPath", "WindowsPath"]),
        "signal.Signals",
        "types.SimpleNamespace",
        "typing.Any",
        "uuid.UUID",
        *(f"numpy.{module}.multiarray.{name}" for module in ("core", "_core") for name in ("_reconstruct", "scalar")),
        *(f"numpy.{module}.numeric._frombuffer" for module in ("core", "_core")),
        "numpy.dtype",
        "numpy.ndarray",
        *(f"numpy.{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)),
        "numpy.bool_",
        *(f"numpy.random._pickle.__{name}_ctor" for name in ("randomstate", "generator", "bit_generator")),
        "torch.storage._load_from_bytes",
        "torch._tensor._rebuild_from_type",
        "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
        "torch.distributed.checkpoint.filesystem._StorageInfo",
        "deepspeed.utils.tensor_fragment.fragment_address",
    ]
)

#: Packages whose classes are what their checkpoints are known to hold.
_KNOWN_PACKAGES = frozenset(
    [
        "accelerate",
        "apex",
        "deepspeed",
        "detectron2",
        "diffusers",
        "fairseq",
        "fastai",
        "fastcore",
        "ignite",
        "lightning",
        "lightning_fabric",
        "megatron",
        "mmcv",
        "mmdet",
        "mmengine",
        "mmseg",
        "numpy",
        "omegaconf",
        "peft",
        "pytorch_lightning",
        "sklearn",
        "timm",
        "tokenizers",
        "torch",
        "torchmetrics",
        "torchvision",
        "transformers",
        "trl",
        "ultralytics",
    ]
)
#: The standard library, with what older versions had; a file may be made for any of them.
_PROGRAM_PACKAGES = frozenset(
    ["IPython", "jinja2", "pip", "pkg_resources", "pytest", "_pytest", "setuptools", "tkinter"]
)
_STANDARD = frozenset(sys.stdlib_module_names) | frozenset(
    [
        "__builtin__",
        "__main__",
        "asynchat",
        "asyncore",
        "cPickle",
        "cgi",
        "commands",
        "copy_reg",
        "distutils",
        "exceptions",
        "imp",
        "lib2to3",
        "popen2",
        "smtpd",
        "telnetlib",
        "urllib2",
        "webbrowser",
        "nt",
    ]
)


def grade(found: Global, use: Use) -> Grade:
    """How safe a real load of `found` would be, given how the stream uses it."""
    dotted = found.dotted
    if dotted in _SAFE:
        return "safe"
    if dotted in _KNOWN:
        return "known"
    package = found.module.partition(".")[0]
    if found.name == "getattr" and package in ("builtins", "__builtin__"):
        return "known" if use.calls and use.calls == use.lookups else "dangerous"
    class_like = _class_like(found)
    if (package in _STANDARD or package in _PROGRAM_PACKAGES) and package != "__main__":
        return "dangerous"
    if not class_like and use.calls:
        return "dangerous"
    return "known" if package in _KNOWN_PACKAGES and class_like else "own"


def _class_like(found: Global) -> bool:
    """Whether the name is spelled like a class: the only clue there is without importing it."""
    last = found.name.rpartition(".")[2].lstrip("_")
    return last[:1].isupper()


def graded(globals_: Mapping[Global, Use]) -> dict[str, Grade]:
    """Every global's dotted name with the worst grade it got, dangerous ones first, otherwise in the file's order."""
    order: tuple[Grade, ...] = ("dangerous", "own", "known", "safe")
    grades: dict[str, Grade] = {}
    for found, use in globals_.items():
        new = grade(found, use)
        old = grades.get(found.dotted, new)
        grades[found.dotted] = min(old, new, key=order.index)
    return dict(sorted(grades.items(), key=lambda item: order.index(item[1]) > 0))
