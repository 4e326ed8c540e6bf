"""Programs of the gpu tier that run inside the image, as `python3 -m probes.NAME`, and what they share.

They use what a vLLM image has (numpy, torch, triton, vllm) and nothing of `builder`. Each prints one marked line of
JSON; the host judges it. `formats` and `reference` need numpy only, so that any machine can test them.
"""
