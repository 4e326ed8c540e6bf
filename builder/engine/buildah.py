"""The buildah engine: no daemon, no network, and private storage that is removed after the build."""

from __future__ import annotations

import functools
import os
import re
import shutil
from pathlib import Path

from builder.engine.docker import failed
from builder.engine.interface import BuildRequest, EngineInfo, Log, host_architecture
from builder.engine.process import capture, run
from builder.versions import at_least, semantic

_OLDEST = "1.28"
_INSTALL = f"apt-get install buildah ({_OLDEST} or newer)"
_HOST = "buildkitsandbox"
_HOSTS = f"127.0.0.1\tlocalhost {_HOST}\n::1\tlocalhost ip6-localhost ip6-loopback\n"
"""Name of the machine and /etc/hosts that steps see: those of BuildKit. buildah alone makes a random name for each
container, and copies /etc/hosts and /etc/resolv.conf of this machine."""

_ALONE = """\
set -e
host=$1 work=$2 context=$3 root=$2/root
shift 3
read_only() {
  findmnt --submounts --list --noheadings --output VFS-OPTIONS,TARGET "$1" | while read -r options place; do
    mount -o "remount,bind,$options,ro" "$place" 2> /dev/null || true
  done
}
hostname "$host"
mkdir -p "$root"
mount -t tmpfs -o mode=755 tmpfs "$root"
for path in /bin /sbin /lib* /usr /etc /opt /nix /gnu /sys /proc; do
  if [ -L "$path" ]; then
    cp -P "$path" "$root$path"
  elif [ -d "$path" ]; then
    mkdir "$root$path"
    mount --rbind "$path" "$root$path"
    [ "$path" = /proc ] || read_only "$root$path"
  fi
done
mkdir -p "$root/dev/shm" "$root/dev/pts" "$root/tmp" "$root/run" "$root/var/tmp" "$root/old" "$root$work"
for name in null zero full random urandom tty; do
  touch "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
for name in fd fd/0:stdin fd/1:stdout fd/2:stderr; do
  ln -s "/proc/self/${name%:*}" "$root/dev/${name#*:}"
done
chmod 1777 "$root/dev/shm" "$root/tmp" "$root/var/tmp"
mount --bind "$work" "$root$work"
mkdir -p "$root$context"
mount --bind "$context" "$root$context"
read_only "$root$context"
cd "$root"
pivot_root . old
cd "$work"
umount -l /old
exec "$@"
"""
"""Makes the build's folder and the programs of this machine all that there is, and then runs buildah. A step as root
leaves a chroot at will, and buildah 1.28 mounts what a link of another stage leads to (CVE-2024-1753): it finds no
home, no socket and no store then, and cannot change the inputs, which are links to files of the store."""

_TOOLCHAIN = re.compile(
    r"(FROM (?:--platform=\S+ )?scratch AS )toolchain\nARG BUILDARCH\n((?:(?!FROM ).*\n)*)FROM toolchain AS (.+\n)"
)


