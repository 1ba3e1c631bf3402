#!/usr/bin/env python3
"""Checks the pages that the server makes itself with axe in Chromium: listings and errors, light and dark, on a phone and
on a desk.

    python3 checks/pages.py target/release/selvedge

Chromium and Node.js must be installed; axe-core and puppeteer-core are installed from their registry into target/.
Fails if axe has a serious finding, or if a page is wider than the screen.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["axe-core@4.10", "puppeteer-core@24"]
# More than one page of a listing.
FILES = 2_100
PATHS = ["/", "/?filter=file-000", "/?page=2", "/sub/deep/", "/none", "/none%2F.."]
TIMEOUT = 300

SCRIPT = """
import puppeteer from 'puppeteer-core';
import fs from 'fs';
const [base, paths, chromium] = [process.argv[2], JSON.parse(process.argv[3]), '/usr/bin/chromium'];
const axe = fs.readFileSync('node_modules/axe-core/axe.min.js', 'utf8');
const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const browser = await puppeteer.launch({executablePath: chromium, args: ['--no-sandbox', '--disable-gpu']});
const findings = [];
for (const path of paths) for (const scheme of ['light', 'dark']) for (const [width, isMobile] of [[360, true], [1280, false]]) {
    const page = await browser.newPage();
    await page.setViewport({width, height: 800, isMobile});
    await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: scheme}]);
    await page.goto(base + path);
    await page.evaluate(axe);
    const result = await page.evaluate(tags => axe.run(document, {runOnly: {type: 'tag', values: tags}}), tags);
    const serious = result.violations.filter(found => ['serious', 'critical'].includes(found.impact));
    serious.forEach(found => findings.push([path, scheme, width, found.id, found.nodes[0].html]));
    if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) findings.push([path, scheme, width, 'too wide']);
    if (result.passes.length === 0) findings.push([path, scheme, width, 'axe did not run']);
    await page.close();
}
await browser.close();
console.log(JSON.stringify(findings));
"""


def main(program):
    tools = HERE / "target" / "pages"
    tools.mkdir(parents=True, exist_ok=True)
    (tools / "package.json").write_text('{"private": true}')
    install = ["npm", "install", "--no-audit", "--no-fund", "--silent", *PACKAGES]
    subprocess.run(install, cwd=tools, check=True, timeout=TIMEOUT)
    (tools / "pages.mjs").write_text(SCRIPT)
    with tempfile.TemporaryDirectory() as folder:
        site = pathlib.Path(folder)
        for number in range(FILES):
            (site / f"file-{number:04}.txt").write_text("x" * number)
        (site / "sub/deep/more").mkdir(parents=True)
        (site / ("sub/deep/" + "a long name of a file, as downloads often have " * 3 + ".tar.gz")).write_text("x")
        command = [program, "serve", site, "--listing", "--listen", "127.0.0.1:0"]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        try:
            base = re.search(r"http://127\.0\.0\.1:\d+", server.stderr.readline()).group()
            run = ["node", "pages.mjs", base, json.dumps(PATHS)]
            findings = json.loads(subprocess.run(run, cwd=tools, check=True, timeout=TIMEOUT, capture_output=True).stdout)
        finally:
            server.terminate()
            server.wait()
    for finding in findings:
        print(*finding)
    assert not findings, f"{len(findings)} findings"
    print(f"{len(PATHS)} pages, light and dark, on a phone and on a desk: no serious finding")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
