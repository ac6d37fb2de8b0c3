"""What is answered without a name, by the operator's word."""

import pytest

from tests.contract.login.rig import LoginRig, TokenStore

PATHS = {
    "ping": ("/ping", "/v1/health"),
    "openapi": ("/v1/openapi.json",),
    "metrics": ("/metrics", "/metrics/prometheus"),
}


@pytest.mark.parametrize("opened", [(), ("ping", "openapi"), ("metrics",)], ids=",".join)
def test_open_routes_need_no_name_and_others_do(opened: tuple[str, ...]) -> None:
    store = TokenStore()
    rig = LoginRig([store.prover()], open_routes=opened)
    admin = store.make("root")
    try:
        for word, paths in PATHS.items():
            for path in paths:
                assert rig.call("GET", path).status_code == (200 if word in opened else 401), path
                assert rig.call("GET", path, admin).status_code == 200
        assert rig.call("GET", "/v1/jobs").status_code == 401
    finally:
        rig.close()
