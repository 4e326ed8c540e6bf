"""Images of the store for others: a read-only registry, and docker daemons that pull from it."""

PORT = 5080
"""Of `builder serve`, and of parcels: so the repository that docker remembers can be pulled from again."""
