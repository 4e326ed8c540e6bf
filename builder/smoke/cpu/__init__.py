"""The cpu tier: checks that run code of the image on a CPU, natively on arm64 or under qemu."""
