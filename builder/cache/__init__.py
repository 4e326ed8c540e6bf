"""The layer cache: layers by their key in a registry, with signed statements of those who built them."""
