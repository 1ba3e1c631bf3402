'use strict';
(() => {
  // The server makes all texts; only times are written here, as the visitor's locale has them.
  const find = id => document.getElementById(id);
  const main = document.querySelector('main');
  const facts = document.querySelectorAll('dd');
  const sections = [...document.querySelectorAll('section')].filter(section => section.querySelector('table'));
  // A stream ends at each reload of the server. Left to itself, a browser takes seconds to open the next one.
  const AFTER_END = 300;
  const AFTER_FAILURE = 1000;
  const AFTER_REFUSAL = 5000;
  const LOST_AFTER = 5000;
  const BACK_SHOWN = 5000;
  let source = null;
  let isPaused = false;
  let isLost = false;
  let lostTimer = 0;
  let openTimer = 0;
  let backTimer = 0;

  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function setTime(element, milliseconds, isDate) {
    const time = new Date(milliseconds);
    element.dateTime = time.toISOString();
    setText(element, isDate ? time.toLocaleDateString() : time.toLocaleTimeString());
  }

  function setCell(cell, value) {
    if (typeof value === 'string') {
      setText(cell, value);
      return;
    }
    let time = cell.querySelector('time');
    if (!time) {
      time = document.createElement('time');
      cell.replaceChildren(time);
    }
    const isDate = 'date' in value;
    if (isDate) time.dataset.date = '';
    setTime(time, isDate ? value.date : value.time, isDate);
  }

  function addRow(section) {
    const row = section.querySelector('tbody').insertRow();
    section.querySelectorAll('thead th').forEach((heading, column) => {
      const cell = document.createElement(column === 0 ? 'th' : 'td');
      if (column === 0) cell.scope = 'row';
      cell.className = heading.className;
      row.append(cell);
    });
    return row;
  }

  function showTable(section, table) {
    const body = section.querySelector('tbody');
    while (body.rows.length > table.rows.length) body.deleteRow(-1);
    table.rows.forEach((values, number) => {
      const row = body.rows[number] || addRow(section);
      row.className = values.bad ? 'bad' : '';
      values.cells.forEach((value, column) => setCell(row.cells[column], value));
    });
    const [empty, scroll, more] = ['.empty', '.scroll', '.more'].map(name => section.querySelector(name));
    empty.hidden = table.rows.length > 0;
    scroll.hidden = table.rows.length === 0;
    more.hidden = table.more === 0;
    setText(more, `and ${table.more} more`);
  }

  function show(view) {
    if (view.version !== main.dataset.version) {
      // Another version of the server may have another page.
      location.reload();
      return;
    }
    setTime(find('time'), view.time, false);
    find('line').setAttribute('points', view.chart.points);
    setText(find('highest'), view.chart.highest);
    view.facts.forEach((fact, number) => setText(facts[number], fact));
    view.tables.forEach((table, number) => showTable(sections[number], table));
  }

  // A screen reader reads the line when it changes, so it changes only with the state of the connection.
  function report(lost) {
    if (lost === isLost) return;
    isLost = lost;
    const state = find('state');
    setText(state, lost ? 'The connection to the server is lost. The page tries again.' : 'The connection is back.');
    clearTimeout(backTimer);
    if (!lost) backTimer = setTimeout(setText, BACK_SHOWN, state, '');
  }

  function expectEvent() {
    clearTimeout(lostTimer);
    lostTimer = setTimeout(report, LOST_AFTER, true);
  }

  function open() {
    if (source || isPaused || document.hidden) return;
    source = new EventSource('?events');
    let wait = AFTER_FAILURE;
    // A further try is no reason to wait longer for the event that is missing.
    if (!lostTimer) expectEvent();
    source.onmessage = event => {
      wait = AFTER_END;
      expectEvent();
      report(false);
      show(JSON.parse(event.data));
    };
    source.onerror = () => {
      if (!source) return;
      if (source.readyState === EventSource.CLOSED) wait = AFTER_REFUSAL;
      source.close();
      source = null;
      openTimer = setTimeout(open, wait);
    };
  }

  function close() {
    clearTimeout(lostTimer);
    clearTimeout(openTimer);
    lostTimer = 0;
    if (source) source.close();
    source = null;
  }

  function update() {
    close();
    open();
  }

  document.querySelectorAll('time').forEach(time => setTime(time, Date.parse(time.dateTime), 'date' in time.dataset));
  const pause = find('pause');
  pause.hidden = false;
  pause.addEventListener('click', () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? 'Resume' : 'Pause';
    update();
  });
  // A page in the background needs no stream.
  document.addEventListener('visibilitychange', update);
  open();
})();
