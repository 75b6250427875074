"""Writes checkpoints as torch and the frameworks do, without importing any of them: pickle opcodes and zip by hand.

`test_writer.py` holds it against the real torch in both directions.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "uint8": 1, "bool": 1}
STORAGE = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
_FORMATS = {"float64": "d", "float32": "f", "float16": "e", "int64": "q", "uint8": "B", "bool": "?"}


@dataclass(frozen=True, eq=False)
class G:
    """A global: `G("os.system")`."""

    dotted: str


@dataclass(frozen=True, eq=False)
class Obj:
    """An object made by `cls.__new__(*args)`, or with `call` by `cls(*args)`, then given `items` and `state`."""

    cls: str
    args: tuple[object, ...] = ()
    state: object = None
    items: tuple[object, ...] = ()
    call: bool = False


@dataclass(frozen=True, eq=False)
class T:
    """A contiguous tensor filled with `values` (repeated to fill `shape`), or with `raw` bytes."""

    values: object = 1.0
    shape: tuple[int, ...] = (2,)
    dtype: str = "float32"
    device: str = "cpu"
    raw: bytes | None = None

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def data(self) -> bytes:
        if self.raw is not None:
            return self.raw
        values = list(self.values) if isinstance(self.values, list | tuple) else [self.values]
        values = (values * self.numel)[: self.numel]
        if self.dtype == "bfloat16":
            return b"".join(struct.pack("<f", value)[2:] for value in values)
        return struct.pack(f"<{self.numel}{_FORMATS[self.dtype]}", *values)


def step(count: float, dtype: str = "float32") -> T:
    """A step counter as optimizers keep it."""
    return T(count, (), dtype)


@dataclass
class Pickle:
    """The opcodes of one value (protocol 2), and the tensors' data in the order of their keys."""

    out: list[bytes] = field(default_factory=list)
    storages: list[T] = field(default_factory=list)
    protocol: int = 2
    legacy: bool = False

    def dumps(self, value: object) -> bytes:
        self.out.append(b"\x80" + bytes([self.protocol]))
        self.put(value)
        return b"".join(self.out) + b"."

    def put(self, value: object) -> None:
        out = self.out
        if value is None:
            out.append(b"N")
        elif isinstance(value, bool):
            out.append(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
            out.append(
                b"\x8a" + bytes([len(raw)]) + raw if len(raw) < 256 else b"\x8b" + struct.pack("<i", len(raw)) + raw
            )
        elif isinstance(value, float):
            out.append(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            raw = value.encode("utf-8", "surrogatepass")
            out.append(b"X" + struct.pack("<I", len(raw)) + raw)
        elif isinstance(value, bytes):
            out.append(b"B" + struct.pack("<I", len(value)) + value)
        elif isinstance(value, dict):
            out.append(b"}(")
            for key, inner in value.items():
                self.put(key)
                self.put(inner)
            out.append(b"u")
        elif isinstance(value, list):
            out.append(b"](")
            for inner in value:
                self.put(inner)
            out.append(b"e")
        elif isinstance(value, tuple):
            out.append(b"(")
            for inner in value:
                self.put(inner)
            out.append(b"t")
        elif isinstance(value, G):
            self.name(value.dotted)
        elif isinstance(value, T):
            self.tensor(value)
        elif isinstance(value, Obj):
            self.object(value)
        else:
            raise TypeError(type(value))

    def name(self, dotted: str) -> None:
        module, _, name = dotted.rpartition(".")
        self.out.append(f"c{module}\n{name}\n".encode())

    def tensor(self, tensor: T) -> None:
        """torch._utils._rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict())"""
        self.name("torch._utils._rebuild_tensor_v2")
        self.out.append(b"((")
        self.put("storage")
        self.name(f"torch.{STORAGE[tensor.dtype]}")
        self.put(str(len(self.storages)))
        self.put(tensor.device)
        self.put(tensor.numel)
        self.out.append(b"NtQK\0" if self.legacy else b"tQK\0")  # the old format has view metadata
        self.put(tensor.shape)
        self.put(strides(tensor.shape))
        self.out.append(b"\x89ccollections\nOrderedDict\n)RtR")
        self.storages.append(tensor)

    def object(self, value: Obj) -> None:
        self.name(value.cls)
        self.put(value.args)
        self.out.append(b"R" if value.call else b"\x81")
        if value.items:
            self.out.append(b"(")
            for item in value.items:
                self.put(item)
            self.out.append(b"e")
        if value.state is not None:
            self.put(value.state)
            self.out.append(b"b")


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    found, size = [], 1
    for count in reversed(shape):
        found.append(size)
        size *= max(1, count)
    return tuple(reversed(found))


def pickled(value: object) -> bytes:
    """`value` as one bare pickle (no tensors)."""
    return Pickle().dumps(value)


def zip_bytes(
    members: Sequence[tuple[str, bytes]], *, checksums: bool = True, alter: Callable[[str, int], int] | None = None
) -> bytes:
    """A stored zip as torch writes it; `alter(name, crc)` may falsify a checksum."""
    out, central = bytearray(), bytearray()
    for name, data in members:
        crc = zlib.crc32(data) if checksums else 0
        crc = alter(name, crc) if alter else crc
        encoded, offset = name.encode(), len(out)
        pad = -(offset + 30 + len(encoded) + 4) % 64
        extra = struct.pack("<2sH", b"FB", pad) + b"Z" * pad
        out += (
            struct.pack("<4s5H3L2H", b"PK\3\4", 0, 0x808, 0, 0, 0, 0, 0, 0, len(encoded), len(extra))
            + encoded
            + extra
            + data
        )
        out += struct.pack("<4s3L", b"PK\7\x08", crc, len(data), len(data))
        head = (b"PK\1\2", 0, 0, 0x808, 0, 0, 0, crc, len(data), len(data), len(encoded), 0, 0, 0, 0, 0, offset)
        central += struct.pack("<4s6H3L5H2L", *head) + encoded
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(members), len(members), len(central), len(out), 0)
    return bytes(out + central + end)


def torch_zip_bytes(root: object, *, name: str = "archive", checksums: bool = True) -> bytes:
    """What `torch.save(root)` writes."""
    pickle = Pickle()
    members = [(f"{name}/data.pkl", pickle.dumps(root)), (f"{name}/byteorder", b"little")]
    members += [(f"{name}/data/{key}", tensor.data()) for key, tensor in enumerate(pickle.storages)]
    members += [(f"{name}/version", b"3\n"), (f"{name}/.data/serialization_id", b"0" * 40)]
    return zip_bytes(members, checksums=checksums)


def legacy_bytes(root: object) -> bytes:
    """What `torch.save(root, _use_new_zipfile_serialization=False)` writes."""
    pickle = Pickle(legacy=True)
    described = pickle.dumps(root)
    keys = [str(key) for key in range(len(pickle.storages))]
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    head = pickled(0x1950A86A20F9469CFC6C) + pickled(1001) + pickled(system)
    data = b"".join(struct.pack("<q", tensor.numel) + tensor.data() for tensor in pickle.storages)
    return head + described + pickled(keys) + data


def safetensors_bytes(tensors: Mapping[str, T], metadata: Mapping[str, str] | None = None) -> bytes:
    """A safetensors file."""
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "float64": "F64", "uint8": "U8"}
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    blob = b""
    for name, tensor in tensors.items():
        data = tensor.data()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(blob), len(blob) + len(data)],
        }
        blob += data
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + blob


