"""Proof: an image is rebuilt from its bundle, or from a project, and compared."""