class BuildahEngine:
    """`buildah build` with chroot isolation, inside namespaces of its own, without this machine's homes and sockets.

    Chroot isolation refuses `--network none`, so buildah itself runs in an empty network namespace, except while it
    pulls a base. In private namespaces every mount and process disappears with buildah, even when buildah is killed.
    """

    name = "buildah"
    workers = 1

    def probe(self) -> EngineInfo:
        """Whether buildah is installed, new enough, and may create the namespaces that it needs."""
        status, text = capture(["buildah", "--version"])
        if status == 127:
            return EngineInfo(self.name, problem="the command buildah is not installed", fix=_INSTALL)
        found = semantic(text)
        if status != 0 or found is None:
            return EngineInfo(self.name, problem="buildah does not start", fix=_INSTALL)
        version = str(found)
        if not at_least(version, _OLDEST):
            return EngineInfo(self.name, version, f"buildah {version} is too old", _INSTALL)
        status, text = capture([*_namespaces(network=False), "true"])
        if status != 0:
            fix = "apt-get install util-linux uidmap, or run as root" if os.geteuid() else "run with CAP_SYS_ADMIN"
            reason = text.splitlines()[-1] if text else f"exit status {status}"
            return EngineInfo(self.name, version, f"namespaces cannot be created here: {reason}", fix)
        return EngineInfo(self.name, version)

    def build(self, request: BuildRequest, tar: Path, log: Log) -> None:
        """Run the build with private storage below the request's work folder."""
        program = ["buildah", "--root", str(request.work / "storage"), "--runroot", str(request.work / "run")]
        program += ["--storage-driver", "overlay" if _overlay(request.work) else "vfs"]
        buildah = [*_namespaces(network=False), *program]
        env = {"TMPDIR": str(request.work), "BUILDAH_ISOLATION": "chroot"}
        if os.geteuid() != 0:
            # `unshare` has created the user namespace; buildah must not create another one.
            env |= {"_CONTAINERS_USERNS_CONFIGURED": "done", "_CONTAINERS_ROOTLESS_UID": str(os.geteuid())}
        # buildah requires a file of logins; only a pull needs that of the user.
        logins = request.work / "logins.json"
        logins.write_text("{}")
        offline = {**env, "REGISTRY_AUTH_FILE": str(logins)}
        commands = []
        if request.pull is not None:
            pull = ["pull", "--quiet", "--platform", request.platform, request.pull]
            commands.append(([*_namespaces(network=True), *program, *pull], env if _may_log_in() else offline))
        if request.base is not None:
            # FROM finds the base by tag and digest in this storage, where the id of an image is its config's digest.
            name = request.base.reference.partition("@")[0]
            commands += [
                ([*buildah, "pull", "--quiet", f"dir:{request.base.layout / 'blobs' / 'sha256'}"], offline),
                ([*buildah, "tag", request.base.config.hex, name], offline),
            ]
        hosts = request.work / "hosts"
        hosts.write_text(_HOSTS)
        alone = ["sh", "-c", _ALONE, "sh", _HOST, str(request.work), str(request.context)]
        argv = [*_namespaces(network=False), *alone, *program]
        argv += ["build", "--isolation", "chroot", "--layers=false", "--format", "oci"]
        argv += ["--uts", "host", "--no-hosts", "--dns", "none", "--volume", f"{hosts}:/etc/hosts:ro"]
        # The URLs of this machine's proxies may hold passwords, which steps must not see.
        argv += ["--platform", request.platform, "--pull-never", "--http-proxy=false"]
        architecture = host_architecture()
        recipe = request.work / "buildah.Dockerfile"
        recipe.write_text(_joined(request.dockerfile.read_text("utf-8"), architecture), "utf-8")
        argv += ["--file", str(recipe), "--target", request.target]
        arguments = {
            **request.build_arguments,
            # buildah 1.28 does not define these for `FROM --platform`.
            "BUILDPLATFORM": f"linux/{architecture}",
            "BUILDARCH": architecture,
        }
        for name, value in arguments.items():
            argv += ["--build-arg", f"{name}={value}"]
        argv += ["--output", f"type=tar,dest={tar}", str(request.context)]
        inside = {**offline, "HOME": str(request.work), "XDG_RUNTIME_DIR": str(request.work / "run")}
        for command, environ in (*commands, (argv, inside)):
            outcome = run(command, log=log, env=environ, cancel=request.cancel)
            if outcome.status != 0:
                raise failed(self.name, request, outcome.tail)


def _joined(dockerfile: str, architecture: str) -> str:
    """The Dockerfile with the toolchain's stage and the only one that starts from it as one stage.

    buildah makes an image of a stage that others start from: it packs the toolchain and copies the archive.
    """
    found = _TOOLCHAIN.match(dockerfile)
    if found is None or re.search(r"(?i)from[= ]+toolchain\b", dockerfile[found.end() :]):
        return dockerfile
    begin, body, name = found.groups()
    # An ARG would reach the variables of this stage's steps.
    return f"{begin}{name}{body.replace('${BUILDARCH}', architecture)}{dockerfile[found.end() :]}"


def _may_log_in() -> bool:
    """Whether buildah's file of logins exists, where the environment names one."""
    folder = os.environ.get("DOCKER_CONFIG")
    return not folder or "REGISTRY_AUTH_FILE" in os.environ or (Path(folder) / "config.json").is_file()


def _namespaces(*, network: bool) -> list[str]:
    return [*_own_processes(), *_rights(network=network)]


@functools.cache
def _own_processes() -> tuple[str, ...]:
    """`unshare` with processes of its own, so that what a step leaves in the background ends with the build.

    Without them where /proc cannot be mounted, as for a user who is not root inside a container.
    """
    plain = ("unshare", "--mount", "--fork", "--kill-child")
    own = (*plain, "--pid", "--mount-proc")
    return own if capture([*own, *_rights(network=False), "true"])[0] == 0 else plain


def _rights(*, network: bool) -> list[str]:
    words = [] if network else ["--net", "--uts"]
    if os.geteuid() != 0:
        words += ["--map-root-user", "--map-auto", "--user"]
    return words


def _overlay(folder: Path) -> bool:
    """Whether overlayfs can be mounted on this folder's file system from a namespace like the build's."""
    probe = folder / "overlay-probe"
    for name in ("lower", "upper", "work", "merged"):
        (probe / name).mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={probe}/lower,upperdir={probe}/upper,workdir={probe}/work"
    status, _ = capture(
        [*_namespaces(network=False), "mount", "-t", "overlay", "overlay", "-o", options, f"{probe}/merged"]
    )
    shutil.rmtree(probe, ignore_errors=True)
    return status == 0
