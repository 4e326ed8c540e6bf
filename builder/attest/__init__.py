"""Receipts of layers: the inputs that an image was built from."""
