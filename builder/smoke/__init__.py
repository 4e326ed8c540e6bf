"""Smoke checks of an image by digest: read it (static), run it on a CPU (cpu), run it on a GB10 (gpu)."""
