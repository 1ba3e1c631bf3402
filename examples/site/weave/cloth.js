// Draws a draft on a canvas, as a weaver's diagram or as cloth. Knows nothing of the page.

import { SHAFTS_MAX, warpIsUp } from './draft.js';

const ENDS_SHOWN = 32;
const EDGE_ENDS = 4; // a plain-woven selvedge: cotton, cotton, red, cotton, from the outside in
const EDGE_COLOURS = ['#f2efe4', '#f2efe4', '#c4242f', '#f2efe4'];

/** Returns the number of threads in whole repeats, as close as possible to ENDS_SHOWN. */
const shown = (length) => length * Math.max(1, Math.round(ENDS_SHOWN / length));

/** Every thread and crossing to draw, edges included. */
function lay(draft, palette, hasEdge) {
  const inner = shown(draft.threading.length);
  const picks = shown(draft.treadling.length);
  const edge = hasEdge ? EDGE_ENDS : 0;
  const ends = inner + 2 * edge;
  const colour = (order, index) => palette['ABCD'.indexOf(order[index % order.length])];
  const fromOutside = (end) => Math.min(end, ends - 1 - end);
  const isEdge = (end) => fromOutside(end) < edge;
  return {
    ends,
    picks,
    endColour: (end) => (isEdge(end) ? EDGE_COLOURS[fromOutside(end)] : colour(draft.warp, end - edge)),
    pickColour: (pick) => colour(draft.weft, pick),
    isUp: (end, pick) => (isEdge(end) ? (end + pick) % 2 === 0 : warpIsUp(draft, end - edge, pick)),
  };
}

/** Sets the bitmap for the screen's density and returns a context that draws in CSS pixels. */
function prepare(canvas, width, height) {
  const density = Math.min(globalThis.devicePixelRatio || 1, 3);
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.aspectRatio = `${width} / ${height}`;
  const context = canvas.getContext('2d');
  context.setTransform(density, 0, 0, density, 0, 0);
  return context;
}

// The cloth

function mix(hex, other, share) {
  const parts = (value) => [1, 3, 5].map((at) => parseInt(value.slice(at, at + 2), 16));
  const [a, b] = [parts(hex), parts(other)];
  return `rgb(${a.map((value, index) => Math.round(value + (b[index] - value) * share)).join(' ')})`;
}

/** A yarn seen from above: dark at its flanks, light along its back. */
function yarn(context, colour, from, to, isUpright) {
  const gradient = isUpright
    ? context.createLinearGradient(from, 0, to, 0)
    : context.createLinearGradient(0, from, 0, to);
  gradient.addColorStop(0, mix(colour, '#0a0f20', 0.5));
  gradient.addColorStop(0.3, colour);
  gradient.addColorStop(0.5, mix(colour, '#ffffff', 0.16));
  gradient.addColorStop(0.75, colour);
  gradient.addColorStop(1, mix(colour, '#0a0f20', 0.55));
  return gradient;
}

/** Calls `draw(from, to)` for each run of indices in which `holds` is true. */
function eachRun(count, holds, draw) {
  for (let from = 0; from < count; from += 1) {
    if (!holds(from)) continue;
    let to = from;
    while (to + 1 < count && holds(to + 1)) to += 1;
    draw(from, to + 1);
    from = to;
  }
}

function drawTurns(context, laid, cell, left, right) {
  context.lineCap = 'butt';
  for (let pick = 0; pick + 1 < laid.picks; pick += 1) {
    const middle = (pick + 1) * cell;
    const isRight = pick % 2 === 0;
    const x = isRight ? right : left;
    for (const [width, shade] of [[0.86, 0.5], [0.6, 0], [0.18, -0.16]]) {
      const colour = laid.pickColour(pick);
      context.strokeStyle = shade < 0 ? mix(colour, '#ffffff', -shade) : mix(colour, '#0a0f20', shade);
      context.lineWidth = cell * width;
      context.beginPath();
      context.arc(x, middle, cell / 2, -Math.PI / 2, Math.PI / 2, !isRight);
      context.stroke();
    }
  }
}

/** Draws the cloth, the weft turning at both edges, `width` CSS pixels wide. */
export function drawCloth(canvas, draft, { palette, hasEdge, width }) {
  const laid = lay(draft, palette, hasEdge);
  const cell = width / (laid.ends + 2.4);
  const left = cell * 1.2;
  const right = left + laid.ends * cell;
  const context = prepare(canvas, width, laid.picks * cell);
  drawTurns(context, laid, cell, left, right);
  context.fillStyle = '#0c1226';
  context.fillRect(left, 0, right - left, laid.picks * cell);

  const half = cell * 0.46;
  const dip = cell * 0.08; // how far a float reaches into the next crossing
  const radius = cell * 0.3;
  for (let pick = 0; pick < laid.picks; pick += 1) {
    const y = (pick + 0.5) * cell;
    context.fillStyle = yarn(context, laid.pickColour(pick), y - half, y + half, false);
    eachRun(laid.ends, (end) => !laid.isUp(end, pick), (from, to) => {
      const start = from === 0 ? left : left + from * cell - dip;
      const stop = to === laid.ends ? right : left + to * cell + dip;
      context.beginPath();
      context.roundRect(start, y - half, stop - start, 2 * half, [
        from === 0 ? 0 : radius, to === laid.ends ? 0 : radius,
        to === laid.ends ? 0 : radius, from === 0 ? 0 : radius,
      ]);
      context.fill();
    });
  }
  for (let end = 0; end < laid.ends; end += 1) {
    const x = left + (end + 0.5) * cell;
    context.fillStyle = yarn(context, laid.endColour(end), x - half, x + half, true);
    eachRun(laid.picks, (pick) => laid.isUp(end, pick), (from, to) => {
      context.beginPath();
      context.roundRect(x - half, from * cell - dip, 2 * half, (to - from) * cell + 2 * dip, radius);
      context.fill();
    });
  }
}

