// The weave page: joins the form, the drawing, the address of the page, and the collection.

import {
  COLOURS, PRESETS, SEQUENCE_MAX, SHAFTS_MAX,
  edgeTurns, hangsTogether, longestFloats, parseColours, parseSequence, repeatOf, warpShare,
} from './draft.js';
import { drawCloth, drawDraft, fieldAt } from './cloth.js';

const $ = (id) => document.getElementById(id);
const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

let draft = structuredClone(PRESETS[2].draft);
const shafts = () => Number($('shafts').value);
const treadles = () => Number($('treadles').value);
const view = () => document.querySelector('input[name="view"]:checked').value;

// Drawing

function draw() {
  const canvas = $('canvas');
  const width = canvas.parentElement.clientWidth;
  if (width === 0) return;
  const palette = COLOURS.map((letter) => $(`colour-${letter}`).value);
  const isCloth = view() === 'cloth';
  canvas.classList.toggle('draft', !isCloth);
  if (isCloth) {
    drawCloth(canvas, draft, { palette, hasEdge: $('edge').checked, width });
  } else {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    drawDraft(canvas, draft, {
      palette, width,
      ink: colour('--quiet'), paper: colour('--sheet'), line: colour('--line'), accent: colour('--ink'),
    });
  }
  canvas.setAttribute('aria-label', isCloth ? 'The cloth' : 'The draft');
  tellFacts();
}

function edgeSentence() {
  if ($('edge').checked) return 'every turn is caught by the selvedge';
  const { left, right } = edgeTurns(draft);
  const side = ({ caught, turns }) => `${caught} of ${turns}`;
  return `${side(left)} turns caught at the left, ${side(right)} at the right`;
}

function tellFacts() {
  const repeat = repeatOf(draft);
  const floats = longestFloats(draft);
  const float = (count) => (Number.isFinite(count) ? String(count) : 'endless');
  const share = Math.round(warpShare(draft) * 100);
  const facts = [
    ['Repeat', `${repeat.ends} ends by ${repeat.picks} picks`],
    ['Longest float', `warp ${float(floats.warp)}, weft ${float(floats.weft)}`],
    ['On top', `${share} % warp, ${100 - share} % weft`],
    ['Holds together', hangsTogether(draft) ? 'yes' : 'no: some threads lie loose on the others'],
    ['Edge', edgeSentence()],
  ];
  $('facts').replaceChildren(...facts.flatMap(([name, value]) =>
    [element('dt', { textContent: name }), element('dd', { textContent: value })]));
}

// The form

const numbers = (count, first = 2) => Array.from({ length: count - first + 1 }, (_, index) =>
  element('option', { value: index + first, textContent: index + first }));

function buildTieup() {
  const head = element('tr', {}, element('th', { scope: 'col', textContent: 'Shaft' }));
  for (let treadle = 1; treadle <= treadles(); treadle += 1) {
    head.append(element('th', { scope: 'col', textContent: treadle, ariaLabel: `Treadle ${treadle}` }));
  }
  const rows = [];
  for (let shaft = shafts(); shaft >= 1; shaft -= 1) {
    const row = element('tr', {}, element('th', { scope: 'row', textContent: shaft }));
    for (let treadle = 1; treadle <= treadles(); treadle += 1) {
      const box = element('input', {
        type: 'checkbox',
        checked: draft.tieup[treadle - 1].includes(shaft),
        ariaLabel: `Treadle ${treadle} lifts shaft ${shaft}`,
      });
      box.addEventListener('change', () => { toggleTie(treadle, shaft); changed(); });
      row.append(element('td', {}, box));
    }
    rows.push(row);
  }
  $('tieup').replaceChildren(element('thead', {}, head), element('tbody', {}, ...rows));
}

function fillForm() {
  const shaftCount = Math.max(2, ...draft.threading, ...draft.tieup.flat());
  $('shafts').value = shaftCount;
  $('treadles').value = draft.tieup.length;
  $('threading').value = draft.threading.join(' ');
  $('treadling').value = draft.treadling.join(' ');
  $('warp').value = draft.warp;
  $('weft').value = draft.weft;
  for (const id of ['threading', 'treadling', 'warp', 'weft']) complain(id, '');
  buildTieup();
}

