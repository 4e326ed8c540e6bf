"""Builds: makes the missing layers of a plan and assembles the image."""
