"""The program that runs several Python checks in one interpreter of the image.

Arguments: a prefix that marks its lines, and the literal of a list of codes. For each it prints two marked lines,
`begin`, and `pass` or `fail` with the output of the code, from Python or C, in Python's escapes.
It imports only built-in modules: under qemu, and without bytecode, `import json` takes seconds.
"""

PROGRAM = r"""
import os, sys
mark, jobs = sys.argv[1], eval(sys.argv[2])
del sys.argv[1:]
report = os.fdopen(os.dup(1), "w")
def say(what):
    report.write(mark + what + "\n")
    report.flush()
for number, code in enumerate(jobs):
    say("begin")
    log = os.memfd_create("log")
    os.dup2(log, 1)
    os.dup2(log, 2)
    ok = False
    source = "/tmp/check-%d-%d.py" % (os.getpid(), number)
    try:
        # In a file, so that tracebacks and inspect.getsource (Triton) find the source.
        with open(source, "w") as file:
            file.write(code)
    except OSError:
        pass
    try:
        exec(compile(code, source, "exec"), {"__name__": "__main__", "__file__": source})
        ok = True
    except SystemExit as end:
        ok = end.code in (None, 0)
        if not ok:
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    size = os.lseek(log, 0, 2)
    text = os.pread(log, 50000, max(0, size - 50000)).decode("utf-8", "replace")
    os.close(log)
    say(("pass " if ok else "fail ") + text.encode("unicode_escape").decode("ascii"))
# Libraries with threads may hang or crash on the way out: all results are reported.
os._exit(0)
"""
