"""Probes: programs of the gpu tier that run inside the image, as `python3 -m probes.NAME`, and shared modules.

They import only packages of a vLLM image (numpy, torch, triton, vllm), never `builder`. Each prints one marked line of
JSON, which `gpu/judge.py` judges. `formats` and `reference` need numpy only, so that any machine can test them.
"""
