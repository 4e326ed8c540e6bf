"""Texts generated from recipes and rules: the pages of docs/ (`python -m builder.guide`) and `builder show`."""
