"""Honest streams in a process of their own: python -m attacks.crowd ADDRESS FIRST COUNT PAUSE_S.

Prints a line once each has been served; when standard input ends, a JSON object: for each stream, when its steps began
(time.monotonic(), which all processes share) and their latencies, and what went wrong."""

from __future__ import annotations

import contextlib
import json
import sys

from .honest import Honest


def main() -> None:
    address, first, count, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    with contextlib.ExitStack() as stack:
        honest = [Honest(address, f"honest-{first + i}", pause) for i in range(count)]
        for each in honest:
            with contextlib.suppress(AssertionError):
                each.__enter__()
            stack.callback(each.__exit__, RuntimeError, RuntimeError(), None)  # Failures are told to who asked.
        print("served", flush=True)
        sys.stdin.read()
        streams = [list(zip(each.begun, each.seconds, strict=False)) for each in honest]
        failures = [failure for each in honest for failure in each.failures]
    print(json.dumps({"streams": streams, "failures": failures}), flush=True)


main()
