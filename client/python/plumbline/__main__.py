"""`python -m plumbline run train.py`, `python -m plumbline export-verdicts -o FILE`: see --help of each."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {"run": ".run.main", "export-verdicts": ".export"}  # Modules that hold a main().
USAGE = """usage: python -m plumbline run [OPTION]... (SCRIPT | -m MODULE) [ARGUMENT]...
       python -m plumbline export-verdicts [OPTION]... -o FILE"""

if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in COMMANDS:
        sys.exit(importlib.import_module(COMMANDS[sys.argv[1]], "plumbline").main(sys.argv[2:]))
    asked = sys.argv[1:] in (["-h"], ["--help"])
    print(USAGE, file=sys.stdout if asked else sys.stderr)
    sys.exit(0 if asked else 2)
