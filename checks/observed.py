#!/usr/bin/env python3
"""Runs the example `examples/observed` as its reader does, and checks each view that it promises.

    python3 checks/observed.py target/release/selvedge target/debug/observed

The example has free ports and a copy of its folder. While its load runs: the commands `check`, `check --diff`, `last`,
`explain --request` and `selftest`; Prometheus scrapes the listener and the route of the metrics, and its series grow;
promtool finds nothing; the receiver prints a request with a failed try and its repetition; the live page in Chromium has no
serious finding of axe. At last the example ends on TERM, and once more by `--seconds`, with code 0.

Chromium, Node.js, and prometheus and promtool of Debian's package `prometheus` must be installed; `opentelemetry-proto` is
installed from its registry into target/.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

from clients import free_address
from python_packages import run_with
from status_page import findings_of

EXAMPLE = Path(__file__).resolve().parent.parent / "examples/observed"
TIME_MAX = 60
VARIABLES = ["OBSERVED_SITE", "OBSERVED_METRICS", "OBSERVED_COLLECTOR", "OBSERVED_STEADY", "OBSERVED_FLAKY"]
# The trace that a client of the load has begun.
TRACE_OF_SENDER = "4bf92f3577b34da6a3ce929d0e0e4736"
RULES = ["deny", "ip-access", "rate-limit"]
HELD_MIN = 40
PROMETHEUS = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: listener
    static_configs:
      - targets: ["{OBSERVED_METRICS}"]
  - job_name: route
    static_configs:
      - targets: ["{OBSERVED_SITE}"]
"""
# Each has to have a value above 0 in both jobs.
QUERIES = [
    'sum by (job) (selvedge_requests_total{site="localhost", route="api", status="2xx"})',
    'sum by (job) (selvedge_requests_total{route="api", status="5xx"})',
    "histogram_quantile(0.9, sum by (job, le) (rate(selvedge_request_duration_seconds_bucket[10s])))",
    'sum by (job) (selvedge_upstream_failures_total{server=~".*%s"})',
    "sum by (job) (selvedge_dry_run_refusals_total)",
    "sum by (job) (selvedge_trace_spans_exported_total)",
]


class Failed(Exception):
    """What is wrong, in words."""


def expect(what, is_right, *seen):
    if not is_right:
        raise Failed(" ".join([what, *map(str, seen)]))


def wait_for(what, find):
    """Repeats until something is found."""
    deadline = time.monotonic() + TIME_MAX
    while time.monotonic() < deadline:
        found = find()
        if found:
            return found
        time.sleep(0.1)
    raise Failed(f"{what}: not within {TIME_MAX} s")


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


