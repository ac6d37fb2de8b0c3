"""The other side of a page's terminal: the executor of the task that it is in, which is played."""

from typing import Any

from mesos_gpu.wire.channel.call import answer_to
from mesos_gpu.wire.channel.frames import Frame, Kind, decode, encode
from mesos_gpu.wire.channel.order import Order
from mesos_gpu.wire.channel.orders import decode_order
from tests.conftest import wait_until
from tests.contract.channels.test_channels import Opened, Sealed
from tests.web.browser import Page


def shown_lines(page: Page) -> str:
    """What the terminal of the page shows."""
    return str(page.run("document.querySelector('.terminal').innerText"))


def typed(page: Page, *lines: str) -> None:
    """Type into its terminal, each line with Enter behind it."""
    for line in lines:
        page.ask("Input.insertText", {"text": line})
        page.press("Enter")


def prompted(page: Page) -> None:
    """Open a terminal, and wait until its shell asks."""
    page.click("#view section button", "Open a terminal")
    wait_until("the shell asks", lambda: set("$#") & set(shown_lines(page)))


class Host:
    """The executor's side of the channel that a page has opened."""

    def __init__(self, rig: Sealed, page: Page) -> None:
        before = len(self._calls(rig))
        page.click("#view section button", "Open a terminal")
        wait_until("the executor is called", lambda: len(self._calls(rig)) > before)
        call = rig.called()
        opened = Opened(f"/v1/channels/{call.id}", "", call, "")
        self._line = rig.host(opened._replace(answer=answer_to(call, rig.secret)))
        order = decode_order(decode(self._line.receive()).data)
        assert isinstance(order, Order)
        self.order = order

    @staticmethod
    def _calls(rig: Sealed) -> list[Any]:
        return [what for name, what in rig.driver.calls if name == "message"]

    def says(self, kind: Kind, data: bytes = b"", *numbers: int) -> None:
        self._line.send(encode(Frame(kind, data, numbers)))

    def hears(self, kind: Kind) -> Frame:
        """The next frame of that kind."""
        while (frame := decode(self._line.receive())).kind is not kind:
            pass
        return frame

    def types(self, count: int) -> bytes:
        """So many bytes of what is typed."""
        data = b""
        while len(data) < count:
            data += self.hears(Kind.STDIN).data
        return data

    def close(self) -> None:
        self._line.close()
