"""Mirrors: every input of a plan in one folder or repository, for networks that cannot reach the upstreams."""
