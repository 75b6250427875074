"""The stretch: which batches are drawn, how they are kept, and that every run sees the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from amptui import Project, Update
from amptui.engine import batches as freezing
from amptui.engine.batches import FrozenBatches, draw, free_memory, freeze
from amptui.engine.failures import UserCodeError
from amptui.engine.nested import tensors_in
from amptui.engine.opening import open_project
from amptui.session.errors import SessionError
from tests.engine.projects import Net, weighted_loss


def frozen(
    source: Any, folder: Path, *, accumulate: int = 1, iterations: int | None = None, **how: Any
) -> FrozenBatches:
    drawn = draw(source, accumulate=accumulate, iterations=iterations)
    return freeze(drawn, accumulate=accumulate, device=how.pop("device", None), folder=folder, **how)


def values(batches: FrozenBatches) -> list[float]:
    return [float(batch[0]) for step in range(batches.iterations) for batch in batches.window(step)]


def endless() -> Iterator[tuple[Tensor]]:
    number = 0.0
    while True:
        yield (torch.tensor(number),)
        number += 1.0


class Numbers(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Tensor:
        if index >= 60:
            raise IndexError
        return torch.tensor(float(index))


def test_a_list_is_taken_whole(tmp_path: Path) -> None:
    assert frozen([(torch.tensor(float(i)),) for i in range(70)], tmp_path).iterations == 70
    assert frozen(lambda: [(torch.ones(1),)] * 70, tmp_path).iterations == 70
    assert frozen([(torch.ones(1),)] * 70, tmp_path, iterations=4).iterations == 4, "unless fewer are asked for"


@pytest.mark.parametrize(
    "source",
    [endless, partial(endless), endless(), (b for b in endless()), DataLoader(Numbers(), batch_size=1), Numbers()],
    ids=["function", "partial", "iterator", "generator", "data loader", "dataset"],
)
def test_of_anything_else_fifty_windows_at_most_are_drawn(source: Any, tmp_path: Path) -> None:
    assert frozen(source, tmp_path).iterations == 50


def test_windows_are_counted_not_batches(tmp_path: Path) -> None:
    batches = frozen(endless, tmp_path, accumulate=3, iterations=2)
    assert len(batches.batches) == 6
    assert [[float(b[0]) for b in batches.window(step)] for step in range(2)] == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_a_short_iterable_gives_what_it_has(tmp_path: Path) -> None:
    assert frozen(iter([torch.ones(1)] * 3), tmp_path).iterations == 3
    assert frozen([], tmp_path).iterations == 0


def test_a_dataset_that_can_be_called_is_iterated(tmp_path: Path) -> None:
    class Both(Numbers):
        def __call__(self) -> None:
            raise AssertionError

        def __iter__(self) -> Iterator[Tensor]:
            return iter([torch.ones(1)] * 2)

    assert frozen(Both(), tmp_path).iterations == 2


def test_an_incomplete_window_is_counted_and_left_out(tmp_path: Path) -> None:
    batches = frozen([(torch.tensor(float(i)),) for i in range(7)], tmp_path, accumulate=3)
    assert (batches.iterations, batches.remainder) == (2, 1)
    assert values(batches) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_nothing_more_than_needed_is_drawn(tmp_path: Path) -> None:
    asked = []

    def counting() -> Iterator[Tensor]:
        for number in range(100):
            asked.append(number)
            yield torch.tensor(float(number))

    frozen(counting, tmp_path, accumulate=2, iterations=3)
    assert len(asked) == 6


@pytest.mark.parametrize("limit", [0, 10**9])
def test_a_generator_that_fills_one_tensor_again_and_again_gives_different_batches(limit: int, tmp_path: Path) -> None:
    def refilled() -> Iterator[tuple[Tensor]]:
        buffer = torch.zeros(1)
        for number in range(4):
            buffer.fill_(number)
            yield (buffer,)

    assert values(frozen(refilled, tmp_path, memory_limit=limit)) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("limit", [0, 100, 10**9])
def test_edits_in_place_do_not_reach_the_next_run(limit: int, tmp_path: Path) -> None:
    batches = frozen([{"x": torch.full((8,), float(i))} for i in range(4)], tmp_path, memory_limit=limit)
    for _run in range(2):
        for step in range(4):
            [batch] = batches.window(step)
            assert torch.equal(batch["x"], torch.full((8,), float(step)))
            batch["x"].zero_()
            batch["new"] = 1


def test_the_projects_own_list_may_change_afterwards(tmp_path: Path) -> None:
    own = [(torch.ones(1),)]
    batches = frozen(own, tmp_path)
    own[0][0].zero_()
    own.clear()
    assert values(batches) == [1.0]


def test_the_stretch_repeats_after_its_end(tmp_path: Path) -> None:
    batches = frozen([(torch.tensor(float(i)),) for i in range(3)], tmp_path)
    assert [float(next(batches.window(step))[0]) for step in (2, 3, 7)] == [2.0, 0.0, 1.0]


def rich() -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    shared = torch.randn(3, generator=generator)
    return [
        {
            "image": torch.randn(1, 3, 4, 4, generator=generator).to(memory_format=torch.channels_last),
            "view": torch.randn(6, 6, generator=generator)[1:3, ::2],
            "twice": (shared, shared),
            "latent": torch.randn(2, generator=generator).requires_grad_(),
            "flags": torch.tensor([True, False]),
            "complex": torch.randn(2, dtype=torch.complex64, generator=generator),
            "empty": torch.empty(0, 4),
            "scalar": torch.tensor(2, dtype=torch.int64),
            "text": "kept",
        }
        for _ in range(3)
    ]


def test_mapped_batches_equal_those_in_memory_in_every_respect(tmp_path: Path) -> None:
    kept = frozen(rich(), tmp_path / "kept", memory_limit=10**9)
    mapped = frozen(rich(), tmp_path / "mapped", memory_limit=0)
    assert not kept.mapped
    assert mapped.mapped
    assert kept.digest == mapped.digest
    assert len(list((tmp_path / "mapped").iterdir())) == 3
    assert not (tmp_path / "kept").exists()
    for step in range(3):
        [one], [other] = kept.window(step), mapped.window(step)
        assert one.keys() == other.keys()
        for mine, its in zip(tensors_in(one), tensors_in(other), strict=True):
            assert torch.equal(mine, its)
            assert (mine.dtype, mine.stride(), mine.requires_grad) == (its.dtype, its.stride(), its.requires_grad)
        assert other["twice"][0] is other["twice"][1]
        assert other["text"] == "kept"


def test_batches_are_mapped_from_the_moment_that_memory_runs_out(tmp_path: Path) -> None:
    batches = frozen([(torch.full((4,), float(i)),) for i in range(6)], tmp_path, memory_limit=40)
    assert batches.mapped
    assert len(list(tmp_path.iterdir())) == 6, "those before it too"
    assert [float(b[0][0]) for s in range(6) for b in batches.window(s)] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_mapped_view_is_stored_without_what_it_is_a_view_of(tmp_path: Path) -> None:
    frozen([torch.zeros(1_000_000)[:10]], tmp_path, memory_limit=0)
    [file] = tmp_path.iterdir()
    assert file.stat().st_size < 10_000


def test_tensors_that_no_file_holds_plainly_stay_in_memory(tmp_path: Path) -> None:
    sparse = torch.eye(3).to_sparse()
    batches = frozen([(sparse,)], tmp_path, memory_limit=0)
    [batch] = batches.window(0)
    assert torch.equal(batch[0].to_dense(), torch.eye(3))


def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    target = tmp_path / "taken"
    target.mkdir()
    (target / "000000.pt").mkdir()
    with pytest.raises(SessionError, match="cannot be kept there"):
        frozen([torch.ones(1)], target, memory_limit=0)


def test_the_digest_is_of_the_whole_windows_content(tmp_path: Path) -> None:
    one = frozen([torch.ones(1), torch.zeros(1), torch.ones(2)], tmp_path, accumulate=2)
    assert one.digest == frozen([torch.ones(1), torch.zeros(1)], tmp_path, accumulate=2).digest
    assert one.digest != frozen([torch.zeros(1), torch.ones(1)], tmp_path, accumulate=2).digest


def test_batches_are_moved_to_the_device_of_the_run(tmp_path: Path) -> None:
    for limit in (0, 10**9):
        batches = frozen([(torch.ones(1),)], tmp_path / str(limit), device=torch.device("meta"), memory_limit=limit)
        assert next(batches.window(0))[0].device.type == "meta"


def test_free_memory_is_what_the_machine_and_the_control_group_leave(tmp_path: Path) -> None:
    assert 0 < free_memory() < 2**50
    group = tmp_path / "job" / "step"
    group.mkdir(parents=True)
    (tmp_path / "own").write_text("0::/job/step\n")
    assert freezing._free_in_group(tmp_path, tmp_path / "own") is None
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("100\n")
    assert freezing._free_in_group(tmp_path, tmp_path / "own") is None
    (tmp_path / "job" / "memory.max").write_text("1000\n")
    (tmp_path / "job" / "memory.current").write_text("400\n")
    assert freezing._free_in_group(tmp_path, tmp_path / "own") == 600


def test_what_raises_while_batches_are_drawn_is_the_projects_own(tmp_path: Path) -> None:
    def breaking() -> Iterator[Any]:
        yield (torch.ones(8, 6), torch.ones(8, 1), 1.0)
        raise ValueError("row 17 has no label")

    model = Net()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=weighted_loss)
    told: list[tuple[int, int]] = []
    with pytest.raises(UserCodeError) as failed:
        open_project(
            Project(model=model, updates=[update], batches=breaking),
            device=None,
            iterations=None,
            folder=tmp_path,
            on_progress=lambda *at: told.append(at),
        )
    assert failed.value.phase == "batches"
    assert failed.value.message == "row 17 has no label"
    assert failed.value.where == f"{__file__}:{breaking.__code__.co_firstlineno + 2}"
    assert told == [(1, 50)]
