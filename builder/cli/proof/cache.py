"""`build --cache`: the cache that its options name, and what is printed about it."""

from __future__ import annotations

from pathlib import Path

from builder.attest.keys import SigningKey
from builder.cache.cache import LayerCache, cache_place
from builder.cli.output import say
from builder.cli.proof.keys import read_signing_key
from builder.cli.proof.policy import read_policy
from builder.errors import InvalidError, UsageError
from builder.model.plan import Plan
from builder.store.store import Store


def layer_cache(text: str | None, policy: Path | None) -> LayerCache | None:
    """The cache that the options name. Raises UsageError, InvalidError."""
    if not text:
        if policy is not None:
            raise UsageError(
                "--policy is about layers of a cache", id="policy-without-cache", next="name it: --cache REPOSITORY"
            )
        return None
    place = cache_place(text)
    if policy is None:
        return LayerCache(place)
    rules, keys = read_policy(policy)
    if rules.layers is None:
        raise InvalidError(
            "it does not say who must have built a layer",
            id="policy-without-layers",
            where=str(policy),
            next="add: layers: {count: 1, keys: [team.pub]}",
        )
    return LayerCache(place, rules.layers, [key for key in keys if key.name in rules.layers.keys])


def publishing_key(cache: str | None, path: Path | None) -> SigningKey:
    """The key of `--publish`. Raises UsageError, InvalidError."""
    key = read_signing_key(path)
    if key is None or not cache:
        what = "--publish needs a key to sign with" if key is None else "--publish needs a cache to publish to"
        raise UsageError(
            what, id="publish-incomplete", next="builder build --recipe NAME --cache REPOSITORY --publish --key key.pem"
        )
    return key


def say_cached(cache: LayerCache | None) -> None:
    """Print what the cache said that the user should know, once."""
    if cache is not None:
        for text in cache.notes:
            say(text)
        cache.notes.clear()


def publish_layers(cache: LayerCache, store: Store, plan: Plan, key: SigningKey) -> None:
    """Publish the layers of a plan that were built here. Raises BuilderError."""
    layers = [layer for layer in plan.layers if layer.producer != "config"]
    cache.publish(store, layers, key, lambda layer, outcome: say(f"  {layer:24} {outcome} in {cache.name}"))
