"""Wrong inputs: each ends with the exit code and the id of its error, in one message, and leaves no file behind."""

from __future__ import annotations

import shlex

import pytest

from tests.support.cli import Cli

WRONG = """
plan                                            2 recipe-not-given
plan tin                                        2 name-unknown
plan ../tiny                                    2 name-unknown
plan tiny more                                  2 usage
plan tiny --set                                 2 usage
plan tiny --json=1                              2 usage
plan tiny --bogus                               2 usage
plan tiny --base tinny                          2 name-unknown
plan tiny --profile nope                        2 profile-unknown
plan tiny --set x                               2 set-malformed
plan tiny --set nope.x=1                        2 set-layer-unknown
plan tiny --set placed.x=1                      2 parameter-unknown
plan tiny --profile ''                          2 value-empty
plan ''                                         2 value-empty
plan tiny --json=yes                            2 usage
plan tiny --platform linux/amd64                2 platform-unsupported
plan tiny --bundle /                            2 bundle-not-writable
render tiny --context /proc/none                2 context-not-writable
render tiny --context / --offline               2 context-not-empty
lint nope                                       2 name-unknown
lint --sarif --json                             2 lint-formats-conflict
lint --base nope                                2 name-unknown
lint --machine spark-32                         2 machine-unknown
list recipe                                     2 list-kind-unknown
list recipes bases                              2 usage
show nope                                       2 name-unknown
show tiny --signed-by key.pub                   2 show-keys-without-image
show a//b                                       2 reference-invalid
new                                             2 usage
new recepe x                                    2 new-kind-unknown
new recipe ../x                                 2 name-invalid
new recipe tiny                                 2 new-recipe-bundled
new recipe x --base nope                        2 name-unknown
new recipe x --extends nope                     2 name-unknown
new recipe x --layer placed                     2 new-layer-without-extends
new recipe x --model nope                       2 model-name-invalid
new layer x --extends tiny                      2 new-option-unfit
new recipe x --vllm 0.20.0                      2 new-option-unfit
new layer x --model a/b                         2 new-option-unfit
new recipe x --extends tiny --model a/b         2 new-option-unfit
new recipe x --extends tiny --layer placed      2 new-layer-twice
new base x                                      2 new-base-version
add wheels                                      2 usage
add snaps x y                                   2 add-kind-unknown
add wheels X y                                  2 name-invalid
add wheels x 'y z'                              2 requirement-invalid
add wheels x 'y @ http://h/y.whl'               2 requirement-invalid
add wheels x /etc/passwd                        2 requirement-invalid
add wheels x y --base nope                      2 name-unknown
lock nope                                       2 lock-name-unknown
lock --remote                                   2 lock-remote-without-check
lock --check --update                           2 lock-options-conflict
schema                                          2 usage
schema recipes                                  2 schema-unknown
explain tiny nope                               2 explain-layer-unknown
explain nope placed                             2 name-unknown
explain tiny --since nope                       2 revision-unknown
graph tiny nope                                 2 name-unknown
graph --format png                              2 graph-format-unknown
graph tiny --base nope                          2 name-unknown
diff tiny                                       2 usage
diff tiny tin                                   2 operand-unknown
diff tiny LONG                                  2 operand-unknown
diff tiny /none.json                            2 operand-unknown
diff tiny sha256:0                              2 operand-unknown
diff tiny oci:/none                             2 layout-missing
diff nope:tiny tiny                             2 revision-unknown
verify                                          2 verify-image-not-given
verify tiny --no-rebuild                        2 verify-image-not-given
verify h/x:1 --attest                           2 attest-incomplete
verify h/x:1 --signed-by /none                  2 key-unreadable
verify h/x:1 --vary nope                        2 variation-unknown
verify h/x:1 --project . -r tiny                2 verify-project-and-recipe
verify h/X:1                                    2 reference-invalid
verify h/x:1 h/x:2                              2 word-too-many
bisect --good a                                 2 usage
bisect --good a --bad b -- true                 2 operand-unknown
bisect --good /none.json --bad b -- true        2 operand-unknown
bisect -r tiny --good HEAD --bad HEAD -- true   2 operand-unknown
bisect --good a --bad b --engine x -- true      2 engine-unknown
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines(), ids=lambda line: line.rsplit(None, 2)[0])
def test_a_wrong_input_is_one_message(cli: Cli, line: str) -> None:
    words, code, id = line.replace("LONG", "x" * 300).rsplit(None, 2)
    cli.write()
    before = sorted(cli.folder.rglob("*"))
    said = cli(*shlex.split(words))
    said.failed(int(code), id)
    assert len(said.err.splitlines()) <= 3, said.err
    assert "next:" in said.err
    assert "builder COMMAND" not in said.err, "the next step names the command"
    assert [path for path in sorted(cli.folder.rglob("*")) if "store" not in path.parts] == [
        path for path in before if "store" not in path.parts
    ]