class Example:
    """The example, with a copy of its folder and free ports."""

    def __init__(self, server, program, folder):
        self.server, self.program = server, program
        self.folder = folder / "observed"
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("*.json", "*.log*", "*.sock"))
        self.configuration = self.folder / "selvedge.kdl"
        self.addresses = {name: free_address() for name in VARIABLES}
        self.environment = {**os.environ, **self.addresses, "OBSERVED_FOLDER": str(self.folder), "SELVEDGE": server}
        self.output = folder / "output"

    def text(self):
        return self.output.read_text()

    def url(self, path):
        return f"http://{self.addresses['OBSERVED_SITE']}{path}"

    @contextlib.contextmanager
    def running(self, *arguments, python=sys.executable):
        """Runs the example. It is ended at the end."""
        environment = {**self.environment, "SELVEDGE_PYTHON": python}
        with open(self.output, "wb") as output:
            process = subprocess.Popen([self.program, *arguments], env=environment, stdout=output, stderr=output)
        try:
            yield process
        finally:
            # The program stops its children on TERM, so it is not killed at once.
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=TIME_MAX)
            process.kill()
            process.wait()

    def command(self, *arguments, codes=(0,), **variables):
        """Runs a command of the server, and returns its output. Its exit code has to be one of these."""
        environment = {**self.environment, **variables}
        command = [self.server, *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIME_MAX)
        is_right = done.returncode in codes
        expect(f"{' '.join(command)}: code {done.returncode}, expected {codes}:", is_right, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def last(self, *arguments):
        """Returns requests of the flight recorder."""
        output = self.command("last", "--json", "-n", 1000, *arguments, self.configuration)
        return [json.loads(line) for line in output.splitlines()]


def check_explanations(example):
    """Explanations of a URL and of recorded requests."""
    output = example.command("explain", example.url("/old/cloth"), example.configuration)
    expect("the explanation of a redirect:", "= 301 Moved Permanently" in output and "selvedge.kdl:" in output, output)
    refused = wait_for("a refused request is recorded", lambda: example.last("--status", "403", "--route", "status"))[0]
    output = example.command("explain", "--request", refused["id"], "--config", example.configuration, "--json")
    explained = json.loads(output)
    # The rule that denies has a line of the configuration.
    denied = [step["line"] for step in explained["steps"] if step["verdict"] == "denied" and step["stage"] == "access"]
    is_explained = explained["response"]["status"] == 403 and any(denied)
    expect("the explanation of a recorded request:", is_explained, output)
    failed = example.last("--status", "502")[0]
    output = example.command("explain", "--request", failed["id"], "--running", "--config", example.configuration)
    flaky = example.addresses["OBSERVED_FLAKY"]
    expect("the explanation by the running server:", f"http://{flaky}" in output and "forward to" in output, output)


def check_recorder(example):
    """The requests that failed, those of a slow client, and those that rules in dry-run mode would refuse."""

    def both_failures():
        found = {request["status"]: request for request in example.last("--status", "5xx")}
        return found if {502, 503} <= found.keys() else None

    failures = wait_for("requests with 502 and 503 are recorded", both_failures)
    flaky = example.addresses["OBSERVED_FLAKY"]
    expect("502:", failures[502]["reason"] == "connection_terminated" and failures[502]["method"] == "POST", failures)
    expect("503:", failures[503]["upstream_status"] == 503, failures)
    expect("the server:", all(flaky in str(request["upstream"]) for request in failures.values()), failures)
    slow = wait_for("a slow request is recorded", lambda: example.last("--slower", "600ms", "--client", "203.0.113.5"))[0]
    expect("its phases:", slow["phases_us"]["application"] >= 600_000, slow)
    observed = {request["client"] for request in example.last("--dry-run")}
    expect("clients that rules would refuse:", {"192.0.2.7", "192.0.2.20", "198.51.100.3"} <= observed, observed)


def check_configuration(example):
    """Expectations, one that does not hold, and what a change would do."""
    output = example.command("check", example.configuration)
    expect("check:", output.strip().endswith("no problems"), output)
    text = example.configuration.read_text()
    changed = example.folder / "changed.kdl"
    changed.write_text(text.replace('redirect "/*.html" status=301', 'redirect "/*.html" status=308'))
    output = example.command("check", changed, codes=(1,))
    expect("a broken expectation:", "expected status 301, and it is 308" in output and "+ route    moved, /old/*" in output, output)
    output = example.command("check", "--diff", example.configuration, OBSERVED_RATE="50")
    expect("check --diff:", re.search("now rate-limit 50 .*, before rate-limit 10 ", output), output)
    output = example.command("check", "--diff", example.configuration)
    expect("check --diff without a change:", "rate-limit" not in output, output)


def check_selftest(example):
    output = example.command("selftest", example.url("/cloth.html"), example.configuration, "--json", codes=(0, 1))
    report = json.loads(output)
    failed = [attack for attack in report["attacks"] if attack["verdict"] == "failed"]
    expect("selftest:", not failed, *failed)
    expect("selftest:", report["held"] >= HELD_MIN, report["held"], "attacks held")
    print(f"observed: selftest: {report['held']} held, {report['not_applicable']} not applicable")


def repeated(lines):
    """Returns a request with a failed try and its repetition, of the lines of the receiver."""
    for at, line in enumerate(lines):
        tries = []
        for following in lines[at + 1 :]:
            if not following.startswith("    try "):
                break
            tries.append(following)
        if re.match(r"  request GET /api/\* [\d.]+ ms 200 ", line) and len(tries) == 2:
            if "no response failed" in tries[0] and " 200 " in tries[1] and "resend_count=1" in tries[1]:
                return [lines[at - 1], line, *tries]
    return None


def check_traces(example):
    """A failed try and its repetition below their request, and the trace of a sender."""
    found = wait_for("spans of a repeated request", lambda: repeated(example.text().splitlines()))
    expect("the kind of the failure:", "type=connection_terminated" in found[2], found)
    print("observed: a repeated request, as the receiver has decoded it:", *found, sep="\n    ")
    wait_for("spans of the sender's trace", lambda: f"\n{TRACE_OF_SENDER}\n" in example.text())


def check_metrics(example):
    """promtool, and the rules in dry-run mode."""
    for url in (f"http://{example.addresses['OBSERVED_METRICS']}/metrics", example.url("/metrics")):
        text = fetch(url)
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=TIME_MAX)
        expect("promtool:", done.returncode == 0 and not done.stdout + done.stderr, done.stdout, done.stderr)
        rules = re.findall(r'^selvedge_dry_run_refusals_total\{site="localhost",rule="([a-z-]+)"\} \d', text, re.M)
        expect("rules in dry-run mode:", sorted(rules) == RULES, rules)


