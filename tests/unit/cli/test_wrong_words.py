"""Wrong inputs of commands: each ends with its exit code, the id of its message and a next step, and leaves nothing."""

from __future__ import annotations

import pytest

from tests.support.cli import Cli
from tests.support.openai_server import serving

HERE = "127.0.0.1:1/team/tiny"
LONG = "x" * 3000

WRONG = """
build tiny --base=                                    2 value-empty
build tiny --set placed                               2 set-malformed
build tiny --set placed.x=                            2 parameter-unknown
build tiny --platform linux/amd64                     2 platform-unsupported
build tiny --output oci:                              2 output-invalid
build tiny --output oci:/dev/null/x                   2 layout-not-writable
build tiny --output oci:dir                           2 layout-folder-occupied
build tiny --load                                     5 docker-unreachable
build tiny --all                                      2 all-and-recipe
build tiny --plan x                                   2 plan-with-recipe
build --plan /nowhere                                 2 operand-unknown
build --plan dir                                      2 bundle-unreadable
build --plan bad.json                                 3 bundle-invalid
build tiny --publish                                  2 publish-incomplete
build tiny --key bad.json                             2 key-without-publish
build tiny --cache 127.0.0.1:1/x --policy /nowhere    3 file-unreadable
build --all --tag x                                   2 tag-for-several-images
test tiny --tier gnu                                  2 tier-unknown
test tiny --only nope                                 2 check-unknown
test tiny --structure /nowhere                        3 file-unreadable
test tiny --junit /nowhere/x                          2 report-not-writable
test tiny --junit x --html ./x                        2 report-twice
test tiny --html dir                                  2 report-not-writable
test tiny --tier gpu --peer -f                        2 peer-invalid
test tiny --results bad.json                          2 report-not-writable
test oci:badlayout                                    3 manifest-invalid
push --recipe tiney                                   2 name-unknown
push tiny                                             2 push-reference-missing
push tiny http://127.0.0.1/x:1                        2 reference-invalid
push tiny HERE@sha256:12                              2 reference-invalid
push tiny HERE@sha256:ZEROS                           2 push-digest-mismatch
push tiny HERE:1 --key /nowhere                       2 key-unreadable
push tiny HERE:1 --key bad.json                       3 key-invalid
push tiny HERE:1 --with-results                       2 results-missing
push tiny HERE:1 --compression xz                     2 compression-unknown
push                                                  2 recipe-not-given
load                                                  2 load-image-missing
load tiny HERE:1                                      2 load-two-images
load HERE:1 --policy /nowhere                         3 file-unreadable
load tiny --policy x                                  2 policy-without-image
load tiny                                             5 docker-unreachable
run                                                   2 recipe-not-given
run tiny --set x                                      2 set-malformed
run tiny --image x --policy /nowhere                  3 file-unreadable
run tiny --format k8s                                 2 format-unknown
run tiny --image h/X:1                                2 image-name-invalid
run tiny --json --exec                                2 run-options-conflict
serve --listen [::1:80                                2 serve-address-invalid
serve --listen 127.0.0.1:80:80                        2 serve-address-invalid
serve --listen 999.1.1.1:80                           5 serve-cannot-listen
deploy tiny                                           2 deploy-incomplete
deploy tiny --host -oProxyCommand=x                   2 deploy-host-invalid
deploy HERE:1 --host h --policy /nowhere              3 file-unreadable
bench --url http://user:secret@127.0.0.1:1            2 bench-url-login
bench --url localhost:8000                            2 bench-url-invalid
bench --url 127.0.0.1                                 2 bench-url-invalid
bench --url http://127.0.0.1:1                        6 bench-server-unreachable
doctor --profile x                                    2 profile-without-recipe
doctor --peer -f                                      2 peer-invalid
doctor --interface ../../etc                          2 device-name-invalid
doctor --hca a/b                                      2 device-name-invalid
gc --older-than 0x1d                                  2 age-invalid
images nope                                           2 name-unknown
prefetch                                              2 recipe-not-given
prefetch tiny --exec --json                           2 prefetch-options-conflict
mirror bad.json tiny                                  2 layout-is-file
mirror http://x/y tiny                                2 mirror-name-invalid
mirror 127.0.0.1:x/y tiny                             2 mirror-name-invalid
mirror dir tiny                                       2 layout-folder-occupied
site bad.json                                         2 site-not-writable
site new --signed-by bad.json                         3 key-invalid
site dir                                              2 site-folder-foreign
site HERE:1                                           2 site-folder-is-image
fsck x                                                2 usage
cache --recipe tiny                                   2 usage
"""
"""A command line, the exit code and the id of the error."""


@pytest.fixture
def built(online: Cli) -> Cli:
    """A built image, and files and folders that are none of what a command needs."""
    assert online("build", "tiny").code == 0
    (online.folder / "bad.json").write_text('{"a": [')
    for folder in ("dir", "badlayout"):
        (online.folder / folder).mkdir()
        (online.folder / folder / "index.html").write_text("mine")
    (online.folder / "badlayout/index.json").write_text("{")
    online.keep = True
    return online


def test_each_wrong_input_is_told_with_a_next_step_and_leaves_nothing(built: Cli) -> None:
    def listed() -> set[str]:
        return {str(path) for path in built.folder.rglob("*") if "store/" not in str(path)}

    before, odd = listed(), []
    for row in WRONG.strip().splitlines():
        *words, code, id = row.replace("HERE", HERE).replace("ZEROS", "0" * 64).split()
        said = built(*words)
        told = f"[{id}]" in said.err and "next:" in said.err
        left = (listed() - before) | {str(path) for path in (built.folder / "store/tmp").iterdir()}
        if (said.code, said.out, told, left) != (int(code), "", True, set()) or "secret" in said.err:
            odd.append((row, said, left))
    assert not odd


def test_a_long_name_is_cut_in_messages(cli: Cli) -> None:
    said = cli("images", LONG)
    said.failed(2, "name-unknown")
    assert len(said.err) < 1000


def test_a_server_that_fails_is_named(cli: Cli) -> None:
    for fault, id in (
        ("500", "bench-request-refused"),
        ("no usage", "bench-no-tokens"),
        ("not json", "bench-no-tokens"),
    ):
        with serving(fault) as (url, _):
            said = cli("bench", "--url", url, "--runs", "1", "--output-tokens", "8")
            assert (said.code, f"[{id}]" in said.err, url in said.err) == (6, True, True), said.err
