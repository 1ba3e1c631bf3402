// Downloads page: checks each file against SHA256SUMS, in the browser.

const element = (name, properties = {}) => Object.assign(document.createElement(name), properties);

async function load(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`the server answered ${response.status}`);
  return response;
}

/** The sums by file name. */
async function readSums() {
  const text = await (await load('/downloads/SHA256SUMS')).text();
  return new Map(text.split('\n').map((line) => line.match(/^([0-9a-f]{64}) [ *](.+)$/))
    .filter(Boolean).map(([, sum, name]) => [name, sum]));
}

async function sumOf(path) {
  const bytes = await (await load(path)).arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

async function check(name, output) {
  output.className = '';
  output.textContent = 'Checking.';
  try {
    const [sums, sum] = await Promise.all([readSums(), sumOf(`/downloads/${name}`)]);
    const isGood = sums.get(name) === sum;
    output.className = isGood ? 'good' : 'bad';
    output.textContent = isGood ? `Correct: ${sum.slice(0, 16)}…` : `Wrong: the file has ${sum}`;
  } catch (error) {
    output.className = 'bad';
    output.textContent = `Could not be checked: ${error.message}.`;
  }
}

document.getElementById('origin').textContent = location.origin;

// Browsers compute checksums only on pages loaded over TLS or from localhost.
if (globalThis.isSecureContext) {
  for (const item of document.querySelectorAll('[data-file]')) {
    const name = item.dataset.file;
    const button = element('button', { type: 'button', textContent: 'Check', ariaLabel: `Check ${name}` });
    const output = element('output');
    button.addEventListener('click', () => check(name, output));
    item.append(button);
    item.firstElementChild.append(output);
  }
}
