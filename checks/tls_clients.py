#!/usr/bin/env python3
"""Connects TLS clients to `selvedge run`: Chromium, the clients of Java and Go, and sslyze.

    python3 checks/tls_clients.py target/release/selvedge FOLDER-OF-PEBBLE [CHECK ...]

Chromium, certutil, java, go and openssl must be installed; sslyze is installed from its registry into target/.
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from acme import SELVEDGE, Authority, Load, Scenario, free_port, wait_until
from clients import HERE, STEP_TIMEOUT, TARGET, browser, python, run

# How soon after its start a server with a public name is secure.
SECURE_WITHIN = 10
# How soon a replaced file is used.
USED_WITHIN = 3
VERSIONS = ["TLSv1.2", "TLSv1.3"]
# Mozilla's recommendation for servers of any client of the last years.
MOZILLA = "intermediate"

# Loads a page until it is secure, and prints the last state.
SECURITY = """
import asyncio, json, sys, time
import websockets

async def main():
    address, page, seconds = sys.argv[1:]
    end, state = time.monotonic() + float(seconds), None
    async with websockets.connect(address, max_size=None) as browser:
        for number, method in enumerate(["Security.enable", "Page.enable"]):
            await browser.send(json.dumps({"id": number, "method": method}))
        while time.monotonic() < end:
            await browser.send(json.dumps({"id": 9, "method": "Page.navigate", "params": {"url": page}}))
            until = min(end, time.monotonic() + 1)
            while time.monotonic() < until:
                try:
                    message = json.loads(await asyncio.wait_for(browser.recv(), until - time.monotonic()))
                except asyncio.TimeoutError:
                    break
                if message.get("method") == "Security.visibleSecurityStateChanged":
                    state = message["params"]["visibleSecurityState"]
                    if state["securityState"] == "secure":
                        return print(json.dumps(state))
    print(json.dumps(state))

