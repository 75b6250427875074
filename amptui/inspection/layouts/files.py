"""Layouts of single files, by their top keys. Each recogniser names the code that writes what it looks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from amptui.inspection.layouts.layout import Layout, counter, inner, text, titled
from amptui.inspection.nodes import Call, Node, Tensor, mapping_of, number_of

Top = Mapping[Node, Node]
_STEP_KEYS = (
    "global_step",
    "global_steps",
    "num_updates",
    "step",
    "steps",
    "iteration",
    "iter",
    "iter_num",
    "it",
    "n_iter",
)


def file_layout(root: Node, container: str) -> Layout:
    """The layout of one file's tree; `plain` where no framework is recognised."""
    top = mapping_of(root) or {}
    if container == "safetensors":
        return Layout(name="safetensors", title="safetensors weights")
    if is_module(root):
        title = f"whole module {root.name.rpartition('.')[2][:40]}" if isinstance(root, Call) else "whole module"
        return Layout(name="whole_module", title=title.strip())
    for recogniser in _RECOGNISERS:
        layout = recogniser(top)
        if layout is not None:
            return layout
    loop, key = counter(top, *_STEP_KEYS)
    return Layout(name="plain", title="plain PyTorch", loop=loop, loop_path=key, epoch=number_of(top.get("epoch")))


def is_module(node: Node) -> bool:
    """Whether `node` is a pickled `nn.Module`."""
    fields = mapping_of(node) if isinstance(node, Call) else None
    return fields is not None and "_modules" in fields and "_parameters" in fields


def _lightning(top: Top) -> Layout | None:
    """lightning/pytorch/trainer/connectors/checkpoint_connector.py `dump_checkpoint`"""
    if "pytorch-lightning_version" not in top:
        return None
    loop, key = counter(top, "global_step")
    return Layout(
        name="lightning",
        title=titled("PyTorch Lightning", text(top, "pytorch-lightning_version")),
        loop=loop,
        loop_path=key,
        loop_is_sum=True,
        loop_is_exact=True,
        epoch=number_of(top.get("epoch")),
        never={"rng": "Lightning saves no RNG state: dropout and shuffling go on differently after a resume."},
    )


def _mmengine(top: Top) -> Layout | None:
    """mmengine/runner/runner.py `save_checkpoint`"""
    if not ("meta" in top and ("message_hub" in top or "param_schedulers" in top)):
        return None
    meta = inner(top, "meta")
    loop, key = counter(meta, "iter")
    return Layout(
        name="mmengine",
        title=titled("MMEngine", text(meta, "mmengine_version")),
        loop=loop,
        loop_path=f"meta.{key}" if key else "",
        epoch=number_of(meta.get("epoch")),
        never={"rng": "MMEngine saves a seed but no RNG state."},
    )


def _detectron2(top: Top) -> Layout | None:
    """detectron2/engine/train_loop.py `TrainerBase.state_dict`: `iteration` is the index of the last iteration done"""
    if "_trainer" not in inner(top, "trainer") and not {"model", "trainer", "iteration"} <= top.keys():
        return None
    last, _ = counter(top, "iteration")
    return Layout(
        name="detectron2",
        title="Detectron2",
        loop=None if last is None else last + 1,
        loop_path="iteration",
        never={"rng": "Detectron2 saves no RNG state."},
    )


def _deepspeed(top: Top) -> Layout | None:
    """deepspeed/runtime/engine.py `_save_checkpoint`, deepspeed/runtime/zero/stage_1_and_2.py `state_dict`"""
    state = inner(top, "optimizer_state_dict")
    if "zero_stage" in state or {"partition_count", "loss_scaler"} <= state.keys():
        return Layout(name="deepspeed_zero", title=titled("DeepSpeed ZeRO optimizer part", text(top, "ds_version")))
    if "ds_version" not in top and not {"module", "global_steps", "skipped_steps"} <= top.keys():
        return None
    loop, key = counter(top, "global_steps")
    skipped, _ = counter(top, "skipped_steps")
    return Layout(
        name="deepspeed",
        title=titled("DeepSpeed", text(top, "ds_version")),
        loop=loop,
        loop_path=key,
        loop_is_exact=True,
        skipped=skipped,
        never={"rng": "DeepSpeed saves no RNG state."},
    )


def _megatron(top: Top) -> Layout | None:
    """megatron/training/checkpointing.py `generate_state_dict`"""
    if not ({"checkpoint_version", "args"} <= top.keys() or {"opt_param_scheduler", "iteration"} <= top.keys()):
        return None
    loop, key = counter(top, "iteration")
    return Layout(name="megatron", title="Megatron-LM", loop=loop, loop_path=key, loop_is_exact=True)


