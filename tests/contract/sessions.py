"""Sessions of tests with servers."""

from typing import Final

import requests

#: Headers of a request of such a session whose connection is to be used by the next one, too.
KEPT: Final = {"Connection": "keep-alive"}


def unkept() -> requests.Session:
    """Return a session that has a connection for each request, and heeds no proxy of the environment.

    A server closes a connection that is idle for `bounds.KEEP_S`. A test may take as long between two requests, and
    the second one would be reset if it were on its way at that moment.
    """
    session = requests.Session()
    session.trust_env = False
    session.headers["Connection"] = "close"
    return session
