"""HTTP connections whose answers are read within bounds, for clients of strangers' servers."""

from __future__ import annotations

from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from builder.engine.httpread import CheckedResponse
from builder.parallel import every


class _Connection(HTTPConnection):
    response_class = CheckedResponse

    def _new_conn(self) -> Any:
        """Look the host's name up and connect: in a thread, as no signal ends the wait for a silent name server."""
        return every(lambda make: make(), [super()._new_conn])[0]


class _TLSConnection(HTTPSConnection):
    response_class = CheckedResponse

    def _new_conn(self) -> Any:
        return every(lambda make: make(), [super()._new_conn])[0]


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class Adapter(HTTPAdapter):
    """requests' connections with such answers; for cut headers they raise the error of a broken connection."""

    def init_poolmanager(self, *args: Any, **more: Any) -> None:
        """Make the pools; proxies share them."""
        super().init_poolmanager(*args, **more)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def proxy_manager_for(self, *args: Any, **more: Any) -> Any:
        """The pools of a proxy."""
        manager = super().proxy_manager_for(*args, **more)
        manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
        return manager
