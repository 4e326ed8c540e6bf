"""Fetching and verifying what the lock names: sources, wheels and Debian packages."""
