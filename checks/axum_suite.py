#!/usr/bin/env python3
"""Runs axum's own tests with this library in the place of axum::serve.

    python3 checks/axum_suite.py

Takes the axum that the workspace depends on from cargo's registry, has its tests' client start
Selvedge wherever it started axum's server, and runs all of its tests but a few that cannot pass.
Says with each driver how many passed and how many servers they started, and which were left out
and why; fails when one failed.
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
    // Its content is one more body to axum, as it is with any server.
    let svc = svc.map_request(|request: http::Request<selvedge::Body>| request.map(crate::body::Body::new));
    let server = selvedge::Server::bind_with_workers("127.0.0.1:0", 1).expect("a free port");
    let running = server.serve(svc).expect("it serves");
    let addr = running.addresses()[0];
    if let Some(file) = std::env::var_os("SERVERS_STARTED") {
        use std::io::Write as _;
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(file).expect("a file to count in");
        writeln!(file, "{addr}").expect("room in it");
    }
    // It serves as long as the tests run.
    std::mem::forget(running);
    addr
"""
# What cannot pass, and why.
SKIPPED = {
    "serve::": "tests axum's own server",
    "extract::ws::tests::http2": "asks for HTTP/2",
    "routing::tests::logging_rejections": "reads the log of its own thread, and a handler runs on a worker's",
    "routing::tests::head_with_middleware_applied":
        "wants no Transfer-Encoding in an answer to HEAD; here it has the fields that GET gets (RFC 9110, 9.3.2)",
}


def axum_folder():
    """Where cargo keeps the source of axum."""
    said = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--all-features"],
        cwd=HERE, capture_output=True, text=True, check=True)
    package = next(package for package in json.loads(said.stdout)["packages"] if package["name"] == "axum")
    return package["version"], os.path.dirname(package["manifest_path"])


def put_selvedge_in(folder):
    path = os.path.join(folder, HELPER)
    with open(path) as file:
        text = file.read()
    text, count = BEFORE.subn(lambda _: AFTER, text)
    if count != 1:
        sys.exit(f"{HELPER} of axum is not as it was: adapt this check")
    text = text.replace("use super::{serve, Request, Response};", "use super::{Request, Response};")
    with open(path, "w") as file:
        file.write(text)
    path = os.path.join(folder, "Cargo.toml")
    with open(path) as file:
        manifest = file.read()
    # As in its own workspace: the attribute of its tests.
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
        put_selvedge_in(folder)
        count = os.path.join(temporary, "servers")
        target = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
        environment = dict(os.environ, SERVERS_STARTED=count, CARGO_TARGET_DIR=os.path.join(target, "axum-suite"))
        command = ["cargo", "test", "--all-features", "--lib", "--quiet", "--"]
        command += [word for name in SKIPPED for word in ("--skip", name)]
        # Its lints are its own affair.
        environment["RUSTFLAGS"] = "--cap-lints allow"
        for driver in ["auto", "io_uring"]:
            environment["SELVEDGE_DRIVER"] = driver
            open(count, "w").close()
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            result = re.search(r"test result: .*", done.stdout)
            servers = len(open(count).readlines())
            if done.returncode != 0 or not result or servers == 0:
                sys.exit(f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}\naxum {version}, {driver}: failed")
            print(f"axum {version} on Selvedge, {driver}: {result.group(0)} ({servers} servers started)")
        for name, reason in SKIPPED.items():
            print(f"  not run: {name}, which {reason}")


if __name__ == "__main__":
    main()
