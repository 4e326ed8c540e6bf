"""Measures a running server as the reference does."""
