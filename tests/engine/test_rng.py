"""Every generator that a step may draw from is captured and put back."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from amptui.engine import rng


def draws() -> list[float]:
    return [
        torch.rand(1).item(),
        random.random(),
        float(np.random.rand()),
        random.gauss(0, 1),
        float(np.random.randn()),
    ]


def test_after_a_restore_the_same_numbers_are_drawn() -> None:
    draws()  # both gaussian generators now hold a spare number
    state = rng.capture()
    first = draws()
    assert draws() != first
    assert rng.restore(state) == ()
    assert draws() == first
    assert rng.restore(state) == ()
    assert rng.capture() == state


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: torch.rand(1), "torch"),
        (random.random, "python"),
        (np.random.rand, "numpy"),
        (np.random.randn, "numpy"),
    ],
)
def test_the_generator_that_moved_is_named(draw: object, name: str) -> None:
    state = rng.capture()
    assert callable(draw)
    draw()
    moved = rng.capture()
    assert moved != state
    assert moved.first_difference(state) == name
    rng.restore(state)


def test_drawing_does_not_change_a_captured_state() -> None:
    state = rng.capture()
    plain = state.as_plain()
    draws()
    assert state == rng.RngState.from_plain(plain)


def test_unchanged_parts_are_shared_with_an_earlier_state() -> None:
    earlier = rng.capture()
    random.random()
    later = rng.capture(like=earlier)
    assert later.torch_cpu is earlier.torch_cpu
    assert later.numpy is earlier.numpy
    assert later.python is not earlier.python
    assert later.first_difference(earlier) == "python"


def test_a_state_survives_a_safe_file(tmp_path: object) -> None:
    state = rng.capture()
    path = f"{tmp_path}/rng.pt"
    torch.save(state.as_plain(), path)
    loaded = rng.RngState.from_plain(torch.load(path, weights_only=True))
    assert loaded == state
    first = draws()
    rng.restore(loaded)
    assert draws() == first


def test_another_numpy_generator_is_kept_too() -> None:
    before = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(5))
        state = rng.RngState.from_plain(rng.capture().as_plain())
        first = np.random.rand()
        rng.restore(state)
        assert np.random.rand() == first
    finally:
        np.random.set_bit_generator(before)


def test_generators_that_this_process_lacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    state = rng.capture()
    with_cuda = rng.RngState(
        state.torch_cpu, {0: torch.zeros(16, dtype=torch.uint8), 7: torch.zeros(16)}, state.python, state.numpy
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert rng.restore(with_cuda) == ("cuda:0", "cuda:7")
    assert with_cuda != state
    assert with_cuda.first_difference(state) == "cuda:0"


def test_numpy_is_not_imported_by_asking() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "from amptui.engine import rng\n"
        "state = rng.capture(); assert state.numpy is None; assert state.cuda == {}\n"
        "assert rng.RngState.from_plain(state.as_plain()) == state; assert rng.restore(state) == ()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.gpu
def test_every_cuda_device_is_captured() -> None:
    torch.cuda.init()
    state = rng.capture()
    assert list(state.cuda) == list(range(torch.cuda.device_count()))
    first = torch.rand(3, device="cuda").tolist()
    assert rng.capture().first_difference(state) == "cuda:0"
    rng.restore(rng.RngState.from_plain(state.as_plain()))
    assert torch.rand(3, device="cuda").tolist() == first


def test_what_numpy_drew_is_seen_without_asking_numpy_also_a_kept_normal_deviate() -> None:
    numpy = pytest.importorskip("numpy")
    numpy.random.seed(5)
    first = rng.capture()
    assert rng.capture(first).numpy is first.numpy, "nothing drawn: the state is shared"
    drawn = numpy.random.random()
    assert rng.capture(first) != first
    rng.restore(first)
    assert numpy.random.random() == drawn
    numpy.random.seed(5)
    numpy.random.randn()  # makes two deviates and keeps the second
    kept = rng.capture()
    second = numpy.random.randn()  # takes the kept one; the generator itself does not move
    assert rng.capture(kept) != kept
    rng.restore(kept)
    assert numpy.random.randn() == second
