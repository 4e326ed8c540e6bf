"""Fetches and verifies the inputs that the lock names: sources, wheels and Debian packages."""
