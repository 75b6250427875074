"""Time and peak memory of a piece of work."""

from __future__ import annotations

import time

import pytest
import torch

from amptui.engine.measuring.clock import PeakMemory, clock_name, seconds_of

CPU = torch.device("cpu")
MB = 1 << 20


def test_work_takes_as_long_as_it_takes() -> None:
    assert seconds_of(lambda: time.sleep(0.02), CPU) >= 0.02
    assert clock_name(CPU) == "synchronised clock"


def test_resident_memory_peaks_where_memory_was_touched() -> None:
    peak = PeakMemory(CPU)
    if not peak.begin():
        pytest.skip("this system does not reset the peak of resident memory")
    quiet = peak.end()

    touched = torch.ones(64 * MB // 4)
    high = peak.end()
    del touched

    assert peak.kind == "resident"
    assert high - quiet > 32 * MB


def test_an_earlier_peak_is_forgotten() -> None:
    peak = PeakMemory(CPU)
    if not peak.begin():
        pytest.skip("this system does not reset the peak of resident memory")
    touched = torch.ones(128 * MB // 4)
    high = peak.end()
    del touched
    peak.begin()

    assert peak.end() < high - 64 * MB


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_events_measure_and_the_allocator_tells_the_peak() -> None:
    device = torch.device("cuda")
    peak = PeakMemory(device)
    assert peak.begin()

    seconds = seconds_of(lambda: torch.ones(64 * MB // 4, device=device).sum(), device)

    assert seconds > 0.0
    assert (clock_name(device), peak.kind) == ("CUDA events", "device")
    assert peak.end() >= 64 * MB
