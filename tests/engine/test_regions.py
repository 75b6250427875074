"""FP32 regions: what runs inside, what is put back, what is refused, and how few replays the search needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from amptui.engine.regions import RegionError, find_regions, fp32_regions, outermost
from amptui.engine.tracing import Origin, trace

torch.set_num_threads(1)
HALF = torch.float16


class Attention(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.qkv, self.out, self.gain = nn.Linear(8, 24), nn.Linear(8, 8), gain

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q * self.gain) @ (k * self.gain).transpose(1, 2)
        return self.out(torch.softmax(scores / self.gain**2, -1) @ v)


class Block(nn.Module):
    def __init__(self, attention: float, mlp: float) -> None:
        super().__init__()
        self.attn = Attention(attention)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 8))
        self.mlp_gain = mlp

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.mlp(x)


class Net(nn.Module):
    """Faults in `blocks.1.attn` (its own functional code) and, with `mlp`, in `blocks.2.mlp.0` (a linear layer)."""

    def __init__(self, attention: float = 1.0, mlp: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([Block(attention if i == 1 else 1.0, 1.0) for i in range(4)])
        with torch.no_grad():
            self.blocks[2].mlp[0].weight.mul_(mlp)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))


def replay_of(model: nn.Module, x: Tensor = X):
    def replay(regions: tuple[str, ...]) -> Sequence[Origin]:
        def run() -> Tensor:
            model.zero_grad()
            with torch.autocast("cpu", HALF):
                loss = model(x).float().mean()
            loss.backward()
            return loss

        with fp32_regions(model, regions) as entered:
            found = trace(run, modules=model, inputs={"x": x})
        entered.check()
        return found.blame(loss=found.value, gradients={n: p.grad for n, p in model.named_parameters()})

    return replay


def test_region_runs_in_float32_and_leaves_the_module_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    before = dict(model[1].__dict__)
    seen = []
    model[1].register_forward_hook(lambda m, i, o: seen.append((i[0].dtype, o.dtype)))
    keys = list(model.state_dict())
    with fp32_regions(model, ["1"]) as regions, torch.autocast("cpu", HALF):
        assert list(model.state_dict()) == keys
        out = model(torch.ones(2, 4))
    assert out.dtype == torch.float32
    assert seen == [(HALF, torch.float32)]  # hooks see what the caller passes; forward gets float32
    assert regions.calls == {"1": 1}
    assert "forward" not in model[1].__dict__
    assert before.keys() == model[1].__dict__.keys()


def test_inputs_are_widened_inside_containers_and_outputs_can_be_cast_back() -> None:
    class Takes(nn.Module):
        def forward(self, pair: dict[str, Tensor], *, scale: Tensor) -> tuple[Tensor, int]:
            assert pair["a"].dtype == scale.dtype == torch.float32
            assert not torch.is_autocast_enabled("cpu")
            return pair["a"] * scale, 3

    model = nn.ModuleDict({"takes": Takes()})
    with fp32_regions(model, ["takes"], cast_back=True), torch.autocast("cpu", HALF):
        out, number = model["takes"]({"a": torch.ones(2).half()}, scale=torch.ones(1).bfloat16())
    assert (out.dtype, number) == (HALF, 3)


def test_forward_that_was_replaced_before_is_put_back() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    own = model[0].forward
    replaced = lambda x: own(x) + 1  # noqa: E731
    model[0].forward = replaced
    with fp32_regions(model, ["0"]):
        assert model[0].forward is not replaced
    assert model[0].forward is replaced


def test_forward_is_put_back_after_an_exception() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(RuntimeError), fp32_regions(model, ["0"]):
        model(torch.ones(2, 5))
    assert "forward" not in model[0].__dict__


def test_module_that_is_never_called_is_refused() -> None:
    model = nn.ModuleDict({"mha": nn.MultiheadAttention(8, 2, batch_first=True)})
    with fp32_regions(model, ["mha.out_proj"]) as regions, torch.autocast("cpu", HALF):
        model["mha"](X, X, X)
    with pytest.raises(RegionError, match=r"never called.*'mha'"):
        regions.check()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("blocks.1.atn", "; did you mean 'blocks.1.attn'?"),
        ("Blocks.1.attn", "; did you mean 'blocks.1.attn'?"),
        ("blocks.1.entirely_other", "; inside 'blocks.1' there are blocks.1.attn, blocks.1.mlp"),
        ("nowhere", "; it has blocks"),
        ("nowhere.at.all", "; it has blocks"),
        ("Blocks.9.attn", "; it has blocks"),
        ("blocks.1.attn.out.x", ""),
        ("mlp.2", "; did you mean 'blocks.0.mlp.2'?"),
        ("model.blocks.1.attn", "; did you mean 'blocks.1.attn'?"),
    ],
)
def test_an_unknown_path_is_told_with_what_was_meant(path: str, said: str) -> None:
    with pytest.raises(RegionError) as caught, fp32_regions(Net(), ["blocks.0", path]):
        pass
    assert str(caught.value) == f"FP32 region {path!r}: the model has no such module{said}"


def test_a_model_without_modules_has_none_to_name() -> None:
    with pytest.raises(RegionError, match=r"no such module$"), fp32_regions(nn.ReLU(), ["head"]):
        pass


def test_half_parameters_are_refused() -> None:
    with (
        pytest.raises(RegionError, match="weight is float16"),
        fp32_regions(nn.Sequential(nn.Linear(2, 2).half()), ["0"]),
    ):
        pass


def test_nested_regions_count_once() -> None:
    assert outermost(["a.b", "a", "c", "a.b.c", "ab"]) == ("a", "c", "ab")
    assert outermost(["", "a"]) == ("",)


def test_paths_of_a_mapping_begin_with_its_keys() -> None:
    modules = {"G": nn.Sequential(nn.Linear(2, 2)), "D": nn.Sequential(nn.Linear(2, 2))}
    with fp32_regions(modules, ["G.0"]) as regions, torch.autocast("cpu", HALF):
        assert modules["G"](torch.ones(1, 2)).dtype == torch.float32
        assert modules["D"](torch.ones(1, 2)).dtype == HALF
    assert regions.calls == {"G.0": 1}


@pytest.mark.parametrize(
    ("model", "regions", "faults"),
    [
        (Net(attention=1e4), {"blocks.1.attn"}, 1),
        (Net(mlp=3e5), {"blocks.2.mlp.0"}, 1),
        (Net(attention=1e4, mlp=3e5), {"blocks.1.attn", "blocks.2.mlp.0"}, 2),
    ],
    ids=["one", "a layer", "two"],
)
def test_search_takes_k_plus_two_replays(model: Net, regions: set[str], faults: int) -> None:
    found = find_regions(replay_of(model), model)
    assert found.solved
    inside = {next((r for r in regions if path == r or r.startswith(path + ".")), path) for path in found.regions}
    assert inside == regions
    assert len(found.regions) == faults
    assert found.replays <= faults + 2


def test_search_ends_where_no_region_helps() -> None:
    bad = X.clone()
    bad[0, 0, 0] = math.nan
    found = find_regions(replay_of(Net(), bad), Net())
    assert not found.solved
    assert "before any op" in found.reason


def replay_of_loss(model: nn.Module, loss):
    def replay(regions: tuple[str, ...]) -> Sequence[Origin]:
        def run() -> Tensor:
            with torch.autocast("cpu", HALF):
                return loss(model(torch.ones(1, 4)))

        with fp32_regions(model, regions):
            found = trace(run, modules=model)
        return found.blame(loss=found.value)

    return replay


def test_fault_in_the_loss_is_mended_by_what_feeds_it() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def loss(out: Tensor) -> Tensor:
        return (out * 0 + 300).square().mean()

    found = find_regions(replay_of_loss(model, loss), model)
    assert (found.solved, found.regions, found.replays) == (True, ("2",), 2)


def test_fault_in_the_code_of_the_root_takes_the_layer_that_made_it_half() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return (self.head(torch.relu(self.body(x))).unsqueeze(-1) * 0 + 300).square()

    found = find_regions(replay_of_loss(Root(), Tensor.mean), Root())
    assert (found.solved, found.regions, found.replays) == (True, ("head",), 2)


def test_search_says_so_when_the_loss_itself_is_half() -> None:
    model = nn.Sequential(nn.Linear(4, 4))

    def loss(out: Tensor) -> Tensor:
        return (out.half() * 0 + 300).square().square().mean()

    found = find_regions(replay_of_loss(model, loss), model)
    assert (found.solved, found.regions, found.replays) == (False, ("0",), 2)
    assert "'loss'" in found.reason


def test_search_widens_a_region_that_still_fails() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))

    class Fault:
        module, makers, is_source = "0.0", (), False

    tried: list[tuple[str, ...]] = []

    def replay(regions: tuple[str, ...]) -> list[Fault]:
        tried.append(regions)
        return [] if regions == ("0",) else [Fault()]

    found = find_regions(replay, model)
    assert tried == [(), ("0.0",), ("0",)]
    assert found.regions == ("0",)
