"""amptui: from a working FP32 PyTorch project to a decision about autocast that its owner can trust.

Importing this package loads nothing outside the standard library; the public names are resolved on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without an import that a file in the working folder could catch
if TYPE_CHECKING:
    from amptui.project import Case, Criteria, Policy, Project, Scaler, Update

__version__ = "0.1.0"

__all__ = ["Case", "Criteria", "Policy", "Project", "Scaler", "Update", "__version__"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from amptui import project  # noqa: PLC0415 - lazily, so that `import amptui` stays instant

        return getattr(project, name)
    raise AttributeError(f"module 'amptui' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
