"""The access that the settings choose. What is missing is refused, because nothing is open."""

from cronledger.rules.problems import ConfigurationError, Problem
from cronledger.settings import Settings
from cronledger.web.access.identity import Access
from cronledger.web.access.loopback import LoopbackAccess
from cronledger.web.access.proxy import ProxyAccess
from cronledger.web.access.scheme import Scheme
from cronledger.web.access.sessions import Sessions
from cronledger.web.access.tokens import TokenAccess


def access_of(settings: Settings, sessions: Sessions, scheme: Scheme) -> Access:
    """Return the access of `web_auth`. Raises ConfigurationError if it could admit nobody."""
    match settings.web_auth:
        case "loopback":
            return LoopbackAccess()
        case "token":
            remedy = "add NAME:operator:SHA256, or use CRONLEDGER_WEB_AUTH=loopback"
            _require(bool(settings.web_tokens), "CRONLEDGER_WEB_TOKENS", remedy)
            return TokenAccess(settings.web_tokens, sessions, scheme)
        case "proxy":
            remedy = "add the address from which the proxy connects"
            _require(bool(settings.web_proxy_peers), "CRONLEDGER_WEB_PROXY_PEERS", remedy)
            return ProxyAccess(
                peers=settings.web_proxy_peers,
                user_header=settings.web_proxy_user_header,
                groups_header=settings.web_proxy_groups_header,
                operators=settings.web_operator_groups,
                viewers=settings.web_viewer_groups,
            )


def _require(present: bool, name: str, remedy: str) -> None:
    if not present:
        raise ConfigurationError([Problem(field=name, message="is not set", remedy=remedy)])
