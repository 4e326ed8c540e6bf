"""Commands for the Spark that serves a model: doctor, prefetch, run, bench."""