function complain(id, text) {
  $(id).setAttribute('aria-invalid', String(text !== ''));
  $(`${id}-wrong`).textContent = text;
}

function readSequence(id, largest) {
  const sequence = parseSequence($(id).value, largest);
  complain(id, sequence ? '' : `Write 1 to ${SEQUENCE_MAX} numbers from 1 to ${largest}, with spaces between them.`);
  if (sequence) draft[id] = sequence;
  return sequence !== null;
}

function readColours(id) {
  const letters = parseColours($(id).value);
  complain(id, letters ? '' : `Write 1 to ${SEQUENCE_MAX} letters from A to D.`);
  if (letters) draft[id] = letters;
  return letters !== null;
}

function toggleTie(treadle, shaft) {
  const lifted = draft.tieup[treadle - 1];
  draft.tieup[treadle - 1] = lifted.includes(shaft)
    ? lifted.filter((other) => other !== shaft)
    : [...lifted, shaft].sort((a, b) => a - b);
}

/** After a change of the number of shafts or treadles: everything must fit the loom again. */
function fitLoom() {
  const fit = (sequence, count) => sequence.map((n) => ((n - 1) % count) + 1);
  draft.threading = fit(draft.threading, shafts());
  draft.treadling = fit(draft.treadling, treadles());
  draft.tieup = Array.from({ length: treadles() }, (_, index) =>
    (draft.tieup[index] ?? [(index % shafts()) + 1]).filter((shaft) => shaft <= shafts()));
  const count = shafts();
  fillForm();
  $('shafts').value = count;
  buildTieup();
}

/** A change by hand: the draft is no longer the chosen one. */
function changed() {
  $('preset').value = '';
  remember();
  draw();
}

function take(next, presetName = '') {
  draft = structuredClone(next);
  $('preset').value = presetName;
  fillForm();
  remember();
  draw();
}

// The address keeps the draft

function remember() {
  const words = new URLSearchParams({
    threading: draft.threading.join('-'),
    treadling: draft.treadling.join('-'),
    tieup: draft.tieup.map((lifted) => lifted.join('-')).join('.'),
    warp: draft.warp,
    weft: draft.weft,
  });
  history.replaceState(null, '', `#${words}`);
}

/** Reads the address; gives a draft, or null if the address holds none that is sound. */
function recall() {
  const words = new URLSearchParams(location.hash.slice(1));
  if (!words.has('threading')) return null;
  const list = (text) => parseSequence((text ?? '').replaceAll('-', ' '), SHAFTS_MAX);
  const ties = (words.get('tieup') ?? '').split('.').slice(0, SHAFTS_MAX);
  const found = {
    threading: list(words.get('threading')),
    treadling: list(words.get('treadling')),
    tieup: ties.map((text) => (text === '' ? [] : list(text))),
    warp: parseColours(words.get('warp') ?? ''),
    weft: parseColours(words.get('weft') ?? ''),
  };
  const isSound = found.threading && found.treadling && found.warp && found.weft
    && found.tieup.length >= 2 && found.tieup.every(Boolean)
    && Math.max(...found.treadling) <= found.tieup.length;
  return isSound ? found : null;
}

// Clicks in the diagram

