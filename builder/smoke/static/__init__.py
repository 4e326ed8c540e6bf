"""The static tier: checks that read an image without running its code."""
