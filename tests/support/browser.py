"""A headless Chromium driven over its debugging pipe: no driver program, no package beyond the browser itself."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe"
)


class Page:
    """One tab: what it asked for over the network, what it wrote to the console, and ways to use it."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Returns the result of a command of the debugging protocol; events that come first are noted."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def open(self, path: Path) -> None:
        """Loads a local file and waits until it is complete."""
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState == 'complete' && location.href != 'about:blank'")

    def wait(self, condition: str) -> None:
        """Waits until a JavaScript expression is true."""
        deadline = time.monotonic() + 60
        while not self.run(condition):
            assert time.monotonic() < deadline, f"never came true: {condition}"
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """Returns the value of a JavaScript expression."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def click(self, selector: str) -> None:
        """Clicks the middle of the first element that matches, as a mouse does."""
        self.run(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = f"(() => {{const r = document.querySelector({selector!r}).getBoundingClientRect();"
        x, y = self.run(f"{box} return [r.x + r.width / 2, r.y + r.height / 2]}})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, text: str) -> None:
        """Presses a key in the focused element."""
        code = {"Enter": 13, "Tab": 9, " ": 32}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """Saves what is visible as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], 60)
            assert ready, "the browser does not answer"
            self._buffer += os.read(self._receive, 1 << 20)
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(params["exceptionDetails"]["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(params["entry"]["text"])


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Yields a page of a browser that lives as long as the block.

    Args:
        profile: New folder for the browser's own files.
    """
    assert CHROMIUM is not None
    commands, send = os.pipe()
    receive, answers = os.pipe()

    def wire() -> None:  # the protocol is fixed to descriptors 3 and 4
        os.dup2(os.dup(commands), 3)
        os.dup2(os.dup(answers), 4)

    process = subprocess.Popen(
        [CHROMIUM, *_FLAGS.split(), f"--user-data-dir={profile}"],
        preexec_fn=wire,
        pass_fds=(3, 4),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands)
    os.close(answers)
    try:
        yield Page(send, receive)
    finally:
        process.terminate()
        process.wait(timeout=20)
        os.close(send)
        os.close(receive)


@contextlib.contextmanager
def screen(page: Page, width: int, height: int, *, mobile: bool) -> Iterator[None]:
    """Shows the page on a screen of this size inside the block."""
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
    try:
        page.run("scrollTo({top: 0, behavior: 'instant'})")
        yield
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")
