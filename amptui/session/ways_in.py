"""What to do where another client is attached to a session's engine."""

from __future__ import annotations

from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.paths import living_sessions, name_of
from amptui.text import shell_word


def ways_in(folder: SessionFolder) -> str:
    """How to take the engine of `folder` over, and which other sessions have an engine that lives. Never raises."""
    over = f"To put that client out: amptui attach --take-over {shell_word(name_of(folder))}"
    try:
        others = [other for other in living_sessions() if other.path != folder.path]
    except (OSError, SessionError):  # a home that is none
        others = []
    if not others:
        return over
    named = " or ".join(f"amptui attach {shell_word(name_of(other))}" for other in others[:3])
    more = f" ({len(others) - 3} more: amptui sessions)" if len(others) > 3 else ""
    return f"{over}. Another session's engine: {named}{more}"
