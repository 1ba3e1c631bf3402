#!/usr/bin/env python3
"""Checks the metrics of the program: their text, their names in the documents, and the time of a scrape.

    python3 checks/metrics.py BINARY [--scrape-ms-max N]

Serves 1,000 sites, sends a request with status 200 and one with 404 to a route of each, and scrapes. promtool of Debian's package
`prometheus` has to find nothing; without it this part is reported as left out. Each metric has to be in docs/metrics.md, and
each metric of the dashboard has to exist. The median of 20 scrapes takes at most N ms (5; a debug build needs more).
"""

import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITES = 1000
SCRAPES = 20
# Parts of a family of metrics.
ENDS = ("_bucket", "_sum", "_count")


def wait_for(what, find):
    """Repeats until something is found, for 30 s at most."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = find()
        if found is not None:
            return found
        time.sleep(0.02)
    raise SystemExit(f"metrics: {what}: not within 30 s")


def address(log, text):
    """Returns the address after a text in the program's messages, once it is there."""
    pattern = re.compile(re.escape(text) + r"(?:http://)?([\d.]+):(\d+)")
    found = wait_for(text, lambda: pattern.search(Path(log).read_text()))
    return found.group(1), int(found.group(2))


def scrape(place, accept):
    connection = http.client.HTTPConnection(*place, timeout=10)
    began = time.perf_counter()
    connection.request("GET", "/metrics", headers={"Accept": accept})
    response = connection.getresponse()
    text = response.read().decode()
    took = time.perf_counter() - began
    connection.close()
    if response.status != 200:
        raise SystemExit(f"metrics: a scrape has status {response.status}")
    return text, took


def families(text):
    """Returns the names of all samples, without the parts of histograms."""
    names = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")}
    return {next((name[: -len(end)] for end in ENDS if name.endswith(end)), name) for name in names}


def check_documents(text):
    """Compares the metrics with the page and with the dashboard."""
    page = (ROOT / "docs/metrics.md").read_text()
    documented = set(re.findall(r"`((?:selvedge|process)_\w+)`", page))
    problems = [f"{name} is not in docs/metrics.md" for name in sorted(families(text) - documented)]
    dashboard = json.loads((ROOT / "examples/observed/grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    expressions += [item["definition"] for item in dashboard["templating"]["list"] if "definition" in item]
    used = {name for expression in expressions for name in re.findall(r"\b(?:selvedge|process)_\w+", expression)}
    used = {next((name[: -len(end)] for end in ENDS if name.endswith(end)), name) for name in used}
    problems += [f"{name} of the dashboard is not in docs/metrics.md" for name in sorted(used - documented)]
    if len(expressions) < 20:
        problems.append("the dashboard has too few expressions")
    return problems


def check_text(text):
    """Runs promtool on the text."""
    promtool = shutil.which("promtool")
    if promtool is None:
        print("metrics: promtool is not installed, so the text was not checked by it")
        return []
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    problems = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode or problems:
        return [f"promtool: {line}" for line in problems or ["failed"]]
    print("metrics: promtool finds nothing")
    return []


def run(binary, scrape_ms_max, folder):
    (folder / "root").mkdir()
    (folder / "root/index.html").write_text("x")
    routes = f'route "/none/*" {{ deny status=404; }}; route "/*" {{ files root="{folder}/root"; }};'
    sites = "".join(f'site "s{number}.example" {{ {routes} }}\n' for number in range(SITES))
    text = f'listen "127.0.0.1:0"\nworkers 2\nmetrics "127.0.0.2:0"\nlog {{ access "off"; error "error.log"; }}\n{sites}'
    (folder / "selvedge.kdl").write_text(text)
    messages = folder / "messages"
    with open(messages, "wb") as out:
        server = subprocess.Popen([binary, "run", folder / "selvedge.kdl"], stdout=out, stderr=out)
    try:
        place, metrics = address(messages, " on "), address(messages, "serving metrics on ")
        connection = http.client.HTTPConnection(*place, timeout=10)
        for number in range(SITES):
            for path, status in (("/", 200), ("/missing", 404)):
                connection.request("GET", path, headers={"Host": f"s{number}.example"})
                response = connection.getresponse()
                response.read()
                if response.status != status:
                    return [f"s{number}.example{path} has status {response.status}"]
        connection.close()
        problems = check_documents(scrape(metrics, "*/*")[0]) + check_text(scrape(metrics, "*/*")[0])
        openmetrics = "application/openmetrics-text;version=1.0.0"
        scrapes = [scrape(metrics, openmetrics) for _ in range(SCRAPES)]
        last = scrapes[-1][0]
        counted = len(re.findall(r'^selvedge_requests_total\{site="s\d+\.example".*\} 1$', last, re.M))
        if counted != 2 * SITES or not last.endswith("# EOF\n"):
            problems.append(f"{counted} series of requests, expected {2 * SITES}")
        median = sorted(took for _, took in scrapes)[SCRAPES // 2] * 1000
        print(f"metrics: {SITES} sites, {len(last)} bytes, {last.count(chr(10))} lines, median of a scrape {median:.1f} ms")
        if median > scrape_ms_max:
            problems.append(f"a scrape takes {median:.1f} ms, more than {scrape_ms_max} ms")
        return problems
    finally:
        server.terminate()
        server.wait(timeout=30)


def main():
    arguments = sys.argv[1:]
    scrape_ms_max = 5.0
    if "--scrape-ms-max" in arguments:
        at = arguments.index("--scrape-ms-max")
        scrape_ms_max = float(arguments[at + 1])
        del arguments[at : at + 2]
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        problems = run(Path(arguments[0]).resolve(), scrape_ms_max, Path(folder))
    for problem in problems:
        print(f"metrics: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
