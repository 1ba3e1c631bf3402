#!/usr/bin/env python3
"""Measures the cost of routing, headers and the access log together.

The cost is the processor time per request of a configured server, minus that of `selvedge serve`
without a log. Both serve an equal file over 64 connections, alternating every second, on one core
with the load generator on another.

    python3 checks/configured_cost.py target/release/selvedge     (needs wrk)
"""
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = 9
MAX_MICROSECONDS = 1.0
CONFIGURATION = """listen "127.0.0.1:0"
workers 1
supervision { supervised #false; }
log {
    access "access.log" format="combined"
    error "error.log"
}
site "example.com" "*.example.com" {
    root "root"
    header "X-Content-Type-Options" "nosniff"
    header "Referrer-Policy" "no-referrer"
    cache-control "*.html" "max-age=60"
    error-page 404 "/404.html"
    route "/old/*" { redirect "/new/*" status=301 }
    route "/api/*" { respond 200 "{}" content-type="application/json" }
    route "/downloads/*" { files listing=#true }
    route "/app/*" { files fallback="/app/index.html" }
}
site "other.example" { route "/*" { deny; } }
"""


class Server:
    def __init__(self, command):
        command = ["taskset", "-c", "0", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.address = None
        while self.address is None:
            line = self.process.stderr.readline()
            if not line:
                sys.exit(f"{command} does not start")
            found = re.search(r"http://([^/]*)/", line)
            self.address = found and found[1]

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def cost(self):
        """Runs the load. Returns the processor time of the server per request, in microseconds."""
        load = ["taskset", "-c", "1", "wrk", "-t1", "-c64", "-d1", "-H", "Host: www.example.com"]
        before = self.cpu_seconds()
        output = subprocess.run([*load, f"http://{self.address}/page.html"], capture_output=True, text=True).stdout
        if "Non-2xx" in output or "Socket errors" in output:
            sys.exit(output)
        return (self.cpu_seconds() - before) * 1e6 / int(re.search(r"(\d+) requests in", output)[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=60) != 0:
            sys.exit("the exit code of a server is not 0")


def main():
    binary, folder = sys.argv[1], tempfile.mkdtemp()
    os.mkdir(os.path.join(folder, "root"))
    with open(os.path.join(folder, "root", "page.html"), "w") as page:
        page.write("x" * 151)
    with open(os.path.join(folder, "selvedge.kdl"), "w") as configuration:
        configuration.write(CONFIGURATION)
    plain = [binary, "serve", os.path.join(folder, "root"), "--listen", "127.0.0.1:0", "--workers", "1", "--log", "off"]
    servers = [Server(plain), Server([binary, "run", "--config", os.path.join(folder, "selvedge.kdl")])]
    try:
        for server in servers:
            server.cost()
            time.sleep(0.1)
        costs = [[server.cost() for server in servers] for _ in range(ROUNDS)]
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(folder)
    bare, configured = (statistics.median(costs) for costs in zip(*costs))
    additional = statistics.median(configured - bare for bare, configured in costs)
    print(f"{bare:.2f} us per request of `serve` without a log, {configured:.2f} us configured: {additional:.2f} us of additional cost")
    if additional > MAX_MICROSECONDS:
        sys.exit(f"FAILED: more than {MAX_MICROSECONDS} us of additional cost")


if __name__ == "__main__":
    main()
