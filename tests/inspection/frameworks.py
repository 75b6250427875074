"""Small checkpoints in the layouts of the frameworks, after each one's own save code (named with each)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.inspection.writer import (
    G,
    Obj,
    T,
    adam,
    cpu_state,
    cuda_state,
    legacy_bytes,
    numpy_state,
    pickled,
    python_state,
    safetensors_bytes,
    save,
    scaler,
    schedule,
    step,
    torch_zip_bytes,
    weights,
)


@dataclass(frozen=True)
class Expected:
    """What an inspection has to tell of a layout. None and empty: not judged."""

    format: str
    scale: float | None = None
    tracker: int | None = None
    scaler_path: str | None = None
    loop: int | None = None
    optimizer: int | None = None
    skipped: int | None = None
    missing: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    parameters: dict[str, int] = field(default_factory=dict)


Writer = Callable[[Path], tuple[Path, Expected]]
LAYOUTS: dict[str, Writer] = {}


def layout(writer: Writer) -> Writer:
    LAYOUTS[writer.__name__] = writer
    return writer


def save_as(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@layout
def plain(folder: Path) -> tuple[Path, Expected]:
    root = {
        "model": weights(),
        "optimizer": adam(95),
        "scheduler": schedule(),
        "scaler": scaler(1024.0, 3),
        "global_step": 100,
        "rng": {"torch": cpu_state(), "cuda": [cuda_state()], "numpy": numpy_state(), "python": python_state()},
        "sampler": {"position": 12},
    }
    expected = Expected(
        "plain",
        1024.0,
        3,
        "scaler",
        100,
        95,
        5,
        present=(
            "model",
            "optimizer",
            "scheduler",
            "scaler",
            "rng",
            "rng.cpu",
            "rng.cuda",
            "rng.numpy",
            "rng.python",
            "data",
        ),
        parameters={"float32": 3},
    )
    return save(folder / "plain.pt", root), expected


@layout
def plain_legacy(folder: Path) -> tuple[Path, Expected]:
    root = {"net": weights(), "opt": adam(10), "grad_scaler": scaler(2.0**20, 1999), "step": 10}
    return save_as(folder / "legacy.pt", legacy_bytes(root)), Expected("plain", 2.0**20, 1999, "grad_scaler", 10, 10, 0)


@layout
def state_dict_alone(folder: Path) -> tuple[Path, Expected]:
    missing = ("optimizer", "scheduler", "scaler", "rng")
    return save(folder / "weights.pth", weights()), Expected("plain", missing=missing, parameters={"float32": 3})


@layout
def safetensors_alone(folder: Path) -> tuple[Path, Expected]:
    tensors = {name: tensor for name, tensor in weights("bfloat16").items() if isinstance(tensor, T)}
    path = save_as(folder / "model.safetensors", safetensors_bytes(tensors, {"format": "pt"}))
    return path, Expected("safetensors", missing=("optimizer",), parameters={"bfloat16": 2, "float32": 1})


@layout
def whole_module(folder: Path) -> tuple[Path, Expected]:
    """torch.save(model)"""
    linear = Obj(
        "torch.nn.modules.linear.Linear",
        state={
            "training": True,
            "_parameters": {"weight": T(1, (2, 3)), "bias": T(0.5, (2,))},
            "_buffers": {},
            "_modules": {},
        },
    )
    state = {"training": True, "_parameters": {}, "_buffers": {"scale": T(1, (1,))}, "_modules": {"fc": linear}}
    path = save(folder / "model.pt", Obj("__main__.Net", state=state))
    return path, Expected("whole_module", needs=("__main__.Net",), missing=("optimizer",), parameters={"float32": 3})


@layout
def pickled_scaler_object(folder: Path) -> tuple[Path, Expected]:
    """torch.save({"scaler": scaler}) instead of its state dict; torch/amp/grad_scaler.py `__getstate__`"""
    state = {
        "_device": "cuda",
        "_enabled": True,
        "_init_scale": 4096.0,
        "_scale": None,
        "_growth_factor": 2.0,
        "_backoff_factor": 0.5,
        "_growth_interval": 2000,
        "_init_growth_tracker": 11,
        "_growth_tracker": None,
        "_per_optimizer_states": {},
    }
    root = {"model": weights(), "scaler": Obj("torch.amp.grad_scaler.GradScaler", state=state)}
    return save(folder / "object.pt", root), Expected(
        "plain", 4096.0, 11, "scaler", needs=("torch.amp.grad_scaler.GradScaler",)
    )


def _lightning(scaler_key: str, optimizers: int, global_step: int) -> dict[str, object]:
    progress = {"total": {"ready": 120, "completed": 120}, "current": {"ready": 40, "completed": 40}}
    return {
        "epoch": 3,
        "global_step": global_step,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": weights(prefix="net."),
        "loops": {
            "fit_loop": {"epoch_loop.batch_progress": progress, "epoch_loop.state_dict": {"_batches_that_stepped": 120}}
        },
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"kth_value": T(float("inf"), ()), "best_k_models": {}}},
        "optimizer_states": [adam(57) for _ in range(optimizers)],
        "lr_schedulers": [schedule()],
        scaler_key: scaler(512.0, 37),
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 1e-3},
    }


@layout
def lightning(folder: Path) -> tuple[Path, Expected]:
    """lightning/pytorch/trainer/connectors/checkpoint_connector.py"""
    path = save(folder / "last.ckpt", _lightning("MixedPrecision", 1, 60))
    return path, Expected(
        "lightning", 512.0, 37, "MixedPrecision", 60, 57, 3, missing=("rng",), present=("data", "scheduler")
    )


@layout
def lightning_gan_of_1_5(folder: Path) -> tuple[Path, Expected]:
    """Two optimizers, whose steps global_step sums, and the scaler's key of Lightning 1.5"""
    path = save(folder / "old.ckpt", _lightning("native_amp_scaling_state", 2, 120))
    return path, Expected("lightning", 512.0, 37, "native_amp_scaling_state", 120, 57, 6)


