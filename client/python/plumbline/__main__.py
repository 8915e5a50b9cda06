"""`python -m plumbline run train.py`: see --help."""

from __future__ import annotations

import sys

from .run.main import main

USAGE = "usage: python -m plumbline run [OPTION]... (SCRIPT | -m MODULE) [ARGUMENT]..."

if __name__ == "__main__":
    if sys.argv[1:2] != ["run"]:
        print(USAGE, file=sys.stdout if sys.argv[1:] in (["-h"], ["--help"]) else sys.stderr)
        sys.exit(0 if sys.argv[1:] in (["-h"], ["--help"]) else 2)
    sys.exit(main(sys.argv[2:]))
