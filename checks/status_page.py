#!/usr/bin/env python3
"""Checks the live page of the server in Chromium: light and dark, on phones and on a desk, while requests arrive.

    python3 checks/status_page.py target/release/selvedge [--pictures FOLDER]

Chromium and Node.js must be installed; axe-core and puppeteer-core are installed from their registry into target/.
Fails if axe has a serious finding, if a page is wider than the screen, if the browser reports an error or requests anything
but the page and its events, or if the numbers do not change within 3 s. Also checks the page without JavaScript, the button
that pauses it, and what it reports at a reload and when the server hangs or stops.
"""

import fcntl
import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["axe-core@4.10", "puppeteer-core@24"]
TIMEOUT = 300
LOAD_INTERVAL = 0.02

# Port 9 discards: no server is there.
CONFIGURATION = """
listen "127.0.0.1:0"
workers 2
log { access "off"; error "error.log"; }
upstream "orders" { server "http://127.0.0.1:9"; server "http://127.0.0.1:10"; }
site "127.0.0.1" {
    rate-limit 1 per="1h" dry-run=#true
    route "/status" { name "status"; status-page; }
    route "/orders/*" { proxy "orders"; }
    route "/fail/*" { deny status=503; }
    route "/*" { respond 200 "content"; }
}
"""

SCRIPT = """
import puppeteer from 'puppeteer-core';
import fs from 'fs';
const [url, server, pictures] = process.argv.slice(2);
const axe = fs.readFileSync('node_modules/axe-core/axe.min.js', 'utf8');
const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const CHANGE_TIME = 3000;
const browser = await puppeteer.launch({executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu']});
const findings = [];
let place;
const report = (...what) => findings.push([...place, ...what]);

async function open(scheme, width, isMobile, hasScript = true) {
    place = [scheme, width, hasScript ? 'script' : 'no script'];
    const page = await browser.newPage();
    await page.setJavaScriptEnabled(hasScript);
    await page.setViewport({width, height: 800, isMobile});
    await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: scheme}]);
    const own = [...place];
    const problem = (...what) => findings.push([...own, ...what]);
    page.on('console', message => ['error', 'warn'].includes(message.type()) && problem('console', message.text()));
    page.on('pageerror', error => problem('error', error.message));
    page.on('request', request => {
        if (![url, url + '?events'].includes(request.url()) && !request.url().startsWith('data:')) problem('requests', request.url());
    });
    await page.goto(url);
    return page;
}

// The number of requests and the time of the state that the page shows.
const shown = page => page.evaluate(() => [document.querySelectorAll('dd')[9].textContent, document.getElementById('time').dateTime]);

async function changes(page, before) {
    const has = ([count, time]) => Number(document.querySelectorAll('dd')[9].textContent) > Number(count)
        && document.getElementById('time').dateTime > time;
    return page.waitForFunction(has, {timeout: CHANGE_TIME}, before).then(() => true, () => false);
}

for (const scheme of ['light', 'dark']) for (const [width, isMobile] of [[360, true], [320, true], [1280, false]]) {
    const page = await open(scheme, width, isMobile);
    if (!await changes(page, await shown(page))) report('the numbers do not change');
    const tables = await page.evaluate(() => [...document.querySelectorAll('table')].map(table => table.tBodies[0].rows.length));
    // Failed and slow requests, servers, rules, connections, sites and reasons; no certificate.
    if (tables.length !== 8 || tables.filter(rows => rows > 0).length !== 7) report('tables with rows', tables.join(' '));
    const bad = await page.evaluate(() => document.querySelectorAll('tr.bad').length);
    if (bad === 0) report('no row is marked as a problem');
    // A server that has just started has no two seconds to compare.
    const hasLine = () => document.getElementById('line').getAttribute('points').split(' ').length >= 2;
    await page.waitForFunction(hasLine, {timeout: CHANGE_TIME}).catch(() => report('the chart has no line'));
    const zone = await page.evaluate(() => [...document.querySelectorAll('time')].some(time => time.textContent.includes('UTC')));
    if (zone) report('a time is not in the locale of the visitor');
    if (await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)) report('too wide');
    const state = await page.evaluate(() => document.getElementById('state').textContent);
    if (state !== '') report('a report without an event', state);
    await page.evaluate(axe);
    const result = await page.evaluate(tags => axe.run(document, {runOnly: {type: 'tag', values: tags}}), tags);
    const serious = result.violations.filter(found => ['serious', 'critical'].includes(found.impact));
    serious.forEach(found => report(found.id, found.nodes[0].html));
    if (result.passes.length === 0) report('axe did not run');
    if (pictures) await page.screenshot({path: `${pictures}/${scheme}-${width}.png`, fullPage: true});
    await page.close();
}

const plain = await open('light', 360, true, false);
const texts = await plain.$$eval('dd', values => values.map(value => value.textContent));
if (texts.length < 10 || texts.some(text => text === '')) report('numbers are missing', texts.join(' | '));
if (!await plain.$eval('noscript', note => note.textContent.includes('Load it again'))) report('no note');
if (!await plain.$eval('#pause', button => button.hidden)) report('a button without effect');
await plain.close();

const page = await open('light', 1280, false);
await changes(page, await shown(page));
// By keys: the button is the first element of the page, and the tables follow.
await page.keyboard.press('Tab');
if (await page.evaluate(() => document.activeElement.id) !== 'pause') report('the button is not the first element for keys');
await page.keyboard.press('Enter');
const paused = await shown(page);
if (await changes(page, paused)) report('the page changes while it is paused');
await page.keyboard.press('Tab');
if (!await page.evaluate(() => document.activeElement.matches('.scroll'))) report('keys do not reach the tables');
await page.click('#pause');
if (!await changes(page, await shown(page))) report('the page does not go on');
const becomes = (words, what) => page.waitForFunction(
    words => document.getElementById('state').textContent === words, {timeout: 20000}, words).catch(() => report(what));
if (server) {
    // A reload ends the stream of events. The page opens another one and reports nothing.
    await page.evaluate(() => {
        const state = document.getElementById('state');
        window.reports = [];
        new MutationObserver(() => window.reports.push(state.textContent)).observe(state, {childList: true});
    });
    const before = await shown(page);
    process.kill(Number(server), 'SIGHUP');
    const isReloaded = () => document.querySelectorAll('dd')[15].textContent === '2';
    await page.waitForFunction(isReloaded, {timeout: 20000}).catch(() => report('the page does not go on after a reload'));
    if (!await changes(page, before)) report('the numbers do not change after a reload');
    const reports = await page.evaluate(() => window.reports);
    if (reports.length > 0) report('a report at a reload', ...reports);

    // A serving process that stands still for a while.
    const children = fs.readFileSync(`/proc/${server}/task/${server}/children`, 'utf8').trim().split(' ').map(Number);
    children.forEach(child => process.kill(child, 'SIGSTOP'));
    await becomes('The connection to the server is lost. The page tries again.', 'a server that hangs is not reported');
    children.forEach(child => process.kill(child, 'SIGCONT'));
    await becomes('The connection is back.', 'a connection that is back is not reported');
    await becomes('', 'the report of a connection that is back stays');

    // The browser reports a connection that is refused.
    page.removeAllListeners('console');
    process.kill(Number(server), 'SIGTERM');
    const isLost = () => document.getElementById('state').textContent.includes('lost');
    await page.waitForFunction(isLost, {timeout: 20000}).catch(() => report('a lost connection is not reported'));
}
await browser.close();
console.log(JSON.stringify(findings));
"""


