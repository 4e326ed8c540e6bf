"""HTTP connections whose answers are read within bounds, for clients of strangers' servers."""

from __future__ import annotations

from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from builder.engine.httpread import CheckedResponse


class _Connection(HTTPConnection):
    response_class = CheckedResponse


class _TLSConnection(HTTPSConnection):
    response_class = CheckedResponse


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
