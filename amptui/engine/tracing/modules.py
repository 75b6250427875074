"""Which module is running: a stack of module calls, kept by torch's global forward hooks, one per thread."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from amptui.engine.tracing.source import selves

#: The prefix that torch.compile's wrapper puts before the names of what it wraps.
_COMPILED = "_orig_mod"


class ModulePaths:
    """Dotted paths of modules. A mapping's keys come first: `{"G": net}` names `net.fc` as `G.fc`."""

    def __init__(self, modules: nn.Module | Mapping[str, nn.Module]) -> None:
        roots = {"": modules} if isinstance(modules, nn.Module) else dict(modules)
        self.roots: dict[str, nn.Module] = roots
        # The module object is kept so that its id cannot be given to another one.
        self._paths: dict[int, tuple[str, nn.Module]] = {}
        for prefix, root in roots.items():
            for path, module in root.named_modules(prefix=prefix):
                self._paths.setdefault(id(module), (plain_path(path), module))

    def path_of(self, module: object) -> str | None:
        """The path, or None for a module that is not part of the model."""
        found = self._paths.get(id(module))
        return None if found is None else found[0]

    def owner_of(self, frame: FrameType | None) -> str | None:
        """The module whose method runs in `frame` or, for a function, called it; None outside of the model's methods.

        A method that is called directly (`model.encode(x)`) has no module call around it.
        """
        return next((path for path in map(self.path_of, selves(frame)) if path is not None), None)

    def by_path(self) -> dict[str, nn.Module]:
        """Path to module."""
        return dict(self._paths.values())


def plain_path(path: str) -> str:
    """The path as the user wrote it, without the wrapper of torch.compile."""
    if _COMPILED not in path:
        return path
    return ".".join(part for part in path.split(".") if part != _COMPILED)


@contextmanager
def global_hooks(before: Callable[..., None], after: Callable[..., None]) -> Iterator[None]:
    """Have all module calls, in all threads, report to these: before the forward, and after it also if it raised."""
    handles = [register_module_forward_pre_hook(before), register_module_forward_hook(after, always_call=True)]
    try:
        with warnings.catch_warnings():
            # torch.compile's wrapper fires them once more for itself, which is just what its user would call.
            warnings.filterwarnings("ignore", message=".*there are global hooks on modules.*")
            yield
    finally:
        for handle in handles:
            handle.remove()


class ModuleStack:
    """The paths of the modules that are being called, innermost last.

    `entered` and `left` are told about the outermost call in a thread that did not open the stack: work done in the
    user's own threads, which inherit neither a dispatch mode nor the autocast state.
    """

    def __init__(
        self,
        paths: ModulePaths,
        *,
        entered: Callable[[], object] | None = None,
        left: Callable[[], object] | None = None,
    ) -> None:
        self._paths = paths
        self._home = threading.get_ident()
        self._local = threading.local()
        self._entered, self._left = entered, left
        self._hooks = global_hooks(self._push, self._pop)

    def __enter__(self) -> ModuleStack:
        self._home = threading.get_ident()
        self._hooks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.__exit__(None, None, None)

    @property
    def _stack(self) -> list[tuple[object, str | None]]:
        try:
            stack: list[tuple[object, str | None]] = self._local.stack
        except AttributeError:
            stack = self._local.stack = []
        return stack

    @property
    def at_home(self) -> bool:
        """Whether the calling thread is the one that opened the stack."""
        return threading.get_ident() == self._home

    def owner(self, frame: FrameType | None) -> str | None:
        """The module whose code runs in `frame`: also one that a method of its own was called on, and not itself."""
        owner = self._paths.owner_of(frame)
        return self.current() if owner is None else owner

    def current(self) -> str | None:
        """The innermost module of the model that is being called, or None outside of its calls."""
        for _, path in reversed(self._stack):
            if path is not None:
                return path
        return None

    def _push(self, module: nn.Module, _inputs: object) -> None:
        stack = self._stack
        if not stack and self._entered is not None and not self.at_home:
            self._entered()
        stack.append((module, self._paths.path_of(module)))

    def _pop(self, module: nn.Module, _inputs: object, _output: object) -> None:
        stack = self._stack
        if all(entry[0] is not module for entry in stack):
            return  # this call began before the stack was opened
        while stack.pop()[0] is not module:
            pass  # calls that an exception cut short
        if not stack and self._left is not None and not self.at_home:
            self._left()
