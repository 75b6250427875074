"""`python -m amptui` is the same program as `amptui`."""

from __future__ import annotations

import sys

from amptui.cli import main

if __name__ == "__main__":
    sys.exit(main())
