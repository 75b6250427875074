"""Layouts of folders: the counters in their side files."""

from __future__ import annotations

from collections.abc import Mapping

from amptui.inspection.containers.loaded import Loaded
from amptui.inspection.layouts.files import file_layout
from amptui.inspection.layouts.layout import Layout, counter, text, titled
from amptui.inspection.nodes import Node, mapping_of, number_of


def folder_layout(kind: str, files: Mapping[str, Loaded]) -> Layout:
    """The layout of a folder of this `kind` (see `folder.plan`), given its files by name."""
    tops = {name: mapping_of(loaded.root) or {} for name, loaded in files.items()}
    if kind == "hf_trainer":
        return _hf_trainer(tops)
    if kind == "accelerate":
        return _accelerate(tops)
    if kind in ("deepspeed", "deepspeed_zero"):
        return _deepspeed(kind, files)
    if kind in ("dcp", "lightning_fsdp", "megatron_dist"):
        return _distributed(kind, tops)
    if kind == "weights":
        return Layout(name="hf_weights", title="Hugging Face weights")
    readable = [loaded for loaded in files.values() if loaded.readable]
    layouts = [file_layout(loaded.root, loaded.container) for loaded in readable]
    named = [layout for layout in layouts if layout.name not in ("plain", "safetensors")]
    if kind == "megatron":
        return named[0] if named else Layout(name="megatron", title="Megatron-LM")
    if named:
        return named[0]
    counted = [layout for layout in layouts if layout.loop is not None]
    return (
        counted[0]
        if counted
        else layouts[0]
        if len(layouts) == 1
        else Layout(name="plain", title="plain PyTorch files")
    )


def _hf_trainer(tops: Mapping[str, Mapping[Node, Node]]) -> Layout:
    state = tops.get("trainer_state.json", {})
    loop, key = counter(state, "global_step")
    version = text(tops.get("config.json", {}), "transformers_version")
    return Layout(
        name="hf_trainer",
        title=titled("Hugging Face Trainer, transformers" if version else "Hugging Face Trainer", version),
        loop=loop,
        loop_path=f"trainer_state.json: {key}" if key else "",
        loop_is_exact=True,
        epoch=number_of(state.get("epoch")),
    )


def _accelerate(tops: Mapping[str, Mapping[Node, Node]]) -> Layout:
    """`step` in random_states is the Accelerator's own counter of `accumulate` calls: micro-batches."""
    for name, top in tops.items():
        if name.startswith("random_states"):
            loop, key = counter(top, "step")
            return Layout(
                name="accelerate", title="Accelerate", loop=loop or None, loop_path=f"{name}: {key}" if loop else ""
            )
    return Layout(name="accelerate", title="Accelerate")


def _deepspeed(kind: str, files: Mapping[str, Loaded]) -> Layout:
    for loaded in files.values():
        layout = file_layout(loaded.root, loaded.container)
        if layout.name == "deepspeed":
            title = layout.title.replace("DeepSpeed", "DeepSpeed ZeRO") if kind == "deepspeed_zero" else layout.title
            return Layout(
                name=kind,
                title=title,
                loop=layout.loop,
                loop_path=layout.loop_path,
                loop_is_exact=True,
                skipped=layout.skipped,
                never=layout.never,
            )
    return Layout(name=kind, title="DeepSpeed ZeRO" if kind == "deepspeed_zero" else "DeepSpeed")


def _distributed(kind: str, tops: Mapping[str, Mapping[Node, Node]]) -> Layout:
    names = {
        "dcp": ("dcp", "torch distributed checkpoint"),
        "lightning_fsdp": ("lightning", "PyTorch Lightning, sharded"),
        "megatron_dist": ("megatron", "Megatron-LM, distributed"),
    }
    name, title = names[kind]
    for file, top in tops.items():
        flat = top.get("train_state") if "train_state" in top else top
        loop, key = counter(mapping_of(flat) or {}, "global_step", "step", "iteration")
        if key:
            return Layout(name=name, title=title, loop=loop, loop_path=f"{file}: {key}" if file else key)
    return Layout(name=name, title=title)