asyncio.run(main())
"""


def a_browser_shows_a_padlock():
    name = "a.example.com"
    with Scenario() as scenario, contextlib.ExitStack() as stack:
        home = scenario.folder / "home"
        database = home / ".pki/nssdb"
        database.mkdir(parents=True)
        root = scenario.folder / "pebble-root.pem"
        root.write_text(scenario.authority.root())
        run("certutil", "-d", f"sql:{database}", "-N", "--empty-password")
        run("certutil", "-d", f"sql:{database}", "-A", "-t", "C,,", "-n", "pebble", "-i", root)
        arguments = [f"--host-resolver-rules=MAP {name} 127.0.0.1"]
        page = stack.enter_context(browser(scenario.folder, arguments, {"HOME": str(home)}))
        program, began = python(), time.monotonic()
        server = scenario.server([name])
        url = f"https://{name}:{server.https}/"
        state = json.loads(run(program, "-c", SECURITY, page, url, str(SECURE_WITHIN)))
        seconds = time.monotonic() - began
        assert state and state["securityState"] == "secure", state
        assert seconds < SECURE_WITHIN, f"secure after {seconds:.1f} s"
        facts = state["certificateSecurityState"]
        print(f"Chromium: secure {seconds:.1f} s after the start, {facts['protocol']}, {facts['keyExchangeGroup']}")


class FileServer:
    """`selvedge run` with certificates from files: `localhost` for all clients, 127.0.0.1 for those with a certificate."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.sign("server", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.sign("client", "extendedKeyUsage=clientAuth")
        run("openssl", "pkcs12", "-export", "-in", folder / "client.pem", "-inkey", folder / "client.key",
            "-out", folder / "client.p12", "-passout", "pass:password")
        (folder / "root").mkdir()
        (folder / "root/index.html").write_text("secure\n")
        files = 'root "root"; certificate "server.pem" key="server.key";'
        (folder / "selvedge.kdl").write_text(
            f'listen "127.0.0.1:{self.port}" tls=#true\nlog {{ access "access.log" format="json"; error "error.log"; }}\n'
            f'site "localhost" {{ {files} }}\n'
            f'site "127.0.0.1" {{ {files} client-certificates "required" ca="ca.pem"; }}\n'
        )
        command = [SELVEDGE, "run", folder / "selvedge.kdl"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("the server listens", lambda: Authority.is_open(self.port))

    def sign(self, name, extension):
        new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 90".split()
        authority, key = self.folder / "ca.pem", self.folder / "ca.key"
        if not authority.exists():
            run(*new, "-subj", "/CN=ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", key, "-out", authority)
        run(*new, "-CA", authority, "-CAkey", key, "-addext", "basicConstraints=critical,CA:FALSE", "-addext", extension,
            "-subj", f"/CN={name}", "-keyout", self.folder / f"{name}.key", "-out", self.folder / f"{name}.pem")

    def logged(self, mark):
        """Returns what the access log has of the requests whose query is the mark."""
        lines = map(json.loads, (self.folder / "access.log").read_text().splitlines())
        return [line["request"]["tls"] for line in lines if line["request"]["uri"].endswith(mark)]

    def end(self):
        self.process.terminate()
        self.process.wait()


@contextlib.contextmanager
def file_server():
    folder = Path(tempfile.mkdtemp(prefix="selvedge-tls-"))
    try:
        server = FileServer(folder)
        try:
            yield server
        finally:
            server.end()
    finally:
        shutil.rmtree(folder)


def check_client(server, name, command, no_certificate, certificate):
    """Sends requests with a client, and compares what the server knows of its connections."""
    for version in VERSIONS:
        for host, own, subject in [("localhost", no_certificate, None), ("127.0.0.1", certificate, "CN=client")]:
            marks = [f"{name}-{version}-{host}-{number}" for number in range(3)]
            urls = [f"https://{host}:{server.port}/?{mark}" for mark in marks]
            run(*command, server.folder / "ca.pem", version, *own, *urls)
            # Each worker writes its lines on its own.
            seen = wait_until("the log has the requests", lambda: all(logged := [*map(server.logged, marks)]) and logged)
            seen = [tls for [tls] in seen]
            assert [tls["resumed"] for tls in seen] == [False, True, True], seen
            assert all(tls["version"] == version and tls.get("client_subject") == subject for tls in seen), seen
        mark = f"{name}-{version}-refused"
        refused = [*command, server.folder / "ca.pem", version, *no_certificate, f"https://127.0.0.1:{server.port}/?{mark}"]
        ended = subprocess.run(refused, capture_output=True, text=True, timeout=STEP_TIMEOUT)
        # With TLS 1.3, a client learns of it after its handshake. Java sometimes names the closed channel only.
        reasons = ["ertificate"] + ["ClosedChannelException"] * (version == "TLSv1.3")
        assert ended.returncode != 0 and any(reason in ended.stderr for reason in reasons), ended
        assert not server.logged(mark), "a client without a certificate sends no request"
        print(f"{name}, {version}: a handshake, two resumptions, with a client certificate, too; without one refused")


def java_connects():
    with file_server() as server:
        command = ["java", os.path.join(HERE, "checks/clients/TlsClient.java")]
        check_client(server, "java", command, ["none"], [server.folder / "client.p12"])


def go_connects():
    with file_server() as server:
        program = server.folder / "tls_client"
        run("go", "build", "-o", program, os.path.join(HERE, "checks/clients/tls_client.go"))
        own = [server.folder / "client.pem", server.folder / "client.key"]
        check_client(server, "go", [program], ["none", "none"], own)


def a_replaced_file_is_used_under_load():
    with file_server() as server:
        with Load(server.port, "localhost", (server.folder / "ca.pem").read_text()) as load:
            wait_until("clients connect", load.collect)
            for renewal in range(3):
                server.sign("renewed", "subjectAltName=DNS:localhost,IP:127.0.0.1")
                known, replaced = len(load.serials), time.time()
                for ending in ("key", "pem"):
                    os.replace(server.folder / f"renewed.{ending}", server.folder / f"server.{ending}")
                wait_until("the certificate is used", lambda: len(load.collect()) > known)
                seconds = max(load.serials.values()) - replaced
                assert seconds < USED_WITHIN, f"used after {seconds:.1f} s"
                print(f"a replaced certificate is used after {seconds:.1f} s")


def sslyze_finds_nothing():
    folder = Path(TARGET) / "sslyze"
    program = folder / "bin/sslyze"
    if not program.exists():
        run(sys.executable, "-m", "venv", folder)
        subprocess.run([folder / "bin/pip", "install", "--quiet", "sslyze"], check=True)
    with file_server() as server:
        command = [program, f"--mozilla_config={MOZILLA}", f"--certinfo_ca_file={server.folder}/ca.pem", f"localhost:{server.port}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=STEP_TIMEOUT * 3)
        result = ended.stdout[ended.stdout.find("COMPLIANCE AGAINST") :]
        print(result.strip())
        assert ended.returncode == 0, ended.stdout + ended.stderr


def main():
    checks = [a_browser_shows_a_padlock, java_connects, go_connects, a_replaced_file_is_used_under_load, sslyze_finds_nothing]
    wanted = sys.argv[3:]
    for check in (check for check in checks if not wanted or check.__name__ in wanted):
        began = time.monotonic()
        check()
        print(f"{check.__name__}: passed in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
