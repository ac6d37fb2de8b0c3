"""A server that answers as Vault's documentation says, and as OpenBao 2.7 does; and one that does not."""

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

TOKEN, VALUE = "hvs.aSecretTokenOfVault", "hf_theValue"


@dataclass
class Scripted:
    """A Vault. `answer` makes status and body of a path; `asked`: path, token and namespace of each request."""

    port: int = 0
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    answer: Callable[[str], tuple[int, bytes]] = lambda _: (404, b'{"errors":[]}')
    redirect: str = ""
    drips: bool = False


def handler_of(scripted: Scripted) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            token, namespace = (
                self.headers.get("X-Vault-Token", ""),
                self.headers.get("X-Vault-Namespace", ""),
            )
            scripted.asked.append((self.path, token, namespace))
            status, body = scripted.answer(self.path) if token == TOKEN else DENIED
            if scripted.redirect:
                status = 307
            self.send_response(status)
            if scripted.redirect:
                self.send_header("Location", scripted.redirect)
            if scripted.drips:
                self.end_headers()
                while True:
                    self.wfile.write(b" ")
                    time.sleep(0.05)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # who asked has gone
                self.close_connection = True

    return Handler


#: What OpenBao 2.7.2 answers, byte for byte but for the request's id.
_HEAD = '{"request_id":"5ce5f413-daf4-0678-4da3-c34fff7ecf10","lease_id":"","renewable":false,'
_TAIL = '"wrap_info":null,"warnings":null,"auth":null}'
NONE = 404, b'{"errors":[]}\n'
NO_MOUNT = 404, b'{"errors":["no handler for route \\"kv/data/team/hf\\". route entry not found."]}\n'
DENIED = 403, b'{"errors":["1 error occurred:\\n\\t* permission denied\\n\\n"]}\n'
SEALED = 503, b'{"errors":["Vault is sealed"]}\n'
DELETED = (
    404,
    f'{_HEAD}"lease_duration":0,"data":{{"data":null,"metadata":{{"created_time":"2026-11-23T00:13:10.132905435Z",'
    f'"custom_metadata":null,"deletion_time":"2026-11-23T00:13:10.318420929Z","destroyed":false,"version":1}}}},'
    f"{_TAIL}".encode(),
)


def keeps(data: dict[str, Any], *, version: int = 2) -> Callable[[str], tuple[int, bytes]]:
    """The fields of team/hf, and nothing else."""
    meta = '{"created_time":"2026-11-23T00:12:09.379893448Z","custom_metadata":null,"deletion_time":"",'
    meta += '"destroyed":false,"version":1}'
    told = json.dumps(data)
    body = (
        f'{_HEAD}"lease_duration":0,"data":{{"data":{told},"metadata":{meta}}},{_TAIL}'
        if version == 2
        else f'{_HEAD}"lease_duration":2764800,"data":{told},{_TAIL}'
    )
    return lambda path: (200, body.encode()) if path.endswith("/team/hf") else NONE


@contextlib.contextmanager
def serving(scripted: Scripted) -> Iterator[Scripted]:
    """On a free port of 127.0.0.1."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(scripted)) as server:
        server.daemon_threads = True
        scripted.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield scripted
        finally:
            server.shutdown()
            thread.join()