def _timm(top: Top) -> Layout | None:
    """timm/utils/checkpoint_saver.py `_save`"""
    if not {"arch", "state_dict", "version"} <= top.keys() or "epoch" not in top:
        return None
    return Layout(
        name="timm",
        title="timm",
        epoch=number_of(top.get("epoch")),
        never={
            "scheduler": "timm saves no scheduler: it is set from the epoch on a resume.",
            "rng": "timm saves no RNG state.",
        },
    )


def _ultralytics(top: Top) -> Layout | None:
    """ultralytics/engine/trainer.py `save_model`: EMA and optimizer are cast to half on purpose"""
    if not {"train_args", "ema"} <= top.keys():
        return None
    loop, key = counter(top, "updates")
    return Layout(
        name="ultralytics",
        title=titled("Ultralytics YOLO", text(top, "version")),
        loop=loop,
        loop_path=key,
        epoch=number_of(top.get("epoch")),
        never={
            "scheduler": "Ultralytics saves no scheduler.",
            "rng": "Ultralytics saves no RNG state.",
        },
        halves_on_save=True,
    )


def _fairseq(top: Top) -> Layout | None:
    """fairseq/trainer.py `state_dict`"""
    if not {"optimizer_history", "last_optimizer_state"} <= top.keys():
        return None
    history = top.get("optimizer_history")
    last = mapping_of(history[-1]) if isinstance(history, list) and history else None
    loop, key = counter(last or {}, "num_updates")
    return Layout(name="fairseq", title="fairseq", loop=loop, loop_path=f"optimizer_history.-1.{key}" if key else "")


def _fastai(top: Top) -> Layout | None:
    """fastai/learner.py `save_model`, fastai/optimizer.py `state_dict`"""
    if not {"model", "opt"} <= top.keys() or "hypers" not in inner(top, "opt"):
        return None
    return Layout(
        name="fastai",
        title="fastai",
        never={
            "scaler": "fastai never saves the scaler: a resume starts again at its first scale. "
            "Save learn.mixed_precision's scaler state yourself.",
            "scheduler": "fastai saves no scheduler.",
            "rng": "fastai saves no RNG state.",
        },
    )


def _torchvision(top: Top) -> Layout | None:
    """vision/references/*/train.py"""
    if not {"model", "optimizer", "lr_scheduler", "epoch", "args"} <= top.keys():
        return None
    never = {"rng": "torchvision's reference scripts save no RNG state."}
    return Layout(name="torchvision", title="torchvision reference", epoch=number_of(top.get("epoch")), never=never)


def _ignite(top: Top) -> Layout | None:
    """ignite/engine/engine.py `Engine.state_dict`, one key for each object in `to_save`"""
    for key, value in top.items():
        fields = mapping_of(value)
        if fields and {"epoch_length", "max_epochs"} <= fields.keys() and {"iteration", "epoch"} & fields.keys():
            loop, name = counter(fields, "iteration")
            epoch = number_of(fields.get("epoch"))
            return Layout(
                name="ignite", title="PyTorch Ignite", loop=loop, loop_path=f"{key}.{name}" if name else "", epoch=epoch
            )
    return None


def _amptui(top: Top) -> Layout | None:
    """amptui/engine/checkpoint_content.py `content_of`: FP32 before the first update of a trial, whole"""
    versions = inner(top, "amptui")
    if "format" not in versions or not {"model", "optimizers", "schedulers", "rng", "position"} <= top.keys():
        return None
    none = {"scaler", "data", *(["scheduler"] if not inner(top, "schedulers") else [])}
    none |= {"optimizer"} if not inner(top, "optimizers") else set()
    title = titled("FP32 checkpoint of amptui", text(versions, "amptui"))
    return Layout(name="amptui", title=title, had_none=frozenset(none))


def _weights_alone(top: Top) -> Layout | None:
    tensors = sum(isinstance(value, Tensor) for value in top.values())
    if tensors and tensors == sum(key != "__metadata__" for key in top):
        return Layout(name="plain", title="plain state dict")
    return None


_RECOGNISERS: tuple[Callable[[Top], Layout | None], ...] = (
    _amptui,
    _lightning,
    _mmengine,
    _detectron2,
    _deepspeed,
    _megatron,
    _timm,
    _ultralytics,
    _fairseq,
    _fastai,
    _torchvision,
    _ignite,
    _weights_alone,
)
