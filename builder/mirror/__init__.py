"""Mirrors: every input of a plan in one folder or one repository, for sites without a way to the upstreams."""