def load(place, is_over):
    """Sends requests until the event is set."""
    number = 0
    while not is_over.wait(LOAD_INTERVAL):
        connection = http.client.HTTPConnection(*place, timeout=10)
        try:
            path = ["/", "/orders/1?secret=2", "/fail/" + "a-long-name" * 4][number % 3]
            connection.request("GET", path)
            connection.getresponse().read()
        except OSError:
            # The server stops before the load does.
            pass
        finally:
            connection.close()
        number += 1


def findings_of(url, server="", pictures=""):
    """Opens the page in Chromium, and returns what is wrong. It has to have failed requests, upstreams and rules in
    dry-run mode, and no certificate. A server, given by its process identifier, is stopped at the end.
    """
    tools = HERE / "target" / "pages"
    tools.mkdir(parents=True, exist_ok=True)
    # Several checks may start at once.
    with open(tools / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (tools / "package.json").write_text('{"private": true}')
        install = ["npm", "install", "--no-audit", "--no-fund", "--silent", *PACKAGES]
        subprocess.run(install, cwd=tools, check=True, timeout=TIMEOUT)
        (tools / "status_page.mjs").write_text(SCRIPT)
    run = ["node", "status_page.mjs", url, str(server), pictures]
    done = subprocess.run(run, cwd=tools, timeout=TIMEOUT, stdout=subprocess.PIPE)
    return json.loads(done.stdout) if done.returncode == 0 else [["the browser failed"]]


def main(program, pictures):
    with tempfile.TemporaryDirectory() as folder:
        configuration = pathlib.Path(folder) / "selvedge.kdl"
        configuration.write_text(CONFIGURATION)
        server = subprocess.Popen(
            [program, "run", configuration], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        is_over = threading.Event()
        try:
            port = int(re.search(r"http://127\.0\.0\.1:(\d+)", server.stderr.readline()).group(1))
            sender = threading.Thread(target=load, args=(("127.0.0.1", port), is_over))
            sender.start()
            findings = findings_of(f"http://127.0.0.1:{port}/status", server.pid, pictures)
        finally:
            is_over.set()
            server.terminate()
            server.wait()
    sender.join()
    for finding in findings:
        print(*finding)
    assert not findings, f"{len(findings)} findings"
    print("the live page, light and dark, on phones and on a desk: no serious finding, and it follows the server")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    folder = ""
    if "--pictures" in arguments:
        at = arguments.index("--pictures")
        folder = os.path.abspath(arguments[at + 1])
        del arguments[at : at + 2]
    main(os.path.abspath(arguments[0]), folder)
