// The requests page: sends the exchanges, prints both heads, and shows whether the responses are as expected.

import { EXCHANGES, OFFERED, PACKED } from './exchanges.js';

const $ = (id) => document.getElementById(id);
const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

const PROTOCOLS = { 'http/1.0': 'HTTP/1.0', 'http/1.1': 'HTTP/1.1', h2: 'HTTP/2', h3: 'HTTP/3' };
const PREVIEW = 200; // characters of a body to print
const WORD_MAX = 120; // characters of a path or field to print

// Sending

/** Returns the protocol the browser last used for this address, from its timing record. */
async function protocolOf(address) {
  await new Promise((done) => { setTimeout(done); });
  const entry = performance.getEntriesByName(address, 'resource').at(-1);
  return PROTOCOLS[entry?.nextHopProtocol] ?? 'HTTP';
}

/** Sends one request and returns all that a script may know about the exchange. */
async function exchange(method, path, fields = {}) {
  const address = new URL(path, location.origin).href;
  const began = performance.now();
  const response = await fetch(address, { method, headers: fields, cache: 'no-store' });
  const bytes = new Uint8Array(await response.arrayBuffer());
  const took = performance.now() - began;
  return {
    method, path, fields, bytes, took, address,
    protocol: await protocolOf(address),
    status: response.status,
    reason: response.statusText,
    headers: response.headers,
    isRedirected: response.redirected,
    url: response.url,
  };
}

// Printing

const short = (text) => (text.length <= WORD_MAX ? text
  : `${text.slice(0, 40)} … ${text.length.toLocaleString('en')} characters`);
const title = (name) => name.replace(/(^|-)[a-z]/g, (part) => part.toUpperCase()).replace(/^Etag$/, 'ETag');
const line = (text, className = '') => element('span', { className, textContent: `${text}\n` });

function requestHead(sent) {
  const range = 'Range' in sent.fields ? 'identity' : 'chosen by the browser';
  return element('pre', {},
    line(`${sent.method} ${short(sent.path)} ${sent.protocol}`, 'first'),
    line(`Host: ${location.host}`),
    ...Object.entries(sent.fields).map(([name, value]) => line(`${name}: ${short(value)}`, 'notable')),
    line(`Accept-Encoding: (${range})`, 'added'),
    line('Cache-Control: no-cache (added by the browser)', 'added'),
    line('and more that scripts cannot see', 'added'));
}

function preview(sent) {
  const type = sent.headers.get('Content-Type') ?? '';
  if (sent.bytes.length === 0) return 'no body';
  const count = `${sent.bytes.length.toLocaleString('en')} bytes of body`;
  if (!/^text\/|json|javascript|xml|manifest/.test(type)) return count;
  const text = new TextDecoder().decode(sent.bytes.slice(0, PREVIEW * 4)).slice(0, PREVIEW).trimEnd();
  const isWhole = sent.bytes.length <= PREVIEW;
  return `${text}${isWhole ? '' : ' …'}\n\n${isWhole ? count : `${count}, of which this is the beginning`}`;
}

function responseHead(sent, notable) {
  return element('pre', {},
    line(`${sent.protocol} ${sent.status} ${sent.reason}`.trimEnd(), 'first'),
    ...[...sent.headers].map(([name, value]) => line(`${title(name)}: ${value}`, notable.includes(title(name)) ? 'notable' : '')),
    line(`\n${preview(sent)}`, 'added'));
}

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(sent) {
  if (sent.path.length > WORD_MAX || Object.values(sent.fields).some((value) => value.length > WORD_MAX)) return [];
  const words = ['curl', sent.method === 'HEAD' ? '-I' : '-i --output -'];
  if (!['GET', 'HEAD'].includes(sent.method)) words.push(`-X ${sent.method}`);
  for (const [name, value] of Object.entries(sent.fields)) words.push(`-H ${quote(`${name}: ${value}`)}`);
  words.push(quote(sent.address));
  return [element('details', { className: 'curl' },
    element('summary', { textContent: 'As a curl command' }),
    element('pre', {}, element('code', { textContent: words.join(' ') })))];
}

/** Prints one exchange; `notable` has the names of the response fields to highlight. */
function printStep(sent, notable = []) {
  const ms = sent.took < 10 ? sent.took.toFixed(1) : Math.round(sent.took);
  const notes = sent.isRedirected
    ? [element('p', { className: 'hint', textContent: `The browser followed a redirect to ${new URL(sent.url).pathname} and hides the response in between.` })]
    : [];
  return element('div', { className: 'step' },
    element('div', { className: 'heads' },
      element('div', {}, element('p', { className: 'what', textContent: 'Request' }), requestHead(sent)),
      element('div', {}, element('p', { className: 'what', textContent: `Response, after ${ms} ms` }), responseHead(sent, notable))),
    ...notes,
    ...curl(sent));
}