// The diagram

/** Where the four fields of the diagram stand, in cells. */
function fields(draft) {
  const shafts = Math.min(SHAFTS_MAX, Math.max(...draft.threading, ...draft.tieup.flat()));
  const treadles = draft.tieup.length;
  const ends = shown(draft.threading.length);
  const picks = shown(draft.treadling.length);
  return {
    shafts, treadles, ends, picks,
    columns: ends + 1 + treadles,
    rows: shafts + 1 + picks,
  };
}

/** Draws the four fields: threading above, tie-up in the corner, treadling beside, drawdown below. */
export function drawDraft(canvas, draft, { palette, ink, paper, line, accent, width }) {
  const field = fields(draft);
  const cell = (width - 1) / field.columns;
  const context = prepare(canvas, width, field.rows * cell + 1);
  context.translate(0.5, 0.5);
  const square = (column, row, colour) => {
    context.fillStyle = colour;
    context.fillRect(column * cell, row * cell, cell, cell);
  };
  const grid = (column, row, columns, rows) => {
    context.strokeStyle = line;
    context.lineWidth = 1;
    context.beginPath();
    for (let c = 0; c <= columns; c += 1) {
      context.moveTo((column + c) * cell, row * cell);
      context.lineTo((column + c) * cell, (row + rows) * cell);
    }
    for (let r = 0; r <= rows; r += 1) {
      context.moveTo(column * cell, (row + r) * cell);
      context.lineTo((column + columns) * cell, (row + r) * cell);
    }
    context.stroke();
  };
  const { shafts, treadles, ends, picks } = field;
  const top = shafts + 1;
  const beside = ends + 1;
  context.fillStyle = paper;
  for (const [column, row, columns, rows] of [
    [0, 0, ends, shafts], [beside, 0, treadles, shafts], [beside, top, treadles, picks],
  ]) context.fillRect(column * cell, row * cell, columns * cell, rows * cell);

  for (let end = 0; end < ends; end += 1) {
    const isFirst = end < draft.threading.length;
    square(end, shafts - draft.threading[end % draft.threading.length], isFirst ? accent : ink);
  }
  for (let pick = 0; pick < picks; pick += 1) {
    const isFirst = pick < draft.treadling.length;
    const treadle = draft.treadling[pick % draft.treadling.length];
    square(beside + treadle - 1, top + pick, isFirst ? accent : ink);
  }
  draft.tieup.forEach((lifted, treadle) => {
    for (const shaft of lifted) square(beside + treadle, shafts - shaft, ink);
  });
  const colour = (order, index) => palette['ABCD'.indexOf(order[index % order.length])];
  for (let pick = 0; pick < picks; pick += 1) {
    for (let end = 0; end < ends; end += 1) {
      const isUp = warpIsUp(draft, end, pick);
      square(end, top + pick, isUp ? colour(draft.warp, end) : colour(draft.weft, pick));
    }
  }
  grid(0, 0, ends, shafts);
  grid(beside, 0, treadles, shafts);
  grid(beside, top, treadles, picks);
  grid(0, top, ends, picks);
}

/**
 * What lies under a point of the diagram (each coordinate from 0 to 1), as
 * { field: 'threading', end, shaft }, { field: 'tieup', treadle, shaft },
 * { field: 'treadling', pick, treadle }, or null.
 */
export function fieldAt(draft, x, y) {
  const { shafts, treadles, ends, picks, columns, rows } = fields(draft);
  const column = Math.floor(x * columns);
  const row = Math.floor(y * rows);
  const isAbove = row < shafts;
  const isBelow = row > shafts && row <= shafts + picks;
  const treadle = column - ends;
  if (isAbove && column < ends) {
    return { field: 'threading', end: column % draft.threading.length, shaft: shafts - row };
  }
  if (isAbove && treadle >= 1 && treadle <= treadles) {
    return { field: 'tieup', treadle, shaft: shafts - row };
  }
  if (isBelow && treadle >= 1 && treadle <= treadles) {
    return { field: 'treadling', pick: (row - shafts - 1) % draft.treadling.length, treadle };
  }
  return null;
}
