"""Hostile streams: python -m attacks ADDRESS COUNT. Each attacks in one way after the other until standard input ends,
and prints a line once it has begun."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

import grpc
from stream_client import Client, StepFrames

from . import hogs, in_place, replays, sharded, stalled, step_number

HELD_S = 0.5  # How long what an attack holds is held.


def _send(client: Client, run: str, frames: in_place.Frames) -> None:
    stream = client.stream(run, "hostile")
    stream.send(*frames)
    stream.next("verdict")


def ways(client: Client, name: str, stop: threading.Event) -> list[Callable[[], object]]:
    def held(begin: Callable[[], list]) -> None:
        streams = begin()
        stop.wait(HELD_S)
        for stream in streams:
            stream.call.cancel()

    def dropped() -> None:
        stream = stalled.trickles(client)
        for at in range(20):
            stalled.drop(stream, at)
            stop.wait(HELD_S / 20)
        stream.call.cancel()

    return [
        lambda: held(lambda: stalled.claims(client, 2, (8 << 20) - 1024)),
        lambda: held(lambda: stalled.holds(client, 1, 2 << 20)),
        lambda: held(lambda: stalled.opens_nothing(client, 8)),
        lambda: held(lambda: sharded.zero_strides(client, f"parts-{name}", 2200, 2200)),
        dropped,
        lambda: step_number.poison(client, f"poison-{name}"),
        lambda: _send(client, f"writes-{name}", in_place.independent(0, 2000)),
        lambda: _send(client, f"hog-{name}", hogs.products(0, 100)),
        lambda: _send(client, f"late-{name}", hogs.products(1, 10)),
        lambda: replays.replay(client, replays.expanded(0, 1 << 17)),
        lambda: _send(client, f"small-{name}", StepFrames(0).frames()),
    ]


def _attack(address: str, name: str, stop: threading.Event) -> None:
    client = Client(address)
    number = int(name)
    while not stop.is_set():
        each = ways(client, f"{os.getpid()}-{name}-{number}", stop)
        # Refused, or cut off: what it comes to is of no interest here.
        with contextlib.suppress(grpc.RpcError, AssertionError, ValueError):
            each[number % len(each)]()
        number += 1
    client.close()


def main() -> None:
    address, count = sys.argv[1], int(sys.argv[2])
    stop = threading.Event()
    threads = [threading.Thread(target=_attack, args=(address, str(i), stop), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    print("attacking", flush=True)
    sys.stdin.read()
    stop.set()
    os._exit(0)  # Calls that the daemon holds, too.


main()
