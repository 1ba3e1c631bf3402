#!/usr/bin/env python3
"""Makes an application by the library's first page alone, and uses it as a new user does.

    python3 checks/library.py

Runs the commands of `engine/README.md` beside a link to this checkout, compiles its program, and sends its requests:
each command has to print what the comment after it shows. Then opens a WebSocket, and stops the application by TERM
while the WebSocket is open. Only the port differs from the page.

Then compiles programs with usual mistakes. The error of the compiler has to name the cause. Builds offline, with the
versions of this workspace's lock file.
"""

import base64
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "engine/README.md"
TARGET = ROOT / "target/library"
ADDRESS = "127.0.0.1:3000"
WAIT = 60
CLOSE, TEXT = 8, 1
HEAD = """
use axum::{Router, extract::{ConnectInfo, State}, routing::get};
fn main() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
"""
# Name, program, and texts of the error; no text for a program without a mistake, so that the others fail for their own.
PROGRAMS = [
    (
        "right",
        HEAD + 'let app: Router = Router::new().route("/", get(async || "a"));\n'
        "selvedge::serve(listener, app).start().unwrap(); }",
        [],
    ),
    (
        "state",
        HEAD + 'let app: Router<String> = Router::new().route("/", get(async |State(a): State<String>| a));\n'
        "selvedge::serve(listener, app).start().unwrap(); }",
        ["is no application that can be served", "call `.with_state(...)`"],
    ),
    (
        "text",
        HEAD + "async fn app(_: axum::extract::Request<selvedge::Body>) -> String { String::new() }\n"
        "selvedge::serve(listener, app).start().unwrap(); }",
        ["is no application that can be served", "not a `String`"],
    ),
    (
        "info",
        HEAD + "#[derive(Clone)] struct Info;\n"
        'let app = Router::new().route("/", get(async |ConnectInfo(_): ConnectInfo<Info>| "a"));\n'
        "selvedge::serve(listener, app.into_make_service_with_connect_info::<Info>()).start().unwrap(); }",
        ["Connected<", "selvedge::tower::WithConnection"],
    ),
    (
        "address",
        HEAD + 'drop(listener);\nlet app: Router = Router::new().route("/", get(async || "a"));\n'
        'selvedge::serve("127.0.0.1:3000", app).start().unwrap(); }',
        ["is no listening socket", "bind an address first"],
    ),
    (
        "streams",
        HEAD + 'let app: Router = Router::new().route("/", get(async || "a"));\n'
        "selvedge::serve_streams(listener, app).start().unwrap(); }",
        ["is no listener with streams of its own", "belongs to `selvedge::serve(listener, app)`"],
    ),
]


def environment():
    """Returns the environment of cargo and of the page's commands."""
    own = {"CARGO_TARGET_DIR": str(TARGET), "CARGO_NET_OFFLINE": "true", "CARGO_TERM_COLOR": "never"}
    return os.environ | own


