"""Reproducible vLLM container images for NVIDIA DGX Spark (GB10: arm64, sm_121)."""

__version__ = "0.1.0"
