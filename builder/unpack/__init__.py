"""Unpacks locked Debian packages and wheels into a tree of files.

Standard library only, and without imports from the rest of `builder`: a rendered Dockerfile carries this folder along
and runs it inside a build stage (`python3 -m unpack`), so that `build` and `render` share one implementation.
"""

FORMAT = 1
"""Part of every key of a `files` layer: raise it when the same inputs give other bytes."""