def _hf(folder: Path, name: str = "checkpoint-30") -> Path:
    base = folder / name
    tensors = {key: tensor for key, tensor in weights().items() if isinstance(tensor, T)}
    save_as(base / "model.safetensors", safetensors_bytes(tensors, {"format": "pt"}))
    save_as(base / "config.json", json.dumps({"transformers_version": "5.24.0", "dtype": "float32"}).encode())
    save(base / "optimizer.pt", adam(22))
    save(base / "scheduler.pt", schedule())
    save(base / "scaler.pt", scaler(256.0, 19))
    save(
        base / "rng_state.pth",
        {"python": python_state(), "numpy": numpy_state(), "cpu": cpu_state(), "cuda": cuda_state()},
    )
    state = {"fp16": True, "bf16": False, "output_dir": "out"}
    save(base / "training_args.bin", Obj("transformers.training_args.TrainingArguments", state=state))
    log = {"epoch": 1.0, "global_step": 30, "log_history": [{"loss": 0.5, "step": 30}]}
    save_as(base / "trainer_state.json", json.dumps(log).encode())
    return base


@layout
def hf_trainer(folder: Path) -> tuple[Path, Expected]:
    """transformers/trainer.py"""
    needs = (
        "numpy._core.multiarray._reconstruct",
        "numpy.ndarray",
        "numpy.dtype",
        "transformers.training_args.TrainingArguments",
    )
    present = ("rng.cpu", "rng.numpy", "rng.python", "rng.cuda", "scheduler")
    return _hf(folder), Expected("hf_trainer", 256.0, 19, "scaler.pt", 30, 22, 8, present=present, needs=needs)


@layout
def hf_trainer_unfinished(folder: Path) -> tuple[Path, Expected]:
    base = _hf(folder)
    (base / "trainer_state.json").unlink()
    return base, Expected("hf_trainer", 256.0, faults=("unfinished",))


@layout
def hf_trainer_without_scaler(folder: Path) -> tuple[Path, Expected]:
    base = _hf(folder)
    (base / "scaler.pt").unlink()
    return base, Expected("hf_trainer", missing=("scaler",), faults=("scaler-missing",))


@layout
def hf_trainer_lost_shard(folder: Path) -> tuple[Path, Expected]:
    base = _hf(folder)
    (base / "model.safetensors").rename(base / "model-00001-of-00003.safetensors")
    index = {
        "weight_map": {
            "a": "model-00001-of-00003.safetensors",
            "b": "model-00002-of-00003.safetensors",
            "c": "../x.bin",
        }
    }
    save_as(base / "model.safetensors.index.json", json.dumps(index).encode())
    return base, Expected("hf_trainer", 256.0, faults=("missing-shard", "odd-archive"))


