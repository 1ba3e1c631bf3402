"""Containers from an OCI archive, run by runc with the least privileges, for checks of the image.

The archive is unpacked here, so that the check sees the files as a registry would deliver them. A container shares the
network namespace of the caller, who makes one of their own before.
"""
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

USER = 10001
NAMESPACES = ("pid", "ipc", "uts", "mount")


class Unavailable(Exception):
    """Containers cannot run on this system; the text is the reason."""


class Image:
    """An unpacked image: its files, its configuration and its sizes."""

    def __init__(self, archive, folder):
        with tarfile.open(archive) as tar:
            self.blobs = {os.path.basename(member.name): tar.extractfile(member).read() for member in tar if member.isfile()}
        manifest = self.blob(json.loads(self.blobs["index.json"])["manifests"][0])
        self.config = json.loads(self.blob(json.loads(manifest)["config"]))["config"]
        self.bytes_pulled = len(manifest) + json.loads(manifest)["config"]["size"]
        self.root = os.path.join(folder, "root")
        os.mkdir(self.root)
        for layer in json.loads(manifest)["layers"]:
            self.bytes_pulled += layer["size"]
            path = os.path.join(folder, "layer")
            with open(path, "wb") as file:
                file.write(self.blob(layer))
            with tarfile.open(path) as tar:
                tar.extractall(self.root, numeric_owner=True)
            os.remove(path)

    def blob(self, descriptor):
        """Returns the content that a descriptor names, after a look at its digest."""
        kind, digest = descriptor["digest"].split(":")
        content = self.blobs[digest]
        assert hashlib.new(kind, content).hexdigest() == digest, f"the digest of {digest} is wrong"
        return content

    def bytes_unpacked(self):
        """Returns the sum of the sizes of all files."""
        found = (path.lstat() for path in Path(self.root).rglob("*"))
        return sum(facts.st_size for facts in found if not stat.S_ISDIR(facts.st_mode))


def mount(destination, source, kind, options):
    """Returns a mount of a container."""
    return {"destination": destination, "source": source, "type": kind, "options": options.split(",")}


def runtime_configuration(image, arguments, mounts):
    """Returns what runc reads: the user and command of the image, a read-only root and one capability."""
    user, group = (int(part) for part in image.config["User"].split(":"))
    capability = ["CAP_NET_BIND_SERVICE"]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": group}, "cwd": "/", "args": arguments, "env": image.config["Env"],
            "noNewPrivileges": True,
            "capabilities": {kind: capability for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 4096, "soft": 4096}],
        },
        "root": {"path": image.root, "readonly": True},
        "hostname": "selvedge",
        "mounts": [
            mount("/proc", "proc", "proc", "nosuid,noexec,nodev"),
            mount("/dev", "tmpfs", "tmpfs", "nosuid,strictatime,mode=755,size=65536k"),
            mount("/run/selvedge", "tmpfs", "tmpfs", f"nosuid,nodev,noexec,mode=700,uid={user},gid={group}"),
            *(mount(inside, outside, "bind", f"bind,{options}") for inside, (outside, options) in mounts.items()),
        ],
        "linux": {"namespaces": [{"type": kind} for kind in NAMESPACES],
                  "maskedPaths": ["/proc/kcore", "/proc/keys"], "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger"]},
    }


class Container:
    """A running container. Its folder has the state of runc."""

    def __init__(self, image, folder, mounts, arguments=None):
        if not shutil.which("runc"):
            raise Unavailable("runc is not installed")
        self.folder, self.name = folder, f"selvedge-{os.getpid()}-{os.path.basename(folder)}"
        arguments = image.config["Entrypoint"] + (arguments or image.config["Cmd"])
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(runtime_configuration(image, arguments, mounts), file)
        self.log = open(os.path.join(folder, "log"), "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            self.runc("run", "--bundle", folder, self.name), stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def runc(self, *arguments):
        """Returns a command of runc."""
        return ["runc", "--root", os.path.join(self.folder, "state"), *arguments]

    def run(self, *arguments):
        """Runs a command within the container. Returns its exit code and what it printed."""
        ran = subprocess.run(self.runc("exec", self.name, *arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return ran.returncode, ran.stdout

    def process_id(self):
        """Returns the process ID of the first process, as the host sees it."""
        state = subprocess.run(self.runc("state", self.name), capture_output=True, text=True, timeout=60, check=True)
        return json.loads(state.stdout)["pid"]

    def printed(self):
        """Returns what the container and runc have printed."""
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self, seconds):
        """Sends TERM, and returns the exit code. Raises `subprocess.TimeoutExpired` if it does not end in time."""
        subprocess.run(self.runc("kill", self.name, "TERM"), timeout=60, check=True)
        return self.process.wait(seconds)

    def end(self):
        """Removes the container."""
        subprocess.run(self.runc("delete", "--force", self.name), capture_output=True, timeout=60, check=False)
        if self.process.poll() is None:
            self.process.wait(20)
        self.log.close()
