// Home page: shows how the page and its files reached the browser, from the browser's own records.

const KB = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const size = (bytes) => (bytes < 1000 ? `${bytes} B` : `${KB.format(bytes / 1000)} kB`);
const PROTOCOLS = { 'http/1.0': 'HTTP/1.0', 'http/1.1': 'HTTP/1.1', h2: 'HTTP/2', h3: 'HTTP/3' };

function row(entry) {
  const isCached = entry.transferSize === 0;
  const cells = [
    new URL(entry.name).pathname,
    PROTOCOLS[entry.nextHopProtocol] ?? 'HTTP',
    isCached ? 'from cache' : size(entry.encodedBodySize),
    size(entry.decodedBodySize),
  ];
  const line = document.createElement('tr');
  cells.forEach((text, index) => {
    const cell = document.createElement(index === 0 ? 'th' : 'td');
    if (index === 0) cell.scope = 'row';
    if (index > 1) cell.className = 'number';
    cell.textContent = text;
    line.append(cell);
  });
  return line;
}

function show() {
  const entries = [
    ...performance.getEntriesByType('navigation'),
    ...performance.getEntriesByType('resource'),
  ].filter((entry) => entry.name.startsWith(location.origin) && entry.decodedBodySize > 0);
  if (entries.length === 0) return;
  const sum = (part) => entries.reduce((total, entry) => total + entry[part], 0);
  const page = entries[0];
  const took = Math.max(1, Math.round(page.responseEnd - page.requestStart));
  document.getElementById('arrival-summary').textContent =
    `${entries.length} files, ${size(sum('encodedBodySize'))} packed and ${size(sum('decodedBodySize'))} unpacked. `
    + `The page itself took ${took} ms from the request to its last byte.`;
  document.getElementById('arrival-rows').replaceChildren(...entries.map(row));
  document.getElementById('arrival').hidden = false;
}

if (document.readyState === 'complete') setTimeout(show);
else addEventListener('load', () => setTimeout(show));
