"""The terminal on the page of a job: what programs write to it, what is typed into it, and its channel."""

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final

import pytest

from isolator.session.websocket import Lost
from mesos_gpu.wire.channel.frames import MAX_DATA, WINDOW, Kind
from tests.conftest import wait_until
from tests.contract.channels.test_channels import Playing
from tests.web.browser import JUDGE, LOOKS, NEEDED, Browser, Page, bring_axe
from tests.web.terminals import Host, shown_lines

pytestmark = NEEDED
FEED: Final = """import('/static/terminal.js').then(({{Terminal}}) => {{
  const told = [], one = new Terminal({rows}, {columns}, (text) => told.push(text));
  for (const piece of {pieces}) one.write(Uint8Array.from(atob(piece), (letter) => letter.charCodeAt(0)));
  {more};
  const styles = one.lines[0].cells.map((cell) => cell[1]);
  return {{text: one.text(), x: one.x, y: one.y, told, kept: one.kept.length, styles}};
}})"""


#: What a program writes to a terminal of 4 rows by 10 columns, what that shows, and where its cursor is.
WRITTEN: Final = (
    (b"one\r\ntwo", "one\ntwo\n\n", (3, 1)),
    (b"0123456789abc", "0123456789\nabc\n\n", (3, 1)),
    (b"0123456789", "0123456789\n\n\n", (10, 0)),  # the next letter wraps
    (b"0123456789\rx", "x123456789\n\n\n", (1, 0)),
    (b"\x1b[?7l0123456789abc", "012345678c\n\n\n", (10, 0)),
    (b"1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5", (1, 3)),
    (b"abc\x1b[2;3Hx\x1b[Ay", "abcy\n  x\n\n", (4, 0)),
    (b"abcdef\x1b[3D\x1b[K", "abc\n\n\n", (3, 0)),
    (b"abcdef\x1b[3D\x1b[1K", "    ef\n\n\n", (3, 0)),
    (b"abc\r\ndef\x1b[1;2H\x1b[J", "a\n\n\n", (1, 0)),
    (b"abc\x1b[2J", "\n\n\n", (3, 0)),
    (b"abcd\x1b[1;2H\x1b[2P", "ad\n\n\n", (1, 0)),
    (b"abcd\x1b[1;2H\x1b[2@", "a  bcd\n\n\n", (1, 0)),
    (b"abcd\x1b[1;2H\x1b[2X", "a  d\n\n\n", (1, 0)),
    (b"1\r\n2\r\n3\x1b[2H\x1b[L", "1\n\n2\n3", (0, 1)),
    (b"1\r\n2\r\n3\x1b[2H\x1b[M", "1\n3\n\n", (0, 1)),
    (b"1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3H\n", "1\n3\n\n4", (0, 2)),
    (b"1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[2H\x1bM", "1\n\n2\n4", (0, 1)),
    (b"a\tb", "a       b\n\n\n", (9, 0)),
    (b"x\x1b[5b", "xxxxxx\n\n\n", (6, 0)),
    (b"abc\x1b7\x1b[3;3Hd\x1b8e", "abce\n\n  d\n", (4, 0)),
    (b"shell\x1b[?1049h\x1b[Heditor\x1b[?1049l", "shell\n\n\n", (5, 0)),
    (b"\x1b(0lqk\x1b(Bq", "\u250c\u2500\u2510q\n\n\n", (4, 0)),
    (b"\x1b]0;a title\x07ok\x1b]2;other\x1b\\!", "ok!\n\n\n", (3, 0)),
    (b"\x1bP1$r0m\x1b\\\x1b[>0q\x1b[?2026$p.", ".\n\n\n", (1, 0)),
    ("日本語".encode(), "日本語\n\n\n", (6, 0)),
    ("e\u0301x".encode(), "e\u0301x\n\n\n", (2, 0)),
    (b"\xff\xfe", "\ufffd\ufffd\n\n\n", (2, 0)),
    (b"\x1b[999999999999;999999999999H.", "\n\n\n         .", (10, 3)),
    (b"\x1b[4hb\ra", "ab\n\n\n", (1, 0)),
    (b"gone\x1bc.", ".\n\n\n", (1, 0)),
)