@layout
def hf_run_with_an_unfinished_last_save(folder: Path) -> tuple[Path, Expected]:
    _hf(folder, "checkpoint-30")
    broken = _hf(folder, "checkpoint-200")
    (broken / "trainer_state.json").unlink()
    return folder, Expected("hf_trainer", 256.0, loop=30, faults=("unfinished",))


@layout
def hf_trainer_with_deepspeed(folder: Path) -> tuple[Path, Expected]:
    """transformers with DeepSpeed: optimizer and scaler lie in the engine's own folder"""
    base = _hf(folder)
    for name in ("optimizer.pt", "scaler.pt"):
        (base / name).unlink()
    _zero(base / "global_step30")
    save_as(base / "latest", b"global_step30\n")
    return base, Expected("hf_trainer", 16384.0, loop=30)


@layout
def accelerate(folder: Path) -> tuple[Path, Expected]:
    """accelerate/checkpointing.py `save_accelerator_state`"""
    base = folder / "checkpoint_0"
    tensors = {key: tensor for key, tensor in weights().items() if isinstance(tensor, T)}
    save_as(base / "model.safetensors", safetensors_bytes(tensors, {"format": "pt"}))
    save(base / "optimizer.bin", adam(41))
    save(base / "scheduler.bin", schedule())
    save(base / "sampler.bin", {"seed": 1})
    save(base / "scaler.pt", scaler(32768.0, 41))
    states = {"step": 0, "random_state": python_state(), "numpy_random_seed": numpy_state()}
    states |= {"torch_manual_seed": cpu_state(), "torch_cuda_manual_seed": [cuda_state()]}
    save(base / "random_states_0.pkl", states)
    present = ("rng.cpu", "rng.cuda", "rng.numpy", "rng.python", "data", "scheduler")
    return base, Expected("accelerate", 32768.0, 41, "scaler.pt", optimizer=41, present=present)


@layout
def accelerate_lost_rank(folder: Path) -> tuple[Path, Expected]:
    base, _ = accelerate(folder)
    (base / "random_states_0.pkl").rename(base / "random_states_2.pkl")
    return base, Expected("accelerate", 32768.0, faults=("missing-shard",))


def _deepspeed_state(**changes: object) -> dict[str, object]:
    state = {
        "module": weights("float16"),
        "buffer_names": [],
        "optimizer": {
            "dynamic_loss_scale": True,
            "cur_scale": 2048.0,
            "cur_iter": 100,
            "last_overflow_iter": 80,
            "scale_factor": 2.0,
            "scale_window": 1000,
            "optimizer_state_dict": adam(90),
            "fp32_groups_flat": [T(0.5, (8,))],
        },
        "lr_scheduler": {"last_batch_iteration": 99},
        "skipped_steps": 10,
        "global_steps": 100,
        "global_samples": 800,
        "ds_config": {"fp16": {"enabled": True}},
        "ds_version": "0.19.8",
    }
    return {**state, **changes}


@layout
def deepspeed(folder: Path) -> tuple[Path, Expected]:
    """deepspeed/runtime/engine.py, fp16/fused_optimizer.py"""
    save(folder / "ds" / "global_step100" / "mp_rank_00_model_states.pt", _deepspeed_state())
    save_as(folder / "ds" / "latest", b"global_step100")
    expected = Expected(
        "deepspeed",
        2048.0,
        19,
        "mp_rank_00_model_states.pt: optimizer",
        100,
        90,
        10,
        parameters={"float16": 2, "float32": 1},
    )
    return folder / "ds", expected


def _zero(base: Path, scales: tuple[float, ...] = (16384.0, 16384.0)) -> None:
    save(base / "mp_rank_00_model_states.pt", _deepspeed_state(optimizer=None))
    for rank, scale in enumerate(scales):
        loss_scaler = Obj(
            "deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler",
            state={
                "cur_scale": scale,
                "cur_iter": 100,
                "last_overflow_iter": 60,
                "scale_factor": 2.0,
                "scale_window": 1000,
                "min_scale": 1,
                "cur_hysteresis": 2,
            },
        )
        part = {
            "loss_scaler": loss_scaler,
            "dynamic_loss_scale": True,
            "overflow": False,
            "base_optimizer_state": {
                "state": {0: {"step": step(90), "exp_avg": T(0.5, (4,)), "exp_avg_sq": T(0.5, (4,))}},
                "param_groups": [{"lr": 1e-3}],
            },
            "single_partition_of_fp32_groups": [T(0.5, (4,))],
            "zero_stage": Obj("deepspeed.runtime.zero.config.ZeroStageEnum", (2,), call=True),
            "partition_count": [len(scales)],
            "ds_version": "0.19.8",
        }
        name = f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        save(base / name, {"optimizer_state_dict": part, "ds_config": {}, "ds_version": "0.19.8"})