def blocks(language):
    """Returns the page's blocks in a language."""
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```", PAGE.read_text(), re.S | re.M)


def shell(text, folder):
    done = subprocess.run(
        ["bash", "-euc", text], cwd=folder, env=environment(), capture_output=True, text=True, timeout=WAIT * 10)
    return done.returncode, done.stdout, done.stderr


def make(folder):
    """Runs the page's commands, and adds its program. Returns the application's folder."""
    (folder / "selvedge").symlink_to(ROOT)
    commands = blocks("sh")[0]
    create, _, rest = commands.partition("\n")
    assert create == "cargo new hello && cd hello", create
    application = folder / "hello"
    for text, where in [("cargo new hello", folder), (rest, application)]:
        code, _, errors = shell(text, where)
        assert code == 0, f"{text}\n{errors}"
        # With the versions that the other checks have compiled and read.
        shutil.copy(ROOT / "Cargo.lock", application / "Cargo.lock")
    return application


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def build(application, name):
    command = ["cargo", "build", "--quiet", "--bin", name]
    return subprocess.run(
        command, cwd=application, env=environment(), capture_output=True, text=True, timeout=WAIT * 20)


class Application:
    """The running application. Its output goes to a file."""

    def __init__(self, application, address):
        self.output = application / "output"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen([TARGET / "debug/hello"], cwd=application, stdout=output, stderr=output)
        self.wait_for(f"listening on http://{address}")

    def text(self):
        # Without the colours of the subscriber.
        return re.sub(r"\x1b\[[0-9;]*m", "", self.output.read_text())

    def wait_for(self, text):
        for _ in range(WAIT * 20):
            if text in self.text():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"the application has not printed {text!r}:\n{self.text()}")


def frame(opcode, payload):
    mask = b"\1\2\3\4"
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return struct.pack(">BB", 0x80 | opcode, 0x80 | len(payload)) + mask + masked


class WebSocket:
    """A WebSocket whose frames have less than 126 bytes."""

    def __init__(self, port):
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
        key = base64.b64encode(b"0123456789abcdef").decode()
        fields = f"Host: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}"
        self.stream.sendall(f"GET /echo HTTP/1.1\r\n{fields}\r\n\r\n".encode())
        self.received = b""
        while b"\r\n\r\n" not in self.received:
            self.read()
        head, _, self.received = self.received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def read(self):
        received = self.stream.recv(4096)
        assert received, "the connection has ended"
        self.received += received

    def send(self, opcode, payload):
        self.stream.sendall(frame(opcode, payload))

    def receive(self):
        while len(self.received) < 2 or len(self.received) < 2 + self.received[1]:
            self.read()
        opcode, end = self.received[0] & 0xF, 2 + self.received[1]
        payload, self.received = self.received[2:end], self.received[end:]
        return opcode, payload


def use(application, address):
    """Sends the page's requests. Returns the number of requests."""
    port = int(address.partition(":")[2])
    running = Application(application, address)
    requests = [line for line in blocks("sh")[1].splitlines() if line]
    try:
        for line in requests:
            command, _, expected = line.rpartition("  # ")
            assert command and expected, line
            _, printed, errors = shell(command.replace(ADDRESS, address), application)
            assert expected in printed, f"{command}\n{printed}{errors}"
        # Requests that reach the application are events of TraceLayer, and refusals those of the observer.
        for text in ["finished processing request", "request refused", "status=400", "status=413"]:
            running.wait_for(text)
        socket_ = WebSocket(port)
        socket_.send(TEXT, b"hello")
        assert socket_.receive() == (TEXT, b"hello")
        running.process.send_signal(signal.SIGTERM)
        assert socket_.receive()[0] == CLOSE, "the WebSocket closes when the application stops"
        assert running.process.wait(WAIT) == 0, running.text()
    finally:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
    return len(requests) + 1


def mistakes(application):
    """Compiles the programs with mistakes. Returns the number of failures."""
    (application / "src/bin").mkdir()
    failures = 0
    for name, program, _ in PROGRAMS:
        (application / f"src/bin/{name}.rs").write_text(program)
    for name, _, texts in PROGRAMS:
        result = build(application, name)
        # The compiler breaks long notes into lines.
        errors = " ".join(result.stderr.split())
        missing = [text for text in texts if text not in errors]
        if (result.returncode == 0) != (not texts) or missing:
            failures += 1
            print(f"{name}: exit code {result.returncode}, missing {missing}\n{result.stderr}")
    return failures


def main():
    with tempfile.TemporaryDirectory() as folder:
        application = make(Path(folder))
        address = f"127.0.0.1:{free_port()}"
        program = next(block for block in blocks("rust") if "fn main" in block)
        assert ADDRESS in program, "the program listens at the page's address"
        (application / "src/main.rs").write_text(program.replace(ADDRESS, address))
        result = build(application, "hello")
        assert result.returncode == 0, result.stderr
        print(f"first page: {use(application, address)} requests as shown, stopped by TERM with an open WebSocket")
        failures = mistakes(application)
        print(f"errors of the compiler: {len(PROGRAMS)} programs, {failures} failures")
        sys.exit(failures > 0)


main()