def save(path: Path, root: object) -> Path:
    """Write `root` to `path` as torch does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(torch_zip_bytes(root, name=path.stem))
    return path


# Parts that most checkpoints have


def scaler(scale: object = 65536.0, tracker: object = 7, **changes: object) -> dict[str, object]:
    """torch.amp.GradScaler.state_dict()"""
    state = {
        "scale": scale,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": tracker,
    }
    return {**state, **changes}


def weights(dtype: str = "float32", prefix: str = "") -> dict[str, object]:
    """A model's state dict: one linear layer and one BatchNorm's statistics."""
    return {
        f"{prefix}fc.weight": T([0.5, -0.25], (2, 3), dtype),
        f"{prefix}fc.bias": T(0.125, (2,), dtype),
        f"{prefix}bn.running_mean": T(0.5, (2,)),
    }


def adam(
    count: float = 100, dtype: str = "float32", second: object = 0.25, counter: object = None
) -> dict[str, object]:
    """torch.optim.AdamW.state_dict() of two parameters."""
    entry = lambda shape: {  # noqa: E731 - a local shape
        "step": step(count) if counter is None else counter,
        "exp_avg": T(0.5, shape, dtype),
        "exp_avg_sq": T(second, shape, dtype),
    }
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "params": [0, 1]}
    return {"state": {0: entry((2, 3)), 1: entry((2,))}, "param_groups": [group]}


def schedule() -> dict[str, object]:
    """torch.optim.lr_scheduler.StepLR.state_dict()"""
    return {"step_size": 3, "gamma": 0.1, "base_lrs": [1e-3], "last_epoch": 4, "_step_count": 5, "_last_lr": [1e-4]}


def numpy_state() -> tuple[object, ...]:
    """numpy.random.get_state(), with its array as numpy pickles it."""
    raw = bytes(2496)
    dtype = Obj("numpy.dtype", ("u4", False, True), state=(3, "<", None, None, None, -1, -1, 0), call=True)
    array = Obj(
        "numpy._core.multiarray._reconstruct",
        (G("numpy.ndarray"), (0,), b"b"),
        state=(1, (624,), dtype, False, raw),
        call=True,
    )
    return ("MT19937", array, 624, 0, 0.0)


def python_state() -> tuple[object, ...]:
    """random.getstate()"""
    return (3, tuple(range(625)), None)


def cpu_state() -> T:
    """torch.get_rng_state()"""
    return T(0, (5056,), "uint8")


def cuda_state() -> T:
    """torch.cuda.get_rng_state()"""
    return T(0, (16,), "uint8")
