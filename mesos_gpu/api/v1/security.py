"""Security of the REST interface, as its status shows it."""

from mesos_gpu.adapters.oidc.tokens import OidcTokens
from mesos_gpu.adapters.tls.reload import ReloadedTls
from mesos_gpu.api.login.who import Who
from mesos_gpu.api.spec import shapes
from mesos_gpu.model.access.caller import Proof


def secured(tls: ReloadedTls | None, who: Who | None, *, open_to_all: bool) -> shapes.Secured:
    """Return how the interface is protected. `open_to_all`: whether other machines reach it without authentication."""
    issuer = who.provers.get(Proof.OIDC) if who else None
    return {
        "open_to_all": open_to_all,
        "tls": None if tls is None else _tls(tls),
        "issuer_problem": (issuer.issuer.problem or None) if isinstance(issuer, OidcTokens) else None,
    }


def _tls(tls: ReloadedTls) -> shapes.Tls:
    state = tls.state
    return {
        "subject": state.facts.subject,
        "names": list(state.facts.names),
        "not_after": state.facts.not_after,
        "clients": tls.files.clients.value,
        "crl_until": state.facts.crl_until,
        "loaded_at": state.loaded_at,
        "problem": state.problem or None,
    }
