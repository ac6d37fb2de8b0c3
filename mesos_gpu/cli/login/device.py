"""Login at an issuer by the device flow: the user opens a page in any browser and types a code."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from mesos_gpu.adapters.oidc.discovery import Endpoints
from mesos_gpu.adapters.oidc.fetching import Fetcher, IssuerError
from mesos_gpu.adapters.oidc.grants import Granted, Refused, begin_device, of_device
from mesos_gpu.cli import output
from mesos_gpu.cli.reach.logins import NotLoggedIn

_SLOWER_S: Final = 5.0  # RFC 8628, section 3.5
_MAX_INTERVAL_S: Final = 60.0


def by_device(
    at: Endpoints,
    client_id: str,
    scopes: Sequence[str],
    fetcher: Fetcher,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Granted:
    """Print the page and the code, and wait until the login is done.

    Raises:
        NotLoggedIn: The login was refused, or took too long.
        IssuerError, Refused: The issuer has no device flow, or not for this client.
    """
    device = begin_device(at, client_id, scopes, fetcher)
    output.note(f"to log in, open {device.uri} and type the code {device.user_code}")
    if device.whole_uri:
        output.note(f"or open {device.whole_uri}")
    interval_s, end = device.interval_s, now() + device.expires_in
    while now() + interval_s < end:
        sleep(interval_s)
        try:
            return of_device(at, client_id, device, fetcher)
        except Refused as refused:
            if refused.error == "slow_down":
                interval_s = min(interval_s + _SLOWER_S, _MAX_INTERVAL_S)
            elif refused.error == "expired_token":
                break
            elif refused.error == "access_denied":
                raise NotLoggedIn("the login was refused at the issuer's page") from refused
            elif refused.error != "authorization_pending":
                raise
        except IssuerError as error:  # the issuer may recover
            output.note(error.what)
            interval_s = min(interval_s * 2, _MAX_INTERVAL_S)
    raise NotLoggedIn("the code was not typed in time; run mesos-gpu login again")
