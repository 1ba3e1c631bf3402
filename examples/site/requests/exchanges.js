// The exchanges of the requests page: what each one sends, and what a correct server answers.
//
// `run` is given `send(method, path, fields)` and returns a list of findings, each
// [true or false, what was looked for]. Every exchange it sends is printed on the page,
// with the `fields` of the answer that matter set off from the rest.

const FILE = '/downloads/glossary.txt';
const LARGE = '/downloads/drafts.json';
const NOBODY = '/no/such/thread';

const is = (answer, ...statuses) =>
  [statuses.includes(answer.status), `Status ${statuses.join(' or ')}`];
const has = (answer, name) => [answer.headers.has(name), `The answer has ${name}`];
const empty = (answer) => [answer.bytes.length === 0, 'The body is empty'];
const lists = (answer, name, word) => [
  (answer.headers.get(name) ?? '').toLowerCase().split(/\s*,\s*/).some((item) => item === word || item === '*'),
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
      return [is(second, 304), empty(second), [second.headers.get('ETag') === tag, 'The answer repeats the ETag']];
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
      const answer = await send('GET', FILE, { 'If-Match': '"frayed"' });
      return [is(answer, 412)];
    },
  },

  // Only a part

  'range': {
    fields: ['Content-Range', 'Content-Length'],
    run: async (send) => {
      const answer = await send('GET', FILE, { Range: 'bytes=0-99' });
      const range = answer.headers.get('Content-Range') ?? '';
      return [is(answer, 206), [/^bytes 0-99\/\d+$/.test(range), 'Content-Range says bytes 0-99'],
        [answer.bytes.length === 100, 'The body has 100 bytes']];
    },
  },
  'suffix': {
    fields: ['Content-Range', 'Content-Length'],
    run: async (send) => {
      const answer = await send('GET', FILE, { Range: 'bytes=-64' });
      const [, from, to, total] = (answer.headers.get('Content-Range') ?? '').match(/^bytes (\d+)-(\d+)\/(\d+)$/) ?? [];
      return [is(answer, 206), [total > 0 && to - from === 63 && total - to === 1, 'Content-Range reaches to the last byte'],
        [answer.bytes.length === 64, 'The body has 64 bytes']];
    },
  },
  'if-range': {
    fields: ['ETag'],
    run: async (send) => {
      const answer = await send('GET', FILE, { Range: 'bytes=0-99', 'If-Range': '"yesterday"' });
      return [is(answer, 200), [!answer.headers.has('Content-Range'), 'The whole file comes, not the part']];
    },
  },
  'beyond': {
    fields: ['Content-Range'],
    run: async (send) => {
      const answer = await send('GET', FILE, { Range: 'bytes=99999999-' });
      const range = answer.headers.get('Content-Range') ?? '';
      return [is(answer, 416), [/^bytes \*\/\d+$/.test(range), 'Content-Range tells the real size']];
    },
  },

  // Compression

  'compressed': {
    fields: ['Content-Encoding', 'Content-Length', 'Vary'],
    run: async (send) => {
      const answer = await send('GET', LARGE);
      const coding = answer.headers.get('Content-Encoding') ?? '';
      return [is(answer, 200), [/^(br|gzip|zstd)$/.test(coding), 'Content-Encoding is br, zstd, or gzip'],
        lists(answer, 'Vary', 'accept-encoding')];
    },
  },
  'two-tags': {
    fields: ['Content-Encoding', 'ETag'],
    run: async (send) => {
      const packed = await send('HEAD', LARGE);
      const part = await send('GET', LARGE, { Range: 'bytes=0-0' });
      const [packedTag, plainTag] = [packed, part].map((answer) => answer.headers.get('ETag'));
      if (!packedTag || !plainTag) return [has(packed, 'ETag'), has(part, 'ETag')];
      return [[packed.headers.has('Content-Encoding') && !part.headers.has('Content-Encoding'),
        'The first answer is compressed, the second is not'],
      [packedTag !== plainTag, 'The two have different tags']];
    },
  },

  // Methods and addresses

  'head': {
    fields: ['Content-Length'],
    run: async (send) => {
      const get = await send('GET', FILE);
      const head = await send('HEAD', FILE);
      const length = (answer) => answer.headers.get('Content-Length');
      return [is(head, 200), empty(head),
        [length(head) === length(get) && length(head) !== null, 'Content-Length is the same as for GET']];
    },
  },
  'slash': {
    fields: [],
    run: async (send) => {
      const answer = await send('GET', '/weave');
      return [is(answer, 200), [answer.isRedirected && new URL(answer.url).pathname === '/weave/',
        'The browser was led to /weave/']];
    },
  },
  'well-known': {
    fields: ['Content-Type'],
    run: async (send) => {
      const answer = await send('GET', '/.well-known/security.txt');
      const type = answer.headers.get('Content-Type') ?? '';
      return [is(answer, 200), [type.startsWith('text/plain'), 'The type is text/plain']];
    },
  },

  // Refusals

  'nobody': {
    fields: [],
    run: async (send) => {
      const answer = await send('GET', NOBODY);
      return [is(answer, 404)];
    },
  },
  'hidden': {
    fields: [],
    run: async (send) => {
      const answer = await send('GET', '/.refresh');
      return [is(answer, 404)];
    },
  },
  'climb': {
    fields: [],
    run: async (send) => {
      const answer = await send('GET', '/weave/..%2f..%2f..%2fetc/passwd');
      return [is(answer, 400, 404)];
    },
  },
  'delete': {
    fields: ['Allow'],
    run: async (send) => {
      const answer = await send('DELETE', '/robots.txt');
      return [is(answer, 405), lists(answer, 'Allow', 'get')];
    },
  },
  'long-line': {
    fields: [],
    run: async (send) => {
      const answer = await send('GET', `/${'w'.repeat(9000)}`);
      return [is(answer, 414)];
    },
  },
  'large-head': {
    fields: [],
    run: async (send) => {
      const answer = await send('GET', FILE, { 'X-Yarn': 'w'.repeat(20_000) });
      return [is(answer, 431)];
    },
  },
};

/** The files whose compression the page compares. */
export const PACKED = ['/downloads/drafts.json', '/style.css', '/weave/page.js'];

/** The files the visitor can ask for by hand. */
export const OFFERED = [
  '/downloads/glossary.txt', '/downloads/yarns.csv', '/downloads/drafts.json', '/downloads/diamonds.svg',
  '/downloads/cloth.webp', '/downloads/SHA256SUMS', '/style.css', '/favicon.svg', '/robots.txt',
  '/.well-known/security.txt', '/', '/weave', '/no/such/thread',
];
