"""Documents that are made from recipes, rules and what is known: `python -m builder.guide` writes them."""
