"""`builder explain` and `builder graph`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from tests.support.cli import Cli
from tests.support.gitrepo import git


def test_what_would_be_built_again(online: Cli) -> None:
    assert "would be built" in online("explain", "--recipe", "tiny").out
    assert online("build", "--recipe", "tiny").code == 0
    assert "would be built" not in online("explain", "--recipe", "tiny").out
    layer = online.small.files["dockerfiles/layers/placed/layer.yaml"]
    layer["files"][0]["content"] = "changed\n"
    section = online.small.files["recipes/locks/tiny-wheels.json"]
    section["wheels"][0] |= {"sha256": "0" * 64}
    rows = {row["id"]: row for row in json.loads(online("explain", "--recipe", "tiny", "--json").out)}
    assert [name for name, row in rows.items() if row["changes"]] == ["wheels-alpha", "placed"]
    (change,) = rows["wheels-alpha"]["changes"]
    assert change["name"].startswith("alpha-1.0") and change["new"] == "0" * 12 != change["old"]
    assert rows["placed"]["changes"][0]["name"] == "Dockerfile, parameters or format"
    text = online("explain", "wheels-alpha", "--recipe", "tiny").out
    for part in ("would be built", "since the last one in the store: alpha-1.0", "recipes/bases/tiny.yaml lists it"):
        assert part in text
    online("explain", "nothing", "--recipe", "tiny").failed(2, "explain-layer-unknown")


def test_since_a_revision(cli: Cli) -> None:
    cli.environ["PATH"] = os.environ["PATH"]
    cli.write()
    for words in (("init",), ("add", "."), ("commit", "--message=first")):
        git(cli.folder / "project", *words)
    cli.small.files["dockerfiles/layers/compiled/Dockerfile.j2"] += "# more\n"
    rows = json.loads(cli("explain", "--recipe", "tiny", "--since", "HEAD", "--json").out)
    assert {row["id"]: [item["name"] for item in row["changes"]] for row in rows if row["changes"]} == {
        "compiled": ["Dockerfile"]
    }
    said = cli("explain", "placed", "--recipe", "tiny", "--since", "HEAD")
    assert "since the revision: nothing, its key is the same" in said.out
    cli("explain", "--recipe", "tiny", "--since", "v9").failed(2, "revision-unknown")
    cli("explain", "--recipe", "tiny", "--since", "--output=x").failed(2, "revision-unknown")


def test_a_damaged_record_of_the_store(online: Cli) -> None:
    online("build", "--recipe", "tiny")
    online.small.files["dockerfiles/layers/placed/layer.yaml"]["files"][0]["content"] = "changed\n"
    (record,) = (online.folder / "store" / "images").glob("*.json")
    for text in ('{"layers": 3}', '{"layers": [3, {"id": "placed", "used": [3, {}, {"name": []}]}]}'):
        record.write_text(text)
        assert online("explain", "--recipe", "tiny").code == 0, text


def test_graphs(cli: Cli) -> None:
    text = cli("graph", "--recipe", "tiny").out
    assert "recipe tiny\n  base tiny\n  layer compiled" in text and "toolchain" in text
    dot = cli("graph", "--recipe", "tiny", "--format", "dot").out
    assert dot.startswith("digraph builder {") and re.search(r'"layer compiled \w+" -> "toolchain";', dot)
    mermaid = cli("graph", "--recipe", "tiny", "--format", "mermaid").out
    nodes = set(re.findall(r"^  (n\d+)\[", mermaid, re.MULTILINE))
    assert nodes and {name for edge in re.findall(r"(n\d+) --> (n\d+)", mermaid) for name in edge} <= nodes
    cli("graph", "--format", "png").failed(2, "graph-format-unknown")
    cli("graph", "--recipe", "tiny", "--format", "svg").failed(2, "dot-missing")


def test_a_drawing(cli: Cli, tmp_path: Path) -> None:
    (cli.folder / "bin").mkdir()
    program = cli.folder / "bin" / "dot"
    for script, code in (("/bin/cat; echo '<svg>'", 0), ("/bin/cat >&2; exit 3", 2)):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        said = cli("graph", "--recipe", "tiny", "--format", "svg")
        assert said.code == code and ("digraph" in said.out) == (code == 0), said.err


def test_a_graph_without_nodes_is_refused(cli: Cli) -> None:
    cli("graph", "--recipe", "nothing").failed(2, "name-unknown")