@layout
def deepspeed_zero(folder: Path) -> tuple[Path, Expected]:
    """deepspeed/runtime/zero/stage_1_and_2.py: the scaler is a pickled object"""
    _zero(folder / "global_step100")
    save_as(folder / "latest", b"global_step100")
    needs = ("deepspeed.runtime.fp16.loss_scaler.DynamicLossScaler", "deepspeed.runtime.zero.config.ZeroStageEnum")
    return folder, Expected("deepspeed_zero", 16384.0, 39, loop=100, optimizer=90, skipped=10, needs=needs)


@layout
def deepspeed_zero_ranks_disagree(folder: Path) -> tuple[Path, Expected]:
    _zero(folder / "tag", (16384.0, 8192.0))
    return folder / "tag", Expected("deepspeed_zero", 16384.0, faults=("ranks-disagree",))


@layout
def deepspeed_zero_lost_rank(folder: Path) -> tuple[Path, Expected]:
    _zero(folder, (4.0, 4.0, 4.0))
    (folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    return folder, Expected("deepspeed_zero", 4.0, faults=("missing-shard",))


@layout
def fastai(folder: Path) -> tuple[Path, Expected]:
    """fastai/learner.py `save_model`"""
    state = [{"grad_avg": T(0.5, (2, 3)), "sqr_avg": T(0.5, (2, 3)), "step": 9}]
    hypers = Obj("fastcore.foundation.L", ([{"lr": 1e-3, "mom": 0.9}],), call=True)
    root = {"model": weights(), "opt": {"state": state, "hypers": hypers}}
    expected = Expected("fastai", optimizer=9, missing=("scaler", "scheduler", "rng"), needs=("fastcore.foundation.L",))
    return save(folder / "m.pth", root), expected


@layout
def ignite(folder: Path) -> tuple[Path, Expected]:
    """ignite/handlers/checkpoint.py: one key for each object of `to_save`"""
    trainer = {"epoch_length": 50, "max_epochs": 4, "iteration": 75, "rng_states": None}
    root = {"model": weights(), "optimizer": adam(73), "trainer": trainer, "amp": scaler(8192.0, 21)}
    return save(folder / "checkpoint_75.pt", root), Expected("ignite", 8192.0, 21, "amp", 75, 73, 2)


@layout
def mmengine(folder: Path) -> tuple[Path, Expected]:
    """mmengine/runner/runner.py `save_checkpoint`, optim/optimizer/amp_optimizer_wrapper.py"""
    buffer = Obj(
        "mmengine.logging.history_buffer.HistoryBuffer",
        state={
            "_max_length": 1000000,
            "_statistics_methods": {
                "current": Obj(
                    "builtins.getattr", (G("mmengine.logging.history_buffer.HistoryBuffer"), "current"), call=True
                )
            },
        },
    )
    root = {
        "meta": {"mmengine_version": "0.10.7", "epoch": 2, "iter": 200, "seed": 3},
        "state_dict": weights(),
        "message_hub": {"log_scalars": {"train/loss": buffer}},
        "optimizer": {**adam(196), "loss_scaler": scaler(128.0, 5)},
        "param_schedulers": [{**schedule(), "last_step": 200}],
    }
    needs = ("mmengine.logging.history_buffer.HistoryBuffer", "builtins.getattr")
    return save(folder / "iter_200.pth", root), Expected(
        "mmengine", 128.0, 5, "optimizer.loss_scaler", 200, 196, 4, ("rng",), ("scheduler",), needs
    )


@layout
def timm(folder: Path) -> tuple[Path, Expected]:
    """timm/utils/checkpoint_saver.py; a torch zip, whatever its name ends in"""
    root = {
        "epoch": 7,
        "arch": "tiny",
        "state_dict": weights(),
        "optimizer": adam(300),
        "version": 2,
        "args": Obj("argparse.Namespace", state={"model": "tiny", "amp": True, "amp_dtype": "float16"}),
        "amp_scaler": scaler(32768.0, 812),
        "state_dict_ema": weights(),
        "metric": 71.2,
    }
    expected = Expected(
        "timm", 32768.0, 812, "amp_scaler", optimizer=300, missing=("scheduler", "rng"), needs=("argparse.Namespace",)
    )
    return save(folder / "last.pth.tar", root), expected


@layout
def timm_amp_without_scaler(folder: Path) -> tuple[Path, Expected]:
    root = {
        "epoch": 7,
        "arch": "tiny",
        "state_dict": weights(),
        "optimizer": adam(300),
        "version": 2,
        "args": Obj("argparse.Namespace", state={"amp": True, "amp_dtype": "float16"}),
    }
    return save(folder / "last.pth.tar", root), Expected("timm", missing=("scaler",), faults=("scaler-missing",))


@layout
def torchvision(folder: Path) -> tuple[Path, Expected]:
    """vision/references/classification/train.py"""
    root = {
        "model": weights(),
        "optimizer": adam(640),
        "lr_scheduler": schedule(),
        "epoch": 4,
        "args": Obj("argparse.Namespace", state={"amp": True, "lr": 0.1}),
        "model_ema": {**weights(prefix="module."), "n_averaged": T(640, (), "int64")},
        "scaler": scaler(16384.0, 640),
    }
    expected = Expected("torchvision", 16384.0, 640, "scaler", optimizer=640, needs=("argparse.Namespace",))
    return save(folder / "checkpoint.pth", root), expected


@layout
def ultralytics(folder: Path) -> tuple[Path, Expected]:
    """ultralytics/engine/trainer.py `save_model`: EMA and optimizer in half precision"""
    module = {"training": False, "_parameters": {"weight": T(1, (2, 3), "float16")}, "_buffers": {}, "_modules": {}}
    root = {
        "epoch": 5,
        "best_fitness": None,
        "model": None,
        "ema": Obj("ultralytics.nn.tasks.DetectionModel", state=module),
        "updates": 420,
        "optimizer": adam(418, "float16"),
        "scaler": scaler(65536.0, 418),
        "train_args": {"amp": True, "half": False},
        "version": "8.4.190",
    }
    needs = ("ultralytics.nn.tasks.DetectionModel",)
    return save(folder / "last.pt", root), Expected(
        "ultralytics", 65536.0, 418, "scaler", 420, 418, 2, needs=needs, faults=("moments-half",)
    )


@layout
def detectron2(folder: Path) -> tuple[Path, Expected]:
    """detectron2/engine/train_loop.py: `iteration` is an index"""
    hooks = {"LRScheduler": schedule()}
    inner = {"iteration": 99, "optimizer": adam(97), "grad_scaler": scaler(4096.0, 9)}
    root = {"model": weights(), "trainer": {"iteration": 99, "hooks": hooks, "_trainer": inner}, "iteration": 99}
    return save(folder / "model_0000099.pth", root), Expected(
        "detectron2", 4096.0, 9, "trainer._trainer.grad_scaler", 100, 97, 3
    )


@layout
def megatron(folder: Path) -> tuple[Path, Expected]:
    """megatron/training/checkpointing.py, core/optimizer/grad_scaler.py: the scale is a tensor"""
    grad_scaler = {"scale": T(1048576.0, (1,)), "growth_tracker": 5, "hysteresis_tracker": 2}
    rng = [
        {
            "random_rng_state": python_state(),
            "np_rng_state": numpy_state(),
            "torch_rng_state": cpu_state(),
            "cuda_rng_state": cuda_state(),
            "rng_tracker_states": {},
        }
    ]
    optimizer = {"optimizer": adam(0, counter=5), "grad_scaler": grad_scaler, "fp32_from_fp16_params": [[T(0.5, (6,))]]}
    root = {
        "args": Obj("argparse.Namespace", state={"fp16": True, "bf16": False}),
        "checkpoint_version": 3.0,
        "iteration": 5,
        "model": {"language_model": weights("float16")},
        "optimizer": optimizer,
        "opt_param_scheduler": {"max_lr": 1e-3, "lr_decay_style": "cosine", "num_steps": 40, "decay_style": "cosine"},
        "rng_state": rng,
    }
    save(folder / "iter_0000005" / "mp_rank_00" / "model_optim_rng.pt", root)
    save_as(folder / "latest_checkpointed_iteration.txt", b"5")
    return folder, Expected(
        "megatron",
        1048576.0,
        5,
        "mp_rank_00/model_optim_rng.pt: optimizer.grad_scaler",
        5,
        5,
        0,
        present=("rng.cuda", "scheduler"),
    )


@layout
def fairseq(folder: Path) -> tuple[Path, Expected]:
    """fairseq/trainer.py"""
    root = {
        "args": None,
        "cfg": {"common": {"fp16": True}},
        "model": weights(),
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "num_updates": 50}],
        "last_optimizer_state": {**adam(48), "loss_scale": 128.0},
        "extra_state": {"epoch": 1},
    }
    return save(folder / "checkpoint_last.pt", root), Expected(
        "fairseq", 128.0, None, "last_optimizer_state", 50, 48, 2
    )


