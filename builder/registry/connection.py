"""HTTP connections that do not take cut headers for whole ones.

Python's http.client ends the headers of an answer at the end of the connection too: of `Content-Length: 12345` it may
read `Content-Length: 12`, and of a redirect half an address.
"""

from __future__ import annotations

import http.client
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection


class _Lines:
    """A stream that remembers the last line that was read."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self._stream.readline(limit)
        return self.last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class CheckedResponse(http.client.HTTPResponse):
    """An answer whose headers end with an empty line."""

    def begin(self) -> None:
        """Read the status and headers. Raises IncompleteRead when the connection ends within them."""
        stream = self.fp
        lines = _Lines(stream)
        self.fp = lines  # type: ignore[assignment]
        super().begin()
        if self.fp is lines:  # type: ignore[comparison-overlap]
            self.fp = stream
        if lines.last not in (b"\r\n", b"\n"):
            raise http.client.IncompleteRead(lines.last)


class _Connection(HTTPConnection):
    response_class = CheckedResponse


class _TLSConnection(HTTPSConnection):
    response_class = CheckedResponse


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class Adapter(HTTPAdapter):
    """requests' connections, with such an error for cut headers as for a broken connection."""

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        """Make the pools; proxies share them."""
        super().init_poolmanager(*args, **more)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def proxy_manager_for(self, *args: Any, **more: Any) -> Any:
        """The pools of a proxy."""
        manager = super().proxy_manager_for(*args, **more)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
        return manager
