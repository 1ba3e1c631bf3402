#!/usr/bin/env python3
"""Runs axum's own tests with this library in place of axum::serve.

    python3 checks/axum_suite.py

Copies the workspace's version of axum from cargo's registry, patches its test client to start
Selvedge in place of axum's server (and one test to wait for it), and runs all of its tests except a few that cannot pass.
Prints for each driver how many tests passed and how many servers they started, and the skipped
tests with the reason. Fails if a test fails.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HELPER = "src/test_helpers/test_client.rs"
BEFORE = re.compile(r"    let std_listener = .*?\n    addr\n", re.S)
AFTER = """    use tower::ServiceExt as _;
    // Convert the body to axum's, as for any other server.
    let svc = svc.map_request(|request: http::Request<selvedge::Body>| request.map(crate::body::Body::new));
    let server = selvedge::Server::bind_with_workers("127.0.0.1:0", 1).expect("cannot bind a port");
    let server = server.plain_http2(selvedge::PlainHttp2::Always);
    let running = server.serve(svc).expect("cannot serve");
    let addr = running.addresses()[0];
    if let Some(file) = std::env::var_os("SERVERS_STARTED") {
        use std::io::Write as _;
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).expect("cannot open the counter file");
        writeln!(file, "{addr}").expect("cannot write to the counter file");
    }
    // The server runs until the tests end.
    std::mem::forget(running);
    addr
"""
# A test that waits for the settings of a server on its own thread, by ten yields. Selvedge is on another thread.
WEBSOCKET = "src/extract/ws.rs"
TEN_YIELDS = "for _ in 0..10 {"
UNTIL_SETTINGS = """let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !conn.is_extended_connect_protocol_enabled() && std::time::Instant::now() < end {"""
# Tests that cannot pass, and why.
SKIPPED = {
    "serve::": "tests axum's own server",
    "routing::tests::logging_rejections": "reads the log of its own thread, and a handler runs on a worker's",
    "routing::tests::head_with_middleware_applied":
        "expects no Transfer-Encoding in a response to HEAD; Selvedge sends the fields of GET (RFC 9110, 9.3.2)",
}


def axum_folder():
    """Returns the version of axum and the folder of its source."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--all-features"],
        cwd=HERE, capture_output=True, text=True, check=True)
    package = next(package for package in json.loads(metadata.stdout)["packages"] if package["name"] == "axum")
    return package["version"], os.path.dirname(package["manifest_path"])


def patch_test_client(folder):
    path = os.path.join(folder, HELPER)
    with open(path) as file:
        text = file.read()
    text, count = BEFORE.subn(lambda _: AFTER, text)
    if count != 1:
        sys.exit(f"cannot patch {HELPER} of axum, because it has changed: adapt this check")
    text = text.replace("use super::{serve, Request, Response};", "use super::{Request, Response};")
    with open(path, "w") as file:
        file.write(text)
    path = os.path.join(folder, WEBSOCKET)
    with open(path) as file:
        text = file.read()
    if text.count(TEN_YIELDS) != 1:
        sys.exit(f"cannot patch {WEBSOCKET} of axum, because it has changed: adapt this check")
    with open(path, "w") as file:
        file.write(text.replace(TEN_YIELDS, UNTIL_SETTINGS))
    path = os.path.join(folder, "Cargo.toml")
    with open(path) as file:
        manifest = file.read()
    # As in axum's own workspace: the feature with the attribute of its tests.
    manifest = manifest.replace("[dependencies.axum-macros]\n", '[dependencies.axum-macros]\nfeatures = ["__private"]\n')
    with open(path, "w") as file:
        file.write(manifest)
        engine = json.dumps(os.path.join(HERE, "engine"))
        file.write(f'\n[workspace]\n\n[dev-dependencies.selvedge]\npath = {engine}\nfeatures = ["hyper-upgrade"]\n')


def main():
    version, source = axum_folder()
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.join(temporary, "axum")
        shutil.copytree(source, folder)
        patch_test_client(folder)
        count = os.path.join(temporary, "servers")
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
        environment = dict(os.environ, SERVERS_STARTED=count, CARGO_TARGET_DIR=os.path.join(target, "axum-suite"))
        command = ["cargo", "test", "--all-features", "--lib", "--quiet", "--"]
        command += [word for name in SKIPPED for word in ("--skip", name)]
        # Do not fail for axum's own lints.
        environment["RUSTFLAGS"] = "--cap-lints allow"
        for driver in ["auto", "io_uring"]:
            environment["SELVEDGE_DRIVER"] = driver
            open(count, "w").close()
            run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            result = re.search(r"test result: .*", run.stdout)
            servers = len(open(count).readlines())
            if run.returncode != 0 or not result or servers == 0:
                sys.exit(f"{run.stdout[-8000:]}\n{run.stderr[-4000:]}\naxum {version}, {driver}: failed")
            print(f"axum {version} on Selvedge, {driver}: {result.group(0)} ({servers} servers started)")
        for name, reason in SKIPPED.items():
            print(f"  skipped: {name}, which {reason}")


if __name__ == "__main__":
    main()
