"""`builder bench`: prefill and decode rates of a running server."""
