"""Measurement of prefill and decode rates of a running vLLM server, for `builder bench`."""