@layout
def apex(folder: Path) -> tuple[Path, Expected]:
    """apex/amp/frontend.py `state_dict`"""
    root = {"model": weights(), "optimizer": adam(20), "amp": {"loss_scaler0": {"loss_scale": 8192.0, "unskipped": 12}}}
    return save(folder / "apex.pt", root), Expected("plain", 8192.0, 12, "amp.loss_scaler0")


def dcp_folder(base: Path, root: dict[str, object], fill: Callable[[bytes], bytes] = lambda data: data) -> Path:
    """A torch distributed checkpoint of nested `root` (torch/distributed/checkpoint/filesystem.py)."""
    module = "torch.distributed.checkpoint.metadata"
    described: dict[str, object] = {}
    placed: list[tuple[object, object]] = []
    planned: dict[str, object] = {}
    shard = b""
    for path, value in _flat(root, ()):
        name = ".".join(map(str, path))
        item = torch_zip_bytes(value)
        if isinstance(value, T):
            chunk = Obj(
                f"{module}.ChunkStorageMetadata", state={"offsets": (0,) * len(value.shape), "sizes": value.shape}
            )
            properties = Obj(f"{module}.TensorProperties", state=(G(f"torch.{value.dtype}"), None, False, None, False))
            described[name] = Obj(
                f"{module}.TensorStorageMetadata",
                state={"properties": properties, "size": value.shape, "chunks": [chunk]},
            )
        else:
            described[name] = Obj(f"{module}.BytesStorageMetadata")
        index = Obj(f"{module}.MetadataIndex", state={"fqn": name, "offset": None, "index": 0})
        info = {
            "relative_path": "__0_0.distcp",
            "offset": len(shard),
            "length": len(item),
            "transform_descriptors": None,
        }
        placed.append((index, Obj("torch.distributed.checkpoint.filesystem._StorageInfo", state=info)))
        planned[name] = path
        shard += item
    state = {
        "state_dict_metadata": described,
        "planner_data": planned,
        "storage_data": dict(placed),
        "version": "1.0.0",
    }
    save_as(base / "__0_0.distcp", fill(shard))
    save_as(base / ".metadata", pickled(Obj(f"{module}.Metadata", state=state)))
    return base


