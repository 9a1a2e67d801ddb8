"""Check that a server takes connections at all, before calls that would be tried for long."""

import socket
import urllib.request
from urllib.parse import urlsplit

from components.cloud_errors import CloudError

_SECONDS = 2.5
_TRIES = 2


def check(url: str, *, advice: str) -> None:
    """Connects to the server of `url` and hangs up; sends nothing.

    A server behind a proxy is the proxy's business, and left alone.

    Args:
        url: with a scheme, which stands for a port where there is none.
        advice: what to check where nobody answers.

    Raises:
        CloudError: nobody has answered within seconds; it names the address.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        raise CloudError(
            f"no answer from {parts.netloc}: there is no such port; {advice}"
        ) from None
    if urllib.request.getproxies().get(parts.scheme) and not urllib.request.proxy_bypass(host):
        return
    for number in range(1, _TRIES + 1):
        try:
            socket.create_connection((host, port), timeout=_SECONDS).close()
            return
        except (OSError, UnicodeError) as error:
            # A name that is not known stays so; whatever else may have been a moment's trouble.
            if number == _TRIES or isinstance(error, (socket.gaierror, UnicodeError)):
                why = getattr(error, "strerror", None) or error
                address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                raise CloudError(f"no answer from {address} ({why}); {advice}") from None
