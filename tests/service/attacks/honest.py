"""A stream that behaves: small steps, one after the other, as long as it is told to."""

from __future__ import annotations

import threading
import time
import uuid
from types import TracebackType

from stream_client import Client, StepFrames

from plumbline.v1 import verdict_pb2


class Honest:
    """Streams until the end of its `with`, with a pause between steps; `seconds` are its steps' latencies, `begun` when
    each of them began, `failures` what went wrong."""

    def __init__(self, address: str, job: str = "honest", pause: float = 0.0) -> None:
        self._pause = pause
        self._client = Client(address)
        self._stream = self._client.stream(f"run-{uuid.uuid4().hex[:12]}", job)
        self._stop = threading.Event()
        self._served = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seconds: list[float] = []
        self.begun: list[float] = []
        self.failures: list[str] = []

    def _run(self) -> None:
        step = 0
        while not self._stop.is_set():
            start = time.monotonic()
            try:
                self._stream.send(*StepFrames(step).frames())
                verdict = self._stream.next("verdict")
                assert (verdict.step, verdict.verdict) == (step, verdict_pb2.OUTCOME_TYPE_I), verdict
            except (AssertionError, ValueError) as failure:
                with self._served:
                    self.failures.append(str(failure))
                    self._served.notify_all()
                return
            with self._served:
                self.begun.append(start)
                self.seconds.append(time.monotonic() - start)
                self._served.notify_all()
            step += 1
            self._stop.wait(self._pause)

    def wait(self, more: int = 1) -> None:
        """Returns when so many more steps have been served, and fails if none can be."""
        with self._served:
            wanted = len(self.seconds) + more
            assert self._served.wait_for(lambda: self.failures or len(self.seconds) >= wanted, 60), "nobody was served"
            assert not self.failures, self.failures

    def __enter__(self) -> Honest:
        self._thread.start()
        self.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(60)
        self._client.close()
        if error is None:
            assert not self.failures, self.failures
