#!/usr/bin/env python3
"""Runs the OCI image by runc: user 10001, a read-only root, and no capability but that to bind ports below 1024.

    image.py target/package/selvedge-image.tar

The check asserts that the image is at most 15 MiB as a registry delivers it, that it serves its welcome page, that a
reload serves a site by TLS with a certificate of the server's own authority, that the static program looks up names in
/etc/hosts and by DNS, and that the container stops within 10 s of TERM while a connection is open.

All traffic is in a network namespace of its own. Where runc cannot start a container, the check is skipped with the
reason. Exit status 1 if a check fails.
"""
import http.client
import http.server
import os
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

from container import USER, Container, Image, Unavailable

BYTES_MAX = 15 << 20
# What container platforms wait by default before they kill.
STOP_SECONDS_MAX = 10
NAMES = {"by-hosts": "127.0.0.2", "by-dns.example": "127.0.0.3"}
BASE = """control "/run/selvedge/control"
certificate-folder "/var/lib/selvedge/certificates"
log { access "stdout"; error "stderr"; }
listen "[::]:80"
"""
SITE = BASE + """listen "[::]:443"
site "localhost" { root "/usr/share/selvedge/welcome"; }
"""
PROXY = BASE + "site \"*\" {\n" + "".join(
    f'    route "/{name}" {{ proxy "http://{name}:9000"; }}\n' for name in NAMES) + "}\n"


def expect(holds, text):
    """Ends the check if something does not hold."""
    if not holds:
        raise AssertionError(text)


