"""The program that runs several Python checks in one interpreter of the image.

Arguments: a prefix that marks its lines, and the literal of a list of (id, code). For each it prints two marked lines,
literals of dicts, at the begin and at the end; the second has the output of the code, from Python or C.
It imports only built-in modules: under qemu, and without bytecode, `import json` takes seconds.
"""

PROGRAM = r"""
import os, sys, time
mark, jobs = sys.argv[1], eval(sys.argv[2])
del sys.argv[1:]
report = os.fdopen(os.dup(1), "w")
def say(**what):
    report.write(mark + ascii(what) + "\n")
    report.flush()
for number, (name, code) in enumerate(jobs):
    say(begin=name)
    start = time.monotonic()
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
    say(end=name, ok=ok, output=text, seconds=round(time.monotonic() - start, 3))
# Libraries with threads may hang or crash on the way out: all results are reported.
os._exit(0)
"""
