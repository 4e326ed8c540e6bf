"""A hermetic base for a version of vLLM: its requests, its lock sections, and what its wheels show."""
