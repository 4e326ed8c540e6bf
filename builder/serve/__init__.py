"""The container that serves a recipe: its specification, and its forms for docker, compose, systemd and the SDK."""