def wait_for_port(container, port):
    """Waits until the container accepts connections."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if container.process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"no connection to port {port} is accepted: {container.printed()}")


def get(path="/", context=None):
    """Returns the status and the content of a response."""
    connection = http.client.HTTPSConnection("localhost", timeout=20, context=context) if context else \
        http.client.HTTPConnection("127.0.0.1", timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, content


class Upstream(http.server.BaseHTTPRequestHandler):
    """Responds with the address at which it was reached."""

    def do_GET(self):  # pylint: disable=invalid-name
        content = self.connection.getsockname()[0].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        """Prints nothing."""


def serve_names(server):
    """A name server: A records of `NAMES`, and no others."""
    while True:
        query, client = server.recvfrom(4096)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode().lower())
            at += query[at] + 1
        question = query[12:at + 5]
        address = NAMES.get(".".join(labels)) if question[-4:-2] == b"\0\1" else None
        record = struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(address) if address else b""
        head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1 if address else 0, 0, 0)
        server.sendto(head + question + record, client)


def start_servers():
    """Starts the upstream server and the name server."""
    upstream = http.server.ThreadingHTTPServer(("0.0.0.0", 9000), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    names = socket.socket(type=socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    threading.Thread(target=serve_names, args=(names,), daemon=True).start()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def check_privileges(container):
    """Looks at the processes of the container: their user, capabilities and file system."""
    supervisor = container.process_id()
    with open(f"/proc/{supervisor}/task/{supervisor}/children", encoding="ascii") as listed:
        processes = [supervisor, *(int(child) for child in listed.read().split())]
    expect(len(processes) > 1, "the supervisor has no serving process")
    for process in processes:
        with open(f"/proc/{process}/status", encoding="ascii") as file:
            facts = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        expect(facts["Uid"] == "\t".join([str(USER)] * 4), f"the user is {facts['Uid']}")
        expect(int(facts["CapBnd"], 16) == 1 << 10, f"the capabilities are {facts['CapBnd']}")
    with open(f"/proc/{supervisor}/mounts", encoding="ascii") as mounts:
        root = next(line for line in mounts if line.split()[1] == "/")
    expect("ro" in root.split()[3].split(","), f"the root can be written: {root}")
    print(f"privileges: user {USER}, CAP_NET_BIND_SERVICE alone, read-only root")


def check_reload(container, configuration, state):
    """Writes a site with TLS and reloads, then proxies to names, and reloads again."""
    def reload(text):
        write(configuration, text)
        for command in ("check", "reload"):
            code, printed = container.run("/usr/bin/selvedge", command)
            expect(code == 0, f"selvedge {command} exited with {code}: {printed}")

    reload(SITE)
    wait_for_port(container, 443)
    authority = os.path.join(state, "certificates", "local-authority.pem")
    status, content = get(context=ssl.create_default_context(cafile=authority))
    expect(status == 200 and b"Selvedge is installed" in content, f"https: {status} {content}")
    print("reload: a site by TLS, with a certificate of the server's own authority")
    reload(PROXY)
    for name, address in NAMES.items():
        found = get(f"/{name}")
        expect(found == (200, address.encode()), f"the name {name}: {found}\n{container.printed()}")
    print("names: from /etc/hosts and by DNS, in the static program")


def check_stop(container):
    """Stops the container while a client has a connection without a request."""
    with socket.create_connection(("127.0.0.1", 80)):
        began = time.monotonic()
        code = container.stop(STOP_SECONDS_MAX)
    expect(code == 0, f"the exit code is {code}: {container.printed()}")
    print(f"TERM: ended with code 0 after {time.monotonic() - began:.1f} s")


def check_image(archive, folder):
    """Runs all checks in the network namespace of this process."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    image = Image(archive, folder)
    mebibytes = [size / (1 << 20) for size in (image.bytes_pulled, image.bytes_unpacked())]
    expect(image.bytes_pulled <= BYTES_MAX, f"the image has {image.bytes_pulled} bytes")
    print(f"size: {mebibytes[0]:.1f} MiB as a registry delivers it, {mebibytes[1]:.1f} MiB unpacked")
    start_servers()
    paths = {name: os.path.join(folder, name) for name in ("bundle", "etc", "state", "hosts", "resolv.conf", "nsswitch.conf")}
    for name in ("bundle", "etc", "state"):
        os.mkdir(paths[name])
    os.chown(paths["state"], USER, USER)
    shutil.copy(os.path.join(image.root, "etc/selvedge/selvedge.kdl"), paths["etc"])
    write(paths["hosts"], "127.0.0.1 localhost\n127.0.0.2 by-hosts\n")
    write(paths["resolv.conf"], "nameserver 127.0.0.1\n")
    # The static program has to use its own name services, because a library of the system could crash it.
    write(paths["nsswitch.conf"], "hosts: absent\n")
    container = Container(image, paths["bundle"], {
        "/etc/selvedge": (paths["etc"], "ro"), "/var/lib/selvedge": (paths["state"], "rw"),
        **{f"/etc/{name}": (paths[name], "ro") for name in ("hosts", "resolv.conf", "nsswitch.conf")}})
    try:
        until = time.monotonic() + 10
        while container.process.poll() is None and not container.printed() and time.monotonic() < until:
            time.sleep(0.05)
        if container.process.poll() is not None and "serving" not in container.printed():
            raise Unavailable(f"runc ended: {container.printed().strip()}")
        wait_for_port(container, 80)
        status, content = get()
        expect(status == 200 and b"Selvedge is installed" in content, f"{status} {content}")
        check_privileges(container)
        check_reload(container, os.path.join(paths["etc"], "selvedge.kdl"), paths["state"])
        check_stop(container)
    finally:
        container.end()


def main():
    archive = os.path.abspath(sys.argv[1])
    if "--within" not in sys.argv:
        if os.geteuid() != 0:
            print("the image in a container: skipped, because only root can make its namespaces")
            return
        again = [sys.executable, os.path.abspath(__file__), archive, "--within"]
        sys.exit(subprocess.run(["unshare", "--net", "--mount", *again], check=False).returncode)
    with tempfile.TemporaryDirectory(prefix="selvedge-image-") as folder:
        # The user of the container has to pass through.
        os.chmod(folder, 0o755)
        try:
            check_image(archive, folder)
        except Unavailable as reason:
            print(f"the image in a container: skipped, because {reason}")
        except (AssertionError, subprocess.TimeoutExpired) as failure:
            sys.exit(f"FAILED: {failure}")


if __name__ == "__main__":
    main()