// The prepared exchanges

/** Runs one exchange and shows its heads folded or unfolded. Returns true if the responses are as expected. */
async function perform(article, heads) {
  const button = article.querySelector('button');
  const verdict = article.querySelector('.verdict');
  const output = article.querySelector('.result');
  button.disabled = true;
  verdict.className = 'verdict';
  verdict.textContent = 'Sending.';
  const { fields, run } = EXCHANGES[article.dataset.exchange];
  const steps = [];
  const send = async (...parts) => {
    const sent = await exchange(...parts);
    steps.push(printStep(sent, fields));
    return sent;
  };
  let findings;
  try {
    findings = await run(send);
  } catch (error) {
    findings = [[false, `The exchange failed: ${error.message}`]];
  }
  const failed = findings.filter(([isMet]) => !isMet);
  const isGood = failed.length === 0;
  verdict.classList.add(isGood ? 'good' : 'bad');
  verdict.textContent = isGood ? 'As expected.' : `Not as expected: ${failed.length} of ${findings.length}.`;
  output.replaceChildren(
    element('ul', { className: 'checks' }, ...findings.map(([isMet, text]) =>
      element('li', { className: isMet ? '' : 'bad', textContent: isMet ? text : `Not so: ${text}` }))),
    element('details', { open: heads === 'unfolded' },
      element('summary', { textContent: steps.length === 1 ? 'One exchange' : `${steps.length} exchanges` }), ...steps));
  button.disabled = false;
  return isGood;
}

async function runAll() {
  const button = $('send-all');
  button.disabled = true;
  const articles = document.querySelectorAll('[data-exchange]');
  let good = 0;
  for (const article of articles) {
    $('all-state').textContent = `Sending: ${article.querySelector('h3').textContent}`;
    if (await perform(article, 'folded')) good += 1;
  }
  $('all-state').className = `verdict ${good === articles.length ? 'good' : 'bad'}`;
  $('all-state').textContent = `${good} of ${articles.length} as expected.`;
  button.disabled = false;
}

// Compression, compared

async function comparePacked() {
  const button = $('compare');
  button.disabled = true;
  const kb = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
  const items = [];
  for (const path of PACKED) {
    const sent = await exchange('GET', path);
    const coding = sent.headers.get('Content-Encoding') ?? 'not compressed';
    const entry = performance.getEntriesByName(sent.address, 'resource').at(-1);
    const wire = Number(sent.headers.get('Content-Length') ?? entry?.encodedBodySize ?? sent.bytes.length);
    const text = `${path}: ${kb(wire)} instead of ${kb(sent.bytes.length)} (${coding})`;
    items.push(element('li', {}, element('label', {},
      text, element('progress', { max: sent.bytes.length, value: wire }))));
  }
  $('packed').replaceChildren(...items);
  button.disabled = false;
}

// A request by hand

async function sendOwn(event) {
  event.preventDefault();
  const fields = {};
  for (const [id, name] of [['own-range', 'Range'], ['own-none-match', 'If-None-Match'], ['own-since', 'If-Modified-Since']]) {
    const value = $(id).value.trim();
    if (value !== '') fields[name] = value;
  }
  try {
    const address = new URL($('own-path').value.trim() || '/', location.origin);
    if (address.origin !== location.origin) throw new Error('the address is not on this site');
    const sent = await exchange($('own-method').value, address.pathname + address.search, fields);
    $('own-result').replaceChildren(printStep(sent));
    $('own-state').textContent = `The status is ${sent.status}.`;
    if ($('own-none-match').value === '' && sent.headers.has('ETag')) {
      $('own-none-match').placeholder = sent.headers.get('ETag');
    }
    if ($('own-since').value === '' && sent.headers.has('Last-Modified')) {
      $('own-since').placeholder = sent.headers.get('Last-Modified');
    }
  } catch (error) {
    $('own-result').replaceChildren();
    $('own-state').textContent = `The request failed: ${error.message}.`;
  }
}

performance.setResourceTimingBufferSize(5000); // the browser's default is 250
for (const article of document.querySelectorAll('[data-exchange]')) {
  const button = element('button', { type: 'button', textContent: 'Send' });
  button.setAttribute('aria-describedby', article.querySelector('h3').id);
  button.addEventListener('click', () => perform(article, 'unfolded'));
  article.append(
    element('div', { className: 'row' }, button, element('p', { className: 'verdict', role: 'status' })),
    element('div', { className: 'result' }));
}
$('paths').append(...OFFERED.map((value) => element('option', { value })));
$('send-all').addEventListener('click', runAll);
$('compare').addEventListener('click', comparePacked);
$('own').addEventListener('submit', sendOwn);
for (const part of document.querySelectorAll('.scripted')) part.hidden = false;
