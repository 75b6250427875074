"""Versions, device and settings that a result depends on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import torch

from amptui.engine.precision import PrecisionSettings
from amptui.protocol.facts import Environment


def environment(device: torch.device, folder: Path) -> Environment:
    """What `device` is, as its driver says, and the state of the git work tree around `folder`."""
    commit, dirty = _git(folder)
    numpy = sys.modules.get("numpy")
    return Environment(
        python=platform.python_version(),
        executable=sys.executable,
        torch=torch.__version__,
        numpy=str(getattr(numpy, "__version__", "")) or None if numpy is not None else None,
        platform=platform.platform(),
        device=str(device),
        device_name=_device_name(device),
        accelerator=_accelerator(),
        threads=torch.get_num_threads(),
        precision=PrecisionSettings.current().as_text(),
        git_commit=commit,
        git_dirty=dirty,
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def _accelerator() -> str | None:
    """ROCm calls itself `cuda` everywhere in torch; its version tells them apart."""
    if not torch.cuda.is_available():
        return None
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return f"CUDA {torch.version.cuda}"


def _git(folder: Path) -> tuple[str | None, bool | None]:
    def ask(*arguments: str) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603 - fixed arguments
                ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's own git
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # asking must not write into the user's repository
                timeout=5,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return None, None
    status = ask("status", "--porcelain", "--untracked-files=no")
    return commit, None if status is None else bool(status)
