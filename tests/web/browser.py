"""Chromium without a window, driven by its DevTools protocol: tests look at a page until it shows what they wait for.

The protocol runs over a socket that the browser has as its descriptors 3 and 4: messages are JSON objects, each with a
zero byte behind it.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from base64 import b64decode
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import TESTS, wait_until
from tests.web.process import launcher

ROOT: Final = TESTS.parent
CHROMIUM: Final = shutil.which("chromium")
#: pytest's mark of tests that need the browser.
NEEDED: Final = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
#: The page has shown everything that the scheduler says of itself once.
WHOLE: Final = '<p id="as-of">as of '
PATIENCE_S: Final = 90.0
LOOKS: Final = {"light": (1280, False), "dark": (1280, True), "phone": (390, False)}
#: A test for each, in long runs: a browser judges all parts of a page.
each_look = pytest.mark.parametrize("look", [pytest.param(look, marks=pytest.mark.long) for look in LOOKS])
PHONE: Final = LOOKS["phone"][0]  # pixels
TABLET: Final = 768  # pixels: tables are as on a desk there, and their columns are wider than the page
AXE: Final = files("axe_core_python") / "axe.min.js"
JUDGE: Final = (
    "axe.run(document).then((told) => told.violations.map("
    "(each) => [each.id, each.nodes.slice(0, 3).map((node) => node.html)]))"
)
#: What is cut off in its box, but for heads of tables that are not seen, fields and what scrolls.
CUT: Final = """[...document.querySelectorAll('#view *')]
  .filter((one) => !one.closest('.logs, .unseen, svg, thead, input, select'))
  .filter((one) => one.clientWidth && one.scrollWidth > one.clientWidth + 1)
  .map((one) => [one.tagName, one.className, one.textContent.slice(0, 80)])"""
STATES: Final = """[...document.querySelectorAll('#view .state')].map((one) => one.getBoundingClientRect())
  .map((box) => [Math.round(box.left), Math.round(box.right)])"""
#: Of keys that the browser does something by.
_CODES: Final = {"Tab": 9, "Enter": 13, "Escape": 27}
_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-extensions",
    "--renderer-process-limit=1",
    "--disable-features=Translate,MediaRouter,OptimizationHints,SpareRendererForSitePerProcess,IsolateOrigins,site-per-process",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Refused(Exception):
    """The browser does not do what it is asked; also while a page gives way to the next."""


class Browser:
    """A browser whose pages know nothing of each other; `close` ends it."""

    def __init__(self, directory: Path) -> None:
        """What it keeps is in the directory."""
        self._ours, theirs = socket.socketpair()
        self._ours.settimeout(PATIENCE_S)
        end = theirs.fileno()
        words = [
            sys.executable, "-m", launcher.__name__, str(end), str(CHROMIUM), *_OPTIONS, f"--user-data-dir={directory}",
        ]  # fmt: skip
        with theirs, (directory / "stderr").open("wb") as log:
            # A group of its own, for it starts processes that outlive it if it is killed.
            self._process = subprocess.Popen(
                words, cwd=ROOT, pass_fds=[end], start_new_session=True, stderr=log
            )
        self._read, self._calls = b"", 0
        self._pages: dict[str, Page] = {}  # by session of the protocol
        self._contexts: list[str] = []

    @property
    def pid(self) -> int:
        """The browser's first process: the parent of its renderers and of what speaks to the network."""
        return self._process.pid

    def page(
        self, url: str, *, headers: Mapping[str, str] | None = None, any_certificate: bool = False
    ) -> "Page":
        """A page that begins to load, with no cookies. `headers`: sent with each of its requests."""
        context = str(self.ask("Target.createBrowserContext")["browserContextId"])
        self._contexts.append(context)
        made = {"url": "about:blank", "browserContextId": context}
        target = self.ask("Target.createTarget", made)["targetId"]
        session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Runtime", "Log", "Network", "Page"):
            page.ask(f"{domain}.enable")
        page.ask("Network.setExtraHTTPHeaders", {"headers": dict(headers or {})})
        page.ask("Security.setIgnoreCertificateErrors", {"ignore": any_certificate})
        page.ask("Page.navigate", {"url": url})
        return page

    def ask(
        self, method: str, parameters: Mapping[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """The result of a method of the protocol. Raises `Refused`."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": dict(parameters or {})}
        self._ours.sendall(json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (answer := self._next()).get("id") != self._calls:
            self._note(answer)
        if "error" in answer:
            raise Refused(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = self._ours.recv(1 << 20)
            assert more, "the browser has ended"
            self._read += more
        text, _, self._read = self._read.partition(b"\0")
        return dict(json.loads(text))

    def _note(self, event: Mapping[str, Any]) -> None:
        page = self._pages.get(event.get("sessionId", ""))
        said = event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        if page is not None and said:
            page.console.append(json.dumps(event["params"]))

    def leave(self) -> None:
        """Close all pages: they ask their servers again and again."""
        self._pages.clear()
        while self._contexts:
            self.ask("Target.disposeBrowserContext", {"browserContextId": self._contexts.pop()})

    def close(self) -> None:
        """End it, and wait until it has ended."""
        with self._ours, contextlib.suppress(Refused):
            self.ask("Browser.close")
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            raise


class Page:
    """A page of a browser.

    Attributes:
        console: What it has written there, and what the browser had to say against it, as JSON.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        """Nothing is loaded yet."""
        self._browser, self._session = browser, session
        self.console: list[str] = []

    def ask(self, method: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Ask the browser about this page. Raises `Refused`."""
        return self._browser.ask(method, parameters, self._session)

    def html(self) -> str:
        """The page as it is now; empty while it gives way to another."""
        what = {"expression": "document.documentElement?.outerHTML ?? ''"}
        try:
            return str(self.ask("Runtime.evaluate", what)["result"]["value"])
        except Refused:
            return ""

    def run(self, script: str) -> Any:
        """What an expression of JavaScript is in the page, and a promise once it is kept. Raises `Refused`."""
        what = {"expression": script, "returnByValue": True, "awaitPromise": True}
        result = self.ask("Runtime.evaluate", what)
        if "exceptionDetails" in result:
            raise Refused(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element that the selector finds, as soon as there is one with such a text."""
        element = (
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            f".find((each) => each.textContent.includes({json.dumps(text)}))"
        )

        def clicked() -> bool:
            return bool(self.run(f"(() => {{ const one = {element}; one?.click(); return !!one; }})()"))

        wait_until(f"{selector} with {text!r} can be clicked", clicked, PATIENCE_S)

    def fill(self, selector: str, value: str) -> None:
        """Write into a field, as soon as it is there."""

        def filled() -> bool:
            script = (
                f"(() => {{ const one = document.querySelector({json.dumps(selector)}); if (!one) return false; "
                f"one.value = {json.dumps(value)}; one.dispatchEvent(new Event('input', {{bubbles: true}})); "
                "one.dispatchEvent(new Event('change', {bubbles: true})); return true; })()"
            )
            return bool(self.run(script))

        wait_until(f"{selector} can be filled", filled, PATIENCE_S)

    def visit(self, address: str) -> str:
        """Go to a part of the page; the page as soon as it shows it."""
        self.when()
        self.run(f"location.hash = {json.dumps(address)}")
        return self.when(f'data-shown="{address}"')

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        code = {"windowsVirtualKeyCode": _CODES[key]} if key in _CODES else {}
        for kind in ("keyDown", "keyUp"):
            letter = "\r" if key == "Enter" else key
            text = {"text": letter} if kind == "keyDown" and len(letter) == 1 else {}
            self.ask("Input.dispatchKeyEvent", {"type": kind, "key": key, **code, **text})

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Look at it through a window of so many pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", size)
        self.ask("Emulation.setScrollbarsHidden", {"hidden": True})
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", {"features": [scheme]})
        is_dark = "matchMedia('(prefers-color-scheme: dark)').matches"
        wait_until(
            "the page has that size and those colours",
            lambda: self.run(f"[innerWidth, {is_dark}]") == [width, dark],
        )

    def picture(self) -> bytes:
        """The whole page as PNG."""
        shot = self.ask("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True})
        return b64decode(shot["data"])

    def when(self, *texts: str) -> str:
        """The page as soon as all these stand in it; none: as soon as everything was shown once."""
        html = ""

        def shown() -> bool:
            nonlocal html
            html = self.html()
            return all(text in html for text in texts or (WHOLE,))

        try:
            wait_until(f"the page shows {texts}", shown, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is: {html}; its console: {self.console}") from None
        return html


def bring_axe(page: Page) -> None:
    """Let the page have what judges it: `JUDGE`."""
    page.run(AXE.read_text(encoding="utf-8") + "; 0")


def judged(page: Page, parts: Mapping[str, str], look: str) -> dict[str, Any]:
    """What axe has against parts, by their names; `parts`: their addresses."""
    page.size(LOOKS[look][0], dark=LOOKS[look][1])
    page.when()
    bring_axe(page)
    wrong = {}
    for name, address in parts.items():
        page.visit(address)
        if told := page.run(JUDGE):
            wrong[name] = told
    return wrong


def too_wide(page: Page, parts: Mapping[str, str]) -> dict[str, int]:
    """Parts that are wider than a phone or a tablet, and how wide they are."""
    widths = {}
    for pixels in (TABLET, PHONE):
        page.size(pixels)
        for name, address in parts.items():
            page.visit(address)
            width = int(page.run("document.documentElement.scrollWidth"))
            if width != pixels:
                widths[name] = width
    return widths


def not_seen(page: Page, parts: Mapping[str, str]) -> dict[str, list[Any]]:
    """What of parts is cut off on a phone, and states that stand beside it."""
    page.size(PHONE)
    wrong = {}
    for name, address in parts.items():
        page.visit(address)
        beside = [box for box in page.run(STATES) if not 0 <= box[0] < box[1] <= PHONE]
        if hidden := [*page.run(CUT), *beside]:
            wrong[name] = hidden
    return wrong
