"""Commands for the machine that serves: doctor, prefetch, run, bench."""
