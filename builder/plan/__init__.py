"""Resolves recipe, base and lock into a plan: pure functions without processes, network or store."""
