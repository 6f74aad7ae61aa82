"""A real browser for tests of pages: Chromium, driven by its DevTools protocol over two pipes."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions --hide-scrollbars "
    "--remote-debugging-pipe"
)
# The browser looks for its pipes at 3 and 4.
START = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9, " ": 32}


class Browser:
    """One page of one browser; everything it complains of is in ``complaints``."""

    def __init__(self, path: Path, *, width=1280, height=900, dark=False, script=True):
        self.complaints: list[str] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.downloads = Path(self._profile.name) / "downloads"
        self.downloads.mkdir()
        theirs, self._out = os.pipe()
        self._in, back = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs, back)]
        words = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *map(str, ends), *words],
            pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in ends:
            os.close(end)
        os.close(theirs)
        os.close(back)
        self._number, self._buffer, self._session, self._loaded = 0, b"", None, False
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(row["targetId"] for row in targets if row["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        self._session = attached["sessionId"]
        for area in ("Page", "Runtime", "Log"):
            self.call(f"{area}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=path.as_uri() if isinstance(path, Path) else path)
        while not self._loaded:
            self._take(self._receive())

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self._process.terminate()
        self._process.wait(20)
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method, **values):
        """One command of the protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._take(answer)

    def _receive(self):
        while b"\0" not in self._buffer:
            read = os.read(self._in, 1 << 20)
            assert read, "the browser ended"
            self._buffer += read
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _take(self, event):
        if event.get("method") == "Page.loadEventFired":
            self._loaded = True
        if event.get("method") in {
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
        }:
            self.complaints.append(json.dumps(event["params"]))

    def ask(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector):
        """A real click in the middle of an element."""
        x, y = self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2];"
            "})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector):
        """The pointer over the middle of an element."""
        x, y = self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2];"
            "})()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        """A real key, down and up."""
        about = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def choose(self, name, value):
        """Choose an option of a select, as a user's choice reaches the page."""
        self.ask(
            f"(() => {{ const s = document.querySelector('[name={name}]');"
            f"s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})()"
        )

    def downloaded(self):
        """The one file that was saved last, once it is there."""
        for _ in range(100):
            whole = [p for p in self.downloads.iterdir() if p.suffix in {".csv", ".svg"}]
            if whole:
                text = whole[0].read_text(encoding="utf-8")
                whole[0].unlink()
                return whole[0].name, text
            time.sleep(0.05)
        raise AssertionError("nothing was saved")

    def photograph(self, path, *, whole=False):
        """The page as a picture."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(answer["data"]))
