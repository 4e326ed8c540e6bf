"""Producers: make a layer's files and hand them to the normaliser."""
