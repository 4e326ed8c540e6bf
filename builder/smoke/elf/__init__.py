"""Readers of ELF files and of the GPU code in them."""
