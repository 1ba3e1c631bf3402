// The model of a weave draft: pure functions, no page needed.
// It also runs outside a browser; downloads/make-drafts.mjs imports it.
//
// A draft is a plain object:
//   threading  the shaft of each end, from left to right    [1, 2, 3, 4]
//   treadling  the treadle of each pick, from top to bottom [1, 2, 3, 4]
//   tieup      for each treadle, the shafts it lifts        [[1, 2], [2, 3], [3, 4], [4, 1]]
//   warp, weft the order of colours, as letters             "AAAABBBB"
// All numbers start at 1. Every sequence repeats to fill the cloth.

export const SHAFTS_MAX = 12;
export const SEQUENCE_MAX = 64;
export const COLOURS = ['A', 'B', 'C', 'D'];

/** The end lies over the pick when the treadle of the pick lifts the shaft of the end. */
export function warpIsUp(draft, end, pick) {
  const shaft = draft.threading[end % draft.threading.length];
  const treadle = draft.treadling[pick % draft.treadling.length];
  return (draft.tieup[treadle - 1] ?? []).includes(shaft);
}

/** One full turn of both sequences, row by row: true where the warp is on top. */
export function drawdown(draft) {
  return draft.treadling.map((_, pick) =>
    draft.threading.map((_, end) => warpIsUp(draft, end, pick)));
}

const column = (rows, end) => rows.map((row) => row[end]);
const columns = (rows) => rows[0].map((_, end) => column(rows, end));
const same = (a, b) => a.every((value, index) => value === b[index]);

function period(lines) {
  for (let step = 1; step < lines.length; step += 1) {
    if (lines.length % step === 0
      && lines.every((line, index) => same(line, lines[(index + step) % lines.length]))) {
      return step;
    }
  }
  return lines.length;
}

/** The smallest block that repeats, as { ends, picks }. */
export function repeatOf(draft) {
  const rows = drawdown(draft);
  return { ends: period(columns(rows)), picks: period(rows) };
}

function longestRun(line) {
  const start = line.findIndex((value, index) => value !== line.at(index - 1));
  if (start < 0) return Infinity;
  let longest = 0;
  let run = 0;
  for (let step = 0; step < line.length; step += 1) {
    const index = (start + step) % line.length;
    run = step > 0 && line[index] === line.at(index - 1) ? run + 1 : 1;
    longest = Math.max(longest, run);
  }
  return longest;
}

/** The longest float of each system, on either face; Infinity if a thread is never bound. */
export function longestFloats(draft) {
  const rows = drawdown(draft);
  return {
    warp: Math.max(...columns(rows).map(longestRun)),
    weft: Math.max(...rows.map(longestRun)),
  };
}

/** The share of the face that shows warp, from 0 to 1. */
export function warpShare(draft) {
  const cells = drawdown(draft).flat();
  return cells.filter(Boolean).length / cells.length;
}

/**
 * Whether the cloth is one piece. Draw an arrow from the upper to the lower thread at every
 * crossing: the cloth hangs together exactly when every thread can be reached from every other.
 */
export function hangsTogether(draft) {
  const rows = drawdown(draft);
  const ends = rows[0].length;
  const total = ends + rows.length;
  const reachesAll = (isArrow) => {
    const seen = new Set([0]);
    const waiting = [0];
    while (waiting.length > 0) {
      const from = waiting.pop();
      for (let to = 0; to < total; to += 1) {
        if (!seen.has(to) && (from < ends) !== (to < ends) && isArrow(from, to)) {
          seen.add(to);
          waiting.push(to);
        }
      }
    }
    return seen.size === total;
  };
  const isAbove = (a, b) => (a < ends ? rows[b - ends][a] : !rows[a - ends][b]);
  return reachesAll(isAbove) && reachesAll((a, b) => isAbove(b, a));
}

/**
 * How many turns of the weft catch the outer end. The shuttle turns after every pick, right and
 * left by turns; a turn holds the outer end when the weft is over it in one pick and under it in
 * the next. Where it does not, the weft slips back into the cloth.
 */
export function edgeTurns(draft) {
  const picks = draft.treadling.length * (draft.treadling.length % 2 === 0 ? 1 : 2);
  const count = (end, first) => {
    let caught = 0;
    for (let pick = first; pick < picks; pick += 2) {
      if (warpIsUp(draft, end, pick) !== warpIsUp(draft, end, pick + 1)) caught += 1;
    }
    return { caught, turns: picks / 2 };
  };
  return { left: count(0, 1), right: count(draft.threading.length - 1, 0) };
}

