// Writes the collection of drafts:  node make-drafts.mjs > drafts.json
// Everything in it is computed, nothing is collected. Needs Node.js 22 or newer.

import {
  straight, point, herringbone, twill, satin, basket,
  repeatOf, longestFloats, warpShare, hangsTogether, drawdown,
} from '../weave/draft.js';

const SHAFTS_MAX = 8; // for twills; satins go to 12
const THREADINGS = { straight, point, herringbone };
const TREADLINGS = { straight, point };

/** All ways to go once round a circle of `n` in runs of up and down, each circle once. */
function twillParts(n) {
  const found = new Map();
  for (let bits = 1; bits < 2 ** n - 1; bits += 1) {
    const circle = Array.from({ length: n }, (_, index) => (bits >> index) & 1);
    const turns = circle.map((_, by) => [...circle.slice(by), ...circle.slice(0, by)].join(''));
    if (new Set(turns).size < n) continue; // the circle repeats: it belongs to fewer shafts
    const first = turns.sort().at(-1);
    found.set(first, first.match(/1+|0+/g).map((run) => run.length));
  }
  return [...found.values()].sort((a, b) => a.length - b.length || b[0] - a[0]);
}

const greatestDivisor = (a, b) => (b === 0 ? a : greatestDivisor(b, a % b));

function* drafts() {
  for (let up = 1; up <= 4; up += 1) {
    for (let down = 1; down <= up; down += 1) {
      const name = up === 1 && down === 1 ? 'Plain weave' : `Basket ${up}/${down}`;
      yield { name, family: 'plain', draft: basket(up, down) };
    }
  }
  for (let shafts = 3; shafts <= SHAFTS_MAX; shafts += 1) {
    for (const parts of twillParts(shafts)) {
      for (const [threadingName, threading] of Object.entries(THREADINGS)) {
        for (const [treadlingName, treadling] of Object.entries(TREADLINGS)) {
          const how = threadingName === 'straight' && treadlingName === 'straight'
            ? '' : `, ${threadingName} threading, ${treadlingName} treadling`;
          yield {
            name: `Twill ${parts.join('/')}${how}`,
            family: how === '' ? 'twill' : 'pattern twill',
            draft: twill(parts, threading, treadling),
          };
        }
      }
    }
  }
  for (let shafts = 5; shafts <= 12; shafts += 1) {
    for (let move = 2; move < shafts - 1; move += 1) {
      if (greatestDivisor(shafts, move) !== 1) continue;
      for (const face of ['warp', 'weft']) {
        const name = face === 'warp' ? 'Satin' : 'Sateen';
        yield { name: `${name} ${shafts}, move ${move}`, family: 'satin', draft: satin(shafts, move, face) };
      }
    }
  }
}

const lines = [];
for (const { name, family, draft } of drafts()) {
  if (!hangsTogether(draft)) continue;
  const repeat = repeatOf(draft);
  lines.push(JSON.stringify({
    name,
    family,
    shafts: new Set(draft.threading).size,
    threading: draft.threading,
    treadling: draft.treadling,
    tieup: draft.tieup,
    repeat: [repeat.ends, repeat.picks],
    floats: [longestFloats(draft).warp, longestFloats(draft).weft],
    warp_share: Math.round(warpShare(draft) * 1000) / 1000,
    face: drawdown(draft).slice(0, repeat.picks)
      .map((row) => row.slice(0, repeat.ends).map((up) => (up ? 'X' : '.')).join('')),
  }));
}
process.stdout.write(`[\n${lines.join(',\n')}\n]\n`);
