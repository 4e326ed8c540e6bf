"""Text generated from recipes and rules: pages of docs/ (`python -m builder.guide`) and the text of `builder show`."""
