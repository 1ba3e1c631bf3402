#!/usr/bin/env python3
"""Checks what the compiler reports to the author of an application that does not fit.

    python3 checks/library_errors.py

Each program below has a usual mistake. The error has to name its cause. One program
has no mistake, so that the others fail for their own reason. Needs the crates of this workspace's lock file.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = f"""
[package]
name = "wrong-applications"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
selvedge = {{ path = "{ROOT}/engine" }}
axum = "0.8"
http = "1"
"""
HEAD = """
use axum::{Router, extract::{ConnectInfo, State}, routing::get};
fn main() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
"""
# Name, program, and texts of the error; no text for a program without a mistake.
PROGRAMS = [
    ("right", HEAD + 'let app: Router = Router::new().route("/", get(async || "a"));\nselvedge::serve(listener, app).start().unwrap(); }', []),
    (
        "state",
        HEAD + 'let app: Router<String> = Router::new().route("/", get(async |State(a): State<String>| a));\n'
        "selvedge::serve(listener, app).start().unwrap(); }",
        ["is no application that can be served", "call `.with_state(...)`"],
    ),
    (
        "text",
        HEAD + "async fn app(_: http::Request<selvedge::Body>) -> String { String::new() }\n"
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
]


def check(folder, name):
    environment = os.environ | {"CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))}
    command = ["cargo", "check", "--offline", "--quiet", "--bin", name]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "src/bin").mkdir(parents=True)
        (folder / "Cargo.toml").write_text(MANIFEST)
        shutil.copy(ROOT / "Cargo.lock", folder / "Cargo.lock")
        for name, program, _ in PROGRAMS:
            (folder / f"src/bin/{name}.rs").write_text(program)
        for name, _, texts in PROGRAMS:
            result = check(folder, name)
            missing = [text for text in texts if text not in result.stderr]
            if (result.returncode == 0) != (not texts) or missing:
                failures += 1
                print(f"{name}: exit code {result.returncode}, missing {missing}\n{result.stderr}")
    print(f"library errors: {len(PROGRAMS)} programs, {failures} failures")
    sys.exit(failures > 0)


main()