/** Reads "1 2 3 4" or "1,2,3,4"; gives the numbers, or null if one is out of range. */
export function parseSequence(text, largest) {
  const words = text.split(/[\s,]+/).filter(Boolean);
  if (words.length === 0 || words.length > SEQUENCE_MAX) return null;
  const numbers = words.map(Number);
  return numbers.every((n) => Number.isInteger(n) && n >= 1 && n <= largest) ? numbers : null;
}

/** Reads "AAB B"; gives "AABB", or null if a letter is not a colour. */
export function parseColours(text) {
  const letters = text.toUpperCase().replace(/[\s,]+/g, '');
  return letters.length >= 1 && letters.length <= SEQUENCE_MAX
    && [...letters].every((letter) => COLOURS.includes(letter)) ? letters : null;
}

// Building drafts

export const straight = (n) => Array.from({ length: n }, (_, index) => index + 1);
export const point = (n) => [...straight(n), ...straight(n).reverse().slice(1, -1)];
export const herringbone = (n) => {
  const half = Math.floor(n / 2);
  const falling = straight(n).map((k) => ((half - k + 2 * n) % n) + 1);
  return [...straight(n), ...straight(n), ...falling, ...falling];
};

/** A tie-up whose first treadle lifts `lifted`; each further one lifts them `move` shafts on. */
export function steppedTieup(shafts, lifted, move) {
  return straight(shafts).map((treadle) =>
    lifted.map((shaft) => ((shaft - 1 + move * (treadle - 1)) % shafts) + 1).sort((a, b) => a - b));
}

/** The shafts a twill lifts: [2, 1, 1, 2] is two up, one down, one up, two down. */
export function twillLift(parts) {
  const lifted = [];
  let shaft = 1;
  parts.forEach((count, index) => {
    for (let step = 0; step < count; step += 1, shaft += 1) {
      if (index % 2 === 0) lifted.push(shaft);
    }
  });
  return lifted;
}

export function twill(parts, threading = straight, treadling = straight) {
  const shafts = parts.reduce((sum, count) => sum + count, 0);
  return {
    threading: threading(shafts),
    treadling: treadling(shafts),
    tieup: steppedTieup(shafts, twillLift(parts), 1),
    warp: 'A',
    weft: 'B',
  };
}

export function satin(shafts, move, face = 'warp') {
  const lifted = face === 'warp' ? straight(shafts).slice(1) : [1];
  return {
    threading: straight(shafts),
    treadling: straight(shafts),
    tieup: steppedTieup(shafts, lifted, move),
    warp: 'A',
    weft: 'B',
  };
}

export function basket(up, down) {
  return {
    threading: [...Array(up).fill(1), ...Array(down).fill(2)],
    treadling: [...Array(up).fill(1), ...Array(down).fill(2)],
    tieup: [[1], [2]],
    warp: 'A',
    weft: 'B',
  };
}

const plain = () => ({ threading: [1, 2], treadling: [1, 2], tieup: [[1], [2]], warp: 'A', weft: 'B' });

/** The drafts offered by name in the drawing tool. */
export const PRESETS = [
  { name: 'Plain weave', draft: plain() },
  { name: 'Basket, 2/2', draft: basket(2, 2) },
  { name: 'Twill, 2/2', draft: twill([2, 2]) },
  { name: 'Twill, 3/1 (denim)', draft: twill([3, 1]) },
  { name: 'Twill, 3/1/1/3', draft: twill([3, 1, 1, 3]) },
  { name: 'Herringbone, 2/2', draft: twill([2, 2], herringbone) },
  { name: 'Point twill, 2/2', draft: twill([2, 2], point) },
  { name: 'Diamonds, 3/1/1/3', draft: twill([3, 1, 1, 3], point, point) },
  { name: 'Satin, 5 ends', draft: satin(5, 2) },
  { name: 'Satin, 8 ends', draft: satin(8, 3) },
  { name: 'Sateen, 8 ends', draft: satin(8, 3, 'weft') },
  { name: 'Houndstooth', draft: { ...twill([2, 2]), warp: 'AAAABBBB', weft: 'AAAABBBB' } },
  { name: 'Log cabin', draft: { ...plain(), warp: 'ABABABABBABABABA', weft: 'ABABABABBABABABA' } },
];
