"""A headless Chromium, driven over its own pipe: what a reader sees, does and is told."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAIT_S_MAX = 120.0


class Browser:
    """One process with one tab. `errors` collects exceptions, console errors and what the browser itself complains of;
    `requests` every address that it asked for."""

    def __init__(self, width: int = 1200, height: int = 900) -> None:
        program = shutil.which("chromium")
        if program is None:
            raise FileNotFoundError("chromium is not installed; run: deploy/setup --tests")
        self._profile = tempfile.TemporaryDirectory(prefix="plumbline.", ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # Chromium takes commands from descriptor 3 and answers on 4. Its sandbox does not work for root.
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-dev-shm-usage --remote-debugging-pipe"
        script = f'exec "$0" {flags} --user-data-dir="$1" about:blank 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, program, self._profile.name],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._count = 0
        self._session: str | None = None
        threading.Thread(target=self._listen, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def _listen(self) -> None:
        rest = b""
        while part := os.read(self._read, 1 << 16):
            *messages, rest = (rest + part).split(b"\0")
            for message in messages:
                self._take(json.loads(message))
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            if "id" in message:
                self._answers[message["id"]] = message
            method, of = message.get("method", ""), message.get("params", {})
            self._events.append(method)
            if method == "Runtime.exceptionThrown":
                details = of["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            elif method == "Runtime.consoleAPICalled" and of["type"] in ("error", "warning", "assert"):
                self.errors.append(str([each.get("value", each.get("description")) for each in of["args"]]))
            elif method == "Log.entryAdded" and of["entry"]["level"] in ("error", "warning"):
                self.errors.append(of["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                self.requests.append(of["request"]["url"])
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], Any], what: str) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: self._ended or condition(), WAIT_S_MAX)
            assert done and (condition() or not self._ended), f"chromium: no {what}"

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        self._wait(lambda: number in self._answers, f"answer to {method}")
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, address: str) -> None:
        before = self._events.count("Page.loadEventFired")
        self.call("Page.navigate", url=address)
        self._wait(lambda: self._events.count("Page.loadEventFired") > before, f"load of {address}")
        self.settle()

    def settle(self) -> None:
        """Until two frames were drawn: charts are made in the first."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, condition: str) -> None:
        """Waits for a JavaScript condition; looks whenever the document changes."""
        self.run(
            f"new Promise(done => {{ const look = () => ({condition}) && done(); look();"
            " new MutationObserver(look).observe(document, {subtree: true, childList: true, characterData: true,"
            " attributes: true}); })"
        )

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def size(self, width: int, height: int, scale: float = 1.0) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )

    def scheme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path: Path) -> None:
        self.settle()
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        try:
            os.close(self._write)  # Its end of commands is its end.
            self._process.wait(30)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._profile.cleanup()
