"""`builder serve`: the images of the store as a read-only registry."""

from __future__ import annotations

import os
import re
import secrets
from typing import Annotated

import typer

from builder.cli.output import counted, say, size
from builder.cli.request import open_store
from builder.digest import Digest
from builder.errors import UsageError
from builder.share import PORT
from builder.share.library import Library
from builder.share.server import USER, Server, is_loopback

ADDRESS = f"127.0.0.1:{PORT}"


def serve(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen. Port 0 takes a free one.")
    ] = ADDRESS,
) -> None:
    """Serve the images of the store as a read-only registry, until Ctrl-C.

    docker, containerd, skopeo and `builder` pull from it: each recipe is a repository, each base a tag. Only this
    machine reaches it, unless --listen says otherwise: then clients log in, with BUILDER_TOKEN or a new token.
    """
    host, port = _address(listen)
    token = None if is_loopback(host) else os.environ.get("BUILDER_TOKEN") or secrets.token_urlsafe(24)
    library = Library(open_store())
    with Server(library, (host, port), token=token, sent=_say_sent) as server:
        offers = library.offers()
        say(f"serves {counted(len(offers), 'image')} at http://{server.host}, read-only, until Ctrl-C")
        for offer in offers:
            place = f"{server.host}/{offer.name}"
            # Of several images of one recipe and base, the tag names the one that was used last.
            tagged = offer.tag is not None and library.tags(offer.name).get(offer.tag) == offer.digest
            say(f"  {place}:{offer.tag}  {offer.digest}" if tagged else f"  {place}@{offer.digest}")
        if token is not None:
            say(f"clients log in as {USER}, without encryption: docker login --username {USER} {server.host}")
            say("the password is in BUILDER_TOKEN" if os.environ.get("BUILDER_TOKEN") else f"the password is {token}")
        print(server.host, flush=True)
        server.wait()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    # Only an IPv6 address has colons, and it is in brackets then.
    strange = not re.fullmatch(r"[0-9A-Fa-f:.]+", host[1:-1]) if bracketed else bool(set(host) & set(":[]/ "))
    if not host or strange or not port.isascii() or not port.isdigit() or not 0 <= int(port[:6]) < 65536:
        raise UsageError(
            f"not an address: {text[:100]!a}", id="serve-address-invalid", next=f"write HOST:PORT, as in {ADDRESS}"
        )
    return host.strip("[]"), int(port)


def _say_sent(client: str, digest: Digest, count: int) -> None:
    say(f"  {digest[:19]} {size(count):>10} to {client}")
