"""`python -m amptui` is the same program as `amptui`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # `-m` puts the working folder first: a yaml.py or random.py that lies there would run in amptui's own process.
    if not getattr(sys.flags, "safe_path", False):  # Python 3.11 has it
        del sys.path[0]
    from amptui.cli import main

    sys.exit(main())