@pytest.fixture(scope="module")
def rig() -> Iterator[Playing]:
    rig = Playing()
    yield rig
    rig.close()


@pytest.fixture
def blank(rig: Playing, browser: Browser) -> Page:
    """A page in which the terminal's module can be tried."""
    page = browser.page(rig.url)
    page.when()
    return page


def fed(page: Page, *pieces: bytes, rows: int = 4, columns: int = 10, more: str = "") -> dict[str, Any]:
    """A terminal to which a program has written that."""
    said = json.dumps([b64encode(piece).decode() for piece in pieces])
    return dict(page.run(FEED.format(rows=rows, columns=columns, pieces=said, more=more)))


def test_terminal_shows_output_as_terminals_do(blank: Page) -> None:
    wrong = []
    for written, text, place in WRITTEN:
        for pieces in ((written,), tuple(written[i : i + 1] for i in range(len(written)))):
            shown = fed(blank, *pieces)
            if (shown["text"], (shown["x"], shown["y"])) != (text, place):
                wrong.append((pieces, shown, text, place))
    assert not wrong


def test_terminal_shows_colours_and_answers_questions_of_programs(blank: Page) -> None:
    shown = fed(
        blank, b"\x1b[1;31ma\x1b[0mb\x1b[38;5;208mc\x1b[48;2;1;2;255md\x1b[39;49me\x1b[6n\x1b[c\x1b[5n"
    )
    assert shown["styles"][:5] == [
        {"bold": True, "front": 1}, {}, {"front": 208}, {"front": 208, "behind": "#0102ff"}, {},
    ]  # fmt: skip
    assert shown["told"] == ["\x1b[1;6R\x1b[?6c\x1b[0n"]


def test_terminal_keeps_lines_that_leave_the_screen_up_to_a_bound_and_at_a_new_size(blank: Page) -> None:
    much = fed(blank, b"".join(b"%d\r\n" % i for i in range(3000)))
    assert (much["kept"], much["text"]) == (2000, "2997\n2998\n2999\n")
    less = fed(blank, b"1\r\n2\r\n3\r\n4", more="one.resize(2, 5)")
    assert (less["kept"], less["text"], less["y"]) == (2, "3\n4", 1)
    more = fed(blank, b"1\r\n2", more="one.resize(6, 30)")
    assert more["text"] == "1\n2\n\n\n\n"


@pytest.fixture
def page(rig: Playing, browser: Browser) -> Page:
    page = browser.page(f"{rig.url}/#/jobs/{rig.job}")
    page.when("Open a terminal")
    return page


def test_a_terminal_in_a_job_carries_keys_output_sizes_and_its_exit_code(rig: Playing, page: Page) -> None:
    host = Host(rig, page)
    assert host.order.argv[:2] == ("/bin/sh", "-c")
    assert (host.order.stdin, host.order.tty, host.order.term) == (True, True, "xterm-256color")
    assert host.order.columns > 60
    host.says(Kind.STDOUT, "$ \x1b[32mgr\u00fcn\x1b[0m <b>\r\n".encode())
    assert host.hears(Kind.CREDIT).numbers == (len("$ \x1b[32mgr\u00fcn\x1b[0m <b>\r\n".encode()),)
    wait_until("it is shown", lambda: "$ gr\u00fcn <b>" in shown_lines(page))
    assert page.run("document.querySelector('.terminal .front-2').textContent") == "gr\u00fcn"
    for key in ("l", "s", "Enter", "ArrowUp", "Tab"):
        page.press(key)
    assert host.types(7) == b"ls\r\x1b[A\t"
    page.ask("Input.dispatchKeyEvent", {"type": "keyDown", "key": "c", "code": "KeyC", "modifiers": 2})
    assert host.types(1) == b"\x03"
    page.ask("Input.insertText", {"text": "h\u00e9"})
    assert host.types(3) == "h\u00e9".encode()
    page.size(700)
    narrow = host.hears(Kind.SIZE).numbers
    assert narrow[1] < host.order.columns
    host.says(Kind.EXIT, b"", 3)
    page.when("It has ended with exit code 3.")
    host.close()
    again = Host(rig, page)
    again.says(Kind.FAILED, b"no such program")
    page.when("no such program")
    again.close()