function clickDiagram(event) {
  if (view() !== 'draft') return;
  const box = event.target.getBoundingClientRect();
  const hit = fieldAt(draft, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
  if (!hit) return;
  if (hit.field === 'threading') draft.threading[hit.end] = hit.shaft;
  if (hit.field === 'treadling') draft.treadling[hit.pick] = hit.treadle;
  if (hit.field === 'tieup') toggleTie(hit.treadle, hit.shaft);
  const count = shafts();
  fillForm();
  if (count > shafts()) { $('shafts').value = count; buildTieup(); }
  changed();
}

// Saving

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  element('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// The collection

async function loadCollection() {
  const button = $('load-collection');
  const state = $('collection-state');
  button.disabled = true;
  state.textContent = 'Loading.';
  try {
    const response = await fetch('/downloads/drafts.json');
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    showCollection(await response.json());
    button.hidden = true;
  } catch (error) {
    state.textContent = `The collection could not be loaded: ${error.message}.`;
    button.disabled = false;
  }
}

function showCollection(collection) {
  const options = (values) => [...new Set(values)].map((value) =>
    element('option', { value, textContent: value }));
  $('by-family').append(...options(collection.map((entry) => entry.family)));
  $('by-shafts').append(...options(collection.map((entry) => entry.shafts).sort((a, b) => a - b)));
  const filter = () => {
    const family = $('by-family').value;
    const count = $('by-shafts').value;
    const float = $('by-float').value;
    const found = collection.filter((entry) => (family === '' || entry.family === family)
      && (count === '' || entry.shafts === Number(count))
      && (float === '' || Math.max(...entry.floats) <= Number(float)));
    $('collection-state').textContent = `${found.length} of ${collection.length} drafts.`;
    $('found').replaceChildren(...found.map(foundRow));
  };
  for (const id of ['by-family', 'by-shafts', 'by-float']) $(id).addEventListener('change', filter);
  $('collection-tools').hidden = false;
  filter();
}

function foundRow(entry) {
  const button = element('button', { type: 'button', textContent: 'Draw', ariaLabel: `Draw ${entry.name}` });
  button.addEventListener('click', () => {
    const { threading, treadling, tieup } = entry;
    take({ threading, treadling, tieup, warp: 'A', weft: 'B' });
    $('draw').scrollIntoView();
    $('threading').focus({ preventScroll: true });
  });
  const number = (text) => element('td', { className: 'number', textContent: text });
  return element('tr', {},
    element('td', { textContent: entry.name }),
    number(entry.repeat.join(' × ')),
    number(Math.max(...entry.floats)),
    element('td', { className: 'number' }, button));
}

// Beginning

function begin() {
  $('preset').append(
    element('option', { value: '', textContent: 'My own' }),
    ...PRESETS.map(({ name }) => element('option', { value: name, textContent: name })));
  $('shafts').append(...numbers(SHAFTS_MAX));
  $('treadles').append(...numbers(SHAFTS_MAX));
  $('loom').hidden = false;

  $('preset').addEventListener('change', () => {
    const preset = PRESETS.find(({ name }) => name === $('preset').value);
    if (preset) take(preset.draft, preset.name);
  });
  for (const id of ['shafts', 'treadles']) {
    $(id).addEventListener('change', () => { fitLoom(); changed(); });
  }
  $('threading').addEventListener('input', () => { if (readSequence('threading', shafts())) changed(); });
  $('treadling').addEventListener('input', () => { if (readSequence('treadling', treadles())) changed(); });
  for (const id of ['warp', 'weft']) {
    $(id).addEventListener('input', () => { if (readColours(id)) changed(); });
  }
  for (const letter of COLOURS) $(`colour-${letter}`).addEventListener('input', draw);
  for (const input of document.querySelectorAll('input[name="view"], #edge')) {
    input.addEventListener('change', draw);
  }
  $('settings').addEventListener('submit', (event) => event.preventDefault());
  $('canvas').addEventListener('click', clickDiagram);
  $('save-picture').addEventListener('click', () =>
    $('canvas').toBlob((blob) => save(blob, 'weave.png'), 'image/png'));
  $('save-draft').addEventListener('click', () =>
    save(new Blob([`${JSON.stringify(draft, null, 2)}\n`], { type: 'application/json' }), 'draft.json'));
  $('load-collection').addEventListener('click', loadCollection);
  for (const button of document.querySelectorAll('button[data-preset]')) {
    button.hidden = false;
    button.addEventListener('click', () => {
      const preset = PRESETS.find(({ name }) => name === button.dataset.preset);
      take(preset.draft, preset.name);
      $('draw').scrollIntoView();
      $('preset').focus({ preventScroll: true });
    });
  }

  const recalled = recall();
  if (recalled) draft = recalled;
  $('preset').value = recalled ? '' : PRESETS[2].name;
  fillForm();
  draw();
  addEventListener('hashchange', () => { const next = recall(); if (next) take(next); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  let lastWidth = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== lastWidth) draw();
    lastWidth = contentRect.width;
  }).observe($('canvas').parentElement);
}

begin();