class Prometheus:
    """Prometheus, which scrapes the example each second."""

    def __init__(self, example, folder):
        self.address, self.flaky = free_address(), example.addresses["OBSERVED_FLAKY"]
        configuration = folder / "prometheus.yml"
        configuration.write_text(PROMETHEUS.format(**example.addresses))
        options = [f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'prometheus'}"]
        options += [f"--web.listen-address={self.address}", "--log.level=warn"]
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(["prometheus", *options], stdout=log, stderr=log)

    def get(self, path):
        """Returns the data of a response, or `None` before Prometheus serves."""
        try:
            return json.loads(fetch(f"http://{self.address}/api/v1/{path}"))["data"]
        except OSError:
            return None

    def values(self, query):
        """Returns the value of each job."""
        found = self.get("query?" + urllib.parse.urlencode({"query": query}))
        return {result["metric"]["job"]: float(result["value"][1]) for result in found["result"]} if found else {}

    def check(self):
        def is_up():
            return self.values("up") == {"listener": 1, "route": 1}

        wait_for("Prometheus scrapes both targets", is_up)
        for query in QUERIES:
            query = query.replace("%s", self.flaky)
            # NaN, of a rate without requests, is not above 0.
            wait_for(query, lambda: len([value for value in self.values(query).values() if value > 0]) == 2)
        counts = "sum by (job) (selvedge_requests_total)"
        before = self.values(counts)
        wait_for("the counts grow", lambda: all(self.values(counts)[job] > count for job, count in before.items()))
        targets = self.get("targets")["activeTargets"]
        errors = [target["lastError"] for target in targets]
        expect("targets of Prometheus:", errors == ["", ""] and {target["health"] for target in targets} == {"up"}, targets)
        print(f"observed: Prometheus has scraped both targets, and counts grow from {before}")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=TIME_MAX)


def check_while_it_runs(example, folder):
    prometheus = Prometheus(example, folder)
    try:
        check_configuration(example)
        check_recorder(example)
        check_explanations(example)
        check_traces(example)
        check_metrics(example)
        prometheus.check()
        findings = findings_of(example.url("/status"))
        expect("the live page:", not findings, *findings)
        print("observed: the live page in Chromium, light and dark, on phones and on a desk: no serious finding")
        check_selftest(example)
    finally:
        prometheus.stop()


def run(example, folder):
    with example.running() as process:
        guide = lambda: "selftest http://" in example.text() or process.poll() is not None  # noqa: E731
        wait_for("the example serves", guide)
        expect("the example has ended:", process.poll() is None, example.text())
        check_while_it_runs(example, folder)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=TIME_MAX)
        expect(f"the example ends with {code}:", code == 0 and "; 0 requests failed" in example.text(), example.text())
        print("observed:", example.text().splitlines()[-1])
    with example.running("--seconds", "2", python="/nonexistent") as process:
        code = process.wait(timeout=TIME_MAX)
        expect(f"without a receiver, it ends with {code}:", code == 0, example.text())
        expect("what it reports:", "no receiver of spans" in example.text(), example.text())
    with contextlib.suppress(OSError):
        fetch(example.url("/"))
        raise Failed("the server still serves")


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    run_with("traces-python", ["opentelemetry-proto"], ["opentelemetry.proto.collector.trace.v1.trace_service_pb2"])
    server, program = (str(Path(argument).resolve()) for argument in sys.argv[1:])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        example = Example(server, program, Path(folder))
        try:
            run(example, Path(folder))
        except Failed as failure:
            print(f"observed: {failure}")
            return 1
    print(f"observed: all views of the example, in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
