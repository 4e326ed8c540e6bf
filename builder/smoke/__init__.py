"""Smoke checks of an image, on its exact digest: without running it (static), and by running it on a CPU (cpu)."""