def _flat(node: object, path: tuple[object, ...]) -> list[tuple[tuple[object, ...], object]]:
    if isinstance(node, dict) and node:
        return [leaf for key, value in node.items() for leaf in _flat(value, (*path, key))]
    return [(path, node)]


@layout
def dcp(folder: Path) -> tuple[Path, Expected]:
    root = {
        "model": weights(),
        "optimizer": adam(7),
        "scaler": scaler(2048.0, 4),
        "lr_scheduler": schedule(),
        "step": 8,
        "rng": cpu_state(),
    }
    base = dcp_folder(folder / "step-8", root)
    return base, Expected(
        "dcp", 2048.0, 4, "scaler", 8, 7, 1, present=("rng.cpu", "scheduler"), parameters={"float32": 3}
    )


@layout
def dcp_unfinished(folder: Path) -> tuple[Path, Expected]:
    base, _ = dcp(folder)
    (base / ".metadata").unlink()
    return base, Expected("dcp", faults=("unfinished",))


@layout
def dcp_cut_off(folder: Path) -> tuple[Path, Expected]:
    base = dcp_folder(folder / "cut", {"scaler": scaler(2048.0), "model": weights()}, lambda shard: shard[:-900])
    return base, Expected("dcp", 2048.0, faults=("truncated", "damaged"))


@layout
def loose_files(folder: Path) -> tuple[Path, Expected]:
    """A script that writes its parts side by side"""
    save(folder / "model.pt", weights())
    save(folder / "optim.pt", adam(3))
    save(folder / "scaler.pt", scaler(2.0, 1))
    return folder, Expected("plain", 2.0, 1, "scaler.pt", optimizer=3)
