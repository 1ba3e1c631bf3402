// The exchanges of the requests page: the requests of each, and the expected responses.
//
// `run` gets `send(method, path, fields)` and returns a list of findings, each
// [true or false, the expectation]. The page prints every exchange and highlights the response's
// `fields` with these names.

const FILE = '/downloads/glossary.txt';
const LARGE = '/downloads/drafts.json';
const MISSING = '/no/such/thread';

const is = (response, ...statuses) =>
  [statuses.includes(response.status), `Status ${statuses.join(' or ')}`];
const has = (response, name) => [response.headers.has(name), `The response has ${name}`];
const empty = (response) => [response.bytes.length === 0, 'The body is empty'];
const lists = (response, name, word) => [
  (response.headers.get(name) ?? '').toLowerCase().split(/\s*,\s*/).some((item) => item === word || item === '*'),
  `${name} names ${word}`,
];

export const EXCHANGES = {
  // Is my copy still good?

  'etag': {
    fields: ['ETag'],
    run: async (send) => {
      const first = await send('GET', FILE);
      const tag = first.headers.get('ETag');
      if (!tag) return [is(first, 200), has(first, 'ETag')];
      const second = await send('GET', FILE, { 'If-None-Match': tag });
      return [is(second, 304), empty(second), [second.headers.get('ETag') === tag, 'The response repeats the ETag']];
    },
  },
  'modified-since': {
    fields: ['Last-Modified'],
    run: async (send) => {
      const first = await send('HEAD', FILE);
      const date = first.headers.get('Last-Modified');
      if (!date) return [is(first, 200), has(first, 'Last-Modified')];
      const second = await send('GET', FILE, { 'If-Modified-Since': date });
      return [is(second, 304), empty(second)];
    },
  },
  'if-match': {
    fields: [],
    run: async (send) => {
      const response = await send('GET', FILE, { 'If-Match': '"frayed"' });
      return [is(response, 412)];
    },
  },

  // Only a part

  'range': {
    fields: ['Content-Range', 'Content-Length'],
    run: async (send) => {
      const response = await send('GET', FILE, { Range: 'bytes=0-99' });
      const range = response.headers.get('Content-Range') ?? '';
      return [is(response, 206), [/^bytes 0-99\/\d+$/.test(range), 'Content-Range is bytes 0-99'],
        [response.bytes.length === 100, 'The body has 100 bytes']];
    },
  },
  'suffix': {
    fields: ['Content-Range', 'Content-Length'],
    run: async (send) => {
      const response = await send('GET', FILE, { Range: 'bytes=-64' });
      const [, from, to, total] = (response.headers.get('Content-Range') ?? '').match(/^bytes (\d+)-(\d+)\/(\d+)$/) ?? [];
      return [is(response, 206), [total > 0 && to - from === 63 && total - to === 1, 'Content-Range reaches to the last byte'],
        [response.bytes.length === 64, 'The body has 64 bytes']];
    },
  },
  'if-range': {
    fields: ['ETag'],
    run: async (send) => {
      const response = await send('GET', FILE, { Range: 'bytes=0-99', 'If-Range': '"yesterday"' });
      return [is(response, 200), [!response.headers.has('Content-Range'), 'The whole file is sent, not the part']];
    },
  },
  'beyond': {
    fields: ['Content-Range'],
    run: async (send) => {
      const response = await send('GET', FILE, { Range: 'bytes=99999999-' });
      const range = response.headers.get('Content-Range') ?? '';
      return [is(response, 416), [/^bytes \*\/\d+$/.test(range), 'Content-Range has the real size']];
    },
  },

  // Compression

  'compressed': {
    fields: ['Content-Encoding', 'Content-Length', 'Vary'],
    run: async (send) => {
      const response = await send('GET', LARGE);
      const coding = response.headers.get('Content-Encoding') ?? '';
      return [is(response, 200), [/^(br|gzip|zstd)$/.test(coding), 'Content-Encoding is br, zstd, or gzip'],
        lists(response, 'Vary', 'accept-encoding')];
    },
  },
  'two-tags': {
    fields: ['Content-Encoding', 'ETag'],
    run: async (send) => {
      const packed = await send('HEAD', LARGE);
      const part = await send('GET', LARGE, { Range: 'bytes=0-0' });
      const [packedTag, plainTag] = [packed, part].map((response) => response.headers.get('ETag'));
      if (!packedTag || !plainTag) return [has(packed, 'ETag'), has(part, 'ETag')];
      return [[packed.headers.has('Content-Encoding') && !part.headers.has('Content-Encoding'),
        'The first response is compressed, the second is not'],
      [packedTag !== plainTag, 'The two have different tags']];
    },
  },

  // Methods and addresses

  'head': {
    fields: ['Content-Length'],
    run: async (send) => {
      const get = await send('GET', FILE);
      const head = await send('HEAD', FILE);
      const length = (response) => response.headers.get('Content-Length');
      return [is(head, 200), empty(head),
        [length(head) === length(get) && length(head) !== null, 'Content-Length is equal to that of GET']];
    },
  },
  'slash': {
    fields: [],
    run: async (send) => {
      const response = await send('GET', '/weave');
      return [is(response, 200), [response.isRedirected && new URL(response.url).pathname === '/weave/',
        'The browser was redirected to /weave/']];
    },
  },
  'well-known': {
    fields: ['Content-Type'],
    run: async (send) => {
      const response = await send('GET', '/.well-known/security.txt');
      const type = response.headers.get('Content-Type') ?? '';
      return [is(response, 200), [type.startsWith('text/plain'), 'The type is text/plain']];
    },
  },

  // Refusals

  'missing': {
    fields: [],
    run: async (send) => {
      const response = await send('GET', MISSING);
      return [is(response, 404)];
    },
  },
  'hidden': {
    fields: [],
    run: async (send) => {
      const response = await send('GET', '/.refresh');
      return [is(response, 404)];
    },
  },
  'climb': {
    fields: [],
    run: async (send) => {
      const response = await send('GET', '/weave/..%2f..%2f..%2fetc/passwd');
      return [is(response, 400, 404)];
    },
  },
  'delete': {
    fields: ['Allow'],
    run: async (send) => {
      const response = await send('DELETE', '/robots.txt');
      return [is(response, 405), lists(response, 'Allow', 'get')];
    },
  },
  'long-line': {
    fields: [],
    run: async (send) => {
      const response = await send('GET', `/${'w'.repeat(9000)}`);
      return [is(response, 414)];
    },
  },
  'large-head': {
    fields: [],
    run: async (send) => {
      const response = await send('GET', FILE, { 'X-Yarn': 'w'.repeat(20_000) });
      return [is(response, 431)];
    },
  },
};

/** The files whose compression the page compares. */
export const PACKED = ['/downloads/drafts.json', '/style.css', '/weave/page.js'];

/** The suggested files for the visitor's own request. */
export const OFFERED = [
  '/downloads/glossary.txt', '/downloads/yarns.csv', '/downloads/drafts.json', '/downloads/diamonds.svg',
  '/downloads/cloth.webp', '/downloads/SHA256SUMS', '/style.css', '/favicon.svg', '/robots.txt',
  '/.well-known/security.txt', '/', '/weave', '/no/such/thread',
];
