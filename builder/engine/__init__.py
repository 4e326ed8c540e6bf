"""Engines: run one rendered Dockerfile to one target and give back its files."""
