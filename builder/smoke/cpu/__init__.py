"""The cpu tier: checks that run code of the image on arm64, natively or under qemu."""