@pytest.mark.long
def test_an_open_terminal_shows_all_its_rows_and_axe_has_nothing_against_it(rig: Playing, page: Page) -> None:
    page.size(LOOKS["light"][0])
    host = Host(rig, page)
    host.says(Kind.STDOUT, b"\r\n".join(b"line %d" % i for i in range(1, host.order.rows + 1)))
    wait_until("it is shown", lambda: f"line {host.order.rows}" in shown_lines(page))
    heights = "(({scrollHeight, clientHeight}) => [scrollHeight, clientHeight])(document.querySelector('.terminal'))"
    whole, seen = page.run(heights)
    assert whole == seen, "nothing of what a program draws is scrolled away"
    bring_axe(page)
    for width, dark in LOOKS.values():
        page.size(width, dark=dark)
        assert page.run(JUDGE) == []
        assert page.run("document.documentElement.scrollWidth") == width
    host.close()


@pytest.mark.long
def test_terminal_passes_much_output_and_input_with_credits(rig: Playing, page: Page) -> None:
    host = Host(rig, page)
    line, sent, credit = b"x" * 998 + b"\r\n", 0, WINDOW
    while sent < 3 << 19:
        while credit < len(line) * 60:
            credit += host.hears(Kind.CREDIT).numbers[0]
        host.says(Kind.STDOUT, line * 60)
        sent, credit = sent + len(line) * 60, credit - len(line) * 60
    host.says(Kind.STDOUT, b"the end")
    wait_until("all is shown", lambda: "the end" in shown_lines(page))
    pasted = "y" * (5 << 18)
    page.run(
        "(() => { const data = new DataTransfer(); data.setData('text', " + json.dumps(pasted) + ");"
        "document.querySelector('.terminal textarea').dispatchEvent("
        "new ClipboardEvent('paste', {clipboardData: data})); })()"
    )
    taken = b""
    while len(taken) < len(pasted):
        piece = host.hears(Kind.STDIN).data
        taken += piece
        host.says(Kind.CREDIT, b"", len(piece))
    assert taken == pasted.encode()
    host.close()


@pytest.mark.long
def test_a_program_that_asks_the_terminal_without_end_fills_no_memory(rig: Playing, page: Page) -> None:
    host, asks = Host(rig, page), b"\x1b[6n" * (MAX_DATA // 4)
    for _ in range(40):  # 4 MiB of answers, of which the program reads none
        host.says(Kind.STDOUT, asks)
        host.hears(Kind.CREDIT)
    page.press("x")
    host.says(Kind.CREDIT, b"", WINDOW)
    waited = b"".join(iter(lambda: host.hears(Kind.STDIN).data, b"x"))
    assert 0 < len(waited) <= 2 * MAX_DATA
    host.close()


def test_terminal_ends_with_its_part_and_reports_a_lost_connection(rig: Playing, page: Page) -> None:
    host = Host(rig, page)
    host.says(Kind.STDOUT, b"$ ")
    wait_until("it is shown", lambda: "$" in shown_lines(page))
    host.close()
    page.when("The connection has ended.")
    host = Host(rig, page)
    page.run("location.hash = '#/'")
    with pytest.raises(Lost):
        host.hears(Kind.STDIN)
    host.close()


def test_terminal_is_hidden_without_the_right_to_it(rig: Playing, browser: Browser) -> None:
    waits = rig.submit(gpus=1)["id"]
    page = browser.page(f"{rig.url}/#/jobs/{waits}").when("Why it waits")
    assert "Open a terminal" not in page, "a job that waits has none"
