"""The static tier: checks that read an image and run none of its code."""
