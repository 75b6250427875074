"""Where a run first went wrong: every op of one replay watched, and read back to the user's line.

`trace` runs a callable and gives a `Trace`; `Trace.blame` names the origins of what is not finite in its results.
"""

from __future__ import annotations

from amptui.engine.tracing.errors import ErrorPlace, locate_error
from amptui.engine.tracing.ladder import Trace, trace
from amptui.engine.tracing.origin import Link, Origin
from amptui.engine.tracing.trace import Tracer
from amptui.engine.tracing.values import TensorFacts

__all__ = ["ErrorPlace", "Link", "Origin", "TensorFacts", "Trace", "Tracer", "locate_error", "trace"]
