"""The OCI runtime configuration in which the cpu tier runs code of an image, and the script that prepares its files.

The image is a stranger's. Its processes have namespaces of their own (user, mount, process, network, IPC, host name,
cgroup), no device but the usual ones, six capabilities over their own namespace, no way to gain privileges, and
no system call that administers a kernel. They see the image below a layer in memory that ends with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FIRST_ID = 0x70000000
"""User and group 0 of the sandbox on the host, when root starts it: beyond every range of systemd's UIDS-GIDS.md."""

IDS = 65536
"""Number of user and group ids in the sandbox."""

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE")
"""Linux capabilities of processes of the image, over files and processes of their own namespace.

No SETUID: the kernel counts processes by user, so that a change of the user starts again from zero.
"""

_REFUSED = (
    *("acct", "add_key", "bpf", "chroot", "clock_adjtime", "clock_settime", "delete_module", "fanotify_init"),
    *("finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register"),
    *("io_uring_setup", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr"),
    *("move_mount", "name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree", "perf_event_open"),
    *("pidfd_getfd", "pivot_root", "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "quotactl_fd"),
    *("reboot", "request_key", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog"),
    *("umount", "umount2", "unshare", "userfaultfd", "vhangup"),
)
"""System calls that Docker's default profile refuses to a container without further capabilities."""

_NEW_USER = 0x10000000  # CLONE_NEWUSER of sched.h
_FAMILIES = (38, 40)  # AF_ALG and AF_VSOCK of socket.h: no network namespace separates them
_ENOSYS = 38

_HIDDEN = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/sched_debug", "/proc/timer_list", "/sys/firmware")
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

MEMORY_FILES = 4 << 30
"""Bytes that a command may write to files."""

_TASKS = 8192
"""Processes and threads of one user."""

ENTER = r"""
set -e
runtime=$1 owner=$2 bytes=$3 root=$4 bytecode=$5
IFS= read -r config
IFS= read -r process
exec </dev/null
mount --make-rprivate /
# Open, because the next line hides what is below /tmp, and because a path may have a colon or comma.
exec 9<"$root"
[ -z "$bytecode" ] || exec 8<"$bytecode"
mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs /tmp
mkdir /tmp/bundle /tmp/root /tmp/bytecode /tmp/layer
# All files that the command writes are here: one limit for all of them.
mount -t tmpfs -o "nosuid,nodev,mode=755,size=$bytes,nr_inodes=1000000" tmpfs /tmp/layer
mkdir /tmp/layer/upper /tmp/layer/work /tmp/layer/tmp /tmp/layer/shm
chmod 755 /tmp/layer/upper
chmod 1777 /tmp/layer/tmp /tmp/layer/shm
[ -z "$owner" ] || chown "$owner:$owner" /tmp/layer/upper /tmp/layer/work
mount -t overlay -o nosuid,nodev,lowerdir=/proc/self/fd/9,upperdir=/tmp/layer/upper,workdir=/tmp/layer/work \
    overlay /tmp/root
[ -z "$bytecode" ] || mount --bind /proc/self/fd/8 /tmp/bytecode
exec 8<&- 9<&-
printf '127.0.0.1 localhost\n::1 localhost\n' >/tmp/hosts
printf %s "$config" >/tmp/bundle/config.json
printf %s "$process" >/tmp/process.json
run="$runtime --root /tmp/state --rootless true --log /tmp/log"
code=0
# The container's first process waits and does nothing: a process with number 1 would ignore signals.
$run create --no-new-keyring --bundle /tmp/bundle smoke >/dev/null 2>/tmp/errors || code=$?
if [ "$code" != 0 ]; then cat /tmp/errors; exit 125; fi
$run exec --process /tmp/process.json smoke || code=$?
if [ "$code" = 255 ] && grep -q 'level=error' /tmp/log; then
    if grep -q 'not found\|no such file' /tmp/log; then exit 127; else exit 126; fi
fi
exit "$code"
"""
"""Shell script. Arguments: the OCI runtime, the owner of new files (or ""), bytes that a command may write, the image's
files, and a folder for Python's bytecode (or ""). Standard input: the container's configuration and the process, each
in one line. Exit status: the command's; 125 to 127 when it was not run, as `docker run`."""


PREPARED = ("dev", "etc", "proc", "sys", "tmp")
"""Folders of the image in which the runtime mounts or makes something."""


def container(*, mapped: bool, bytecode: bool, sysfs: bool) -> dict[str, Any]:
    """The configuration of the container, as of the OCI runtime specification 1.0.

    mapped: in a user namespace with IDS ids from FIRST_ID; otherwise the caller has made one. bytecode: with a folder
    for it at /dev/bytecode. sysfs: with a read-only /sys.
    """
    namespaces = ["pid", "mount", "ipc", "uts", "network", "cgroup", *(["user"] if mapped else [])]
    ids = [{"containerID": 0, "hostID": FIRST_ID, "size": IDS}] if mapped else []
    limited = ["nosuid", "noexec", "nodev"]
    mounts = [
        _mount("/proc", "proc", *limited),
        _mount("/dev", "tmpfs", "nosuid", "noexec", "mode=755", "size=64k"),
        _mount("/dev/shm", "bind", *limited, "bind", source="/tmp/layer/shm"),
        *([_mount("/sys", "sysfs", *limited, "ro")] if sysfs else []),
        _mount("/tmp", "bind", "nosuid", "nodev", "bind", source="/tmp/layer/tmp"),
        _mount("/etc/hosts", "bind", *limited, "bind", "ro", source="/tmp/hosts"),
        *([_mount("/dev/bytecode", "bind", *limited, "bind", source="/tmp/bytecode")] if bytecode else []),
    ]
    return {
        "ociVersion": "1.0.2",
        "hostname": "smoke",
        "root": {"path": "/tmp/root"},
        # Never started. A runtime looks it up, and no image has a program for sure.
        "process": process(["/proc/self/exe"], {}),
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": name} for name in namespaces],
            **({"uidMappings": ids, "gidMappings": ids} if mapped else {}),
            "maskedPaths": list(_HIDDEN),
            "readonlyPaths": list(_READ_ONLY),
            "seccomp": _seccomp(),
        },
    }


def process(
    argv: Sequence[str], env: Mapping[str, str], *, user: int = 0, group: int = 0, directory: str = "/"
) -> dict[str, Any]:
    """A process in the container, as of the same specification."""
    capabilities = [f"CAP_{name}" for name in CAPABILITIES]
    return {
        "args": list(argv),
        "env": [f"{name}={value}" for name, value in env.items()],
        "user": {"uid": user, "gid": group},
        "cwd": directory,
        "noNewPrivileges": True,
        # A process of another user than root gets the bounding set only.
        "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
        "rlimits": [
            {"type": "RLIMIT_CORE", "hard": 0, "soft": 0},
            {"type": "RLIMIT_FSIZE", "hard": MEMORY_FILES, "soft": MEMORY_FILES},
            {"type": "RLIMIT_NPROC", "hard": _TASKS, "soft": _TASKS},
        ],
        # When memory ends, the kernel ends this process first.
        "oomScoreAdj": 1000,
    }


def _mount(destination: str, kind: str, *options: str, source: str = "none") -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": source, "options": list(options)}


def _seccomp() -> dict[str, Any]:
    def refuse(names: Sequence[str], error: int = 1, *arguments: Mapping[str, object]) -> dict[str, Any]:
        return {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": error, "args": list(arguments)}

    new_user = {"index": 0, "value": _NEW_USER, "valueTwo": _NEW_USER, "op": "SCMP_CMP_MASKED_EQ"}
    families = [{"index": 0, "value": family, "op": "SCMP_CMP_EQ"} for family in _FAMILIES]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            refuse(_REFUSED),
            refuse(["clone"], 1, new_user),
            # Its flags are in memory, where a filter cannot look; C libraries fall back to clone.
            refuse(["clone3"], _ENOSYS),
            *(refuse(["socket"], 1, family) for family in families),
        ],
    }
