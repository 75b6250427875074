"""How the frameworks lay out their checkpoints, recognised by what is in them: each one's counters and gaps."""

from __future__ import annotations

from amptui.inspection.layouts.files import file_layout
from amptui.inspection.layouts.folders import folder_layout
from amptui.inspection.layouts.layout import Layout

__all__ = ["Layout", "file_layout", "folder_layout"]
