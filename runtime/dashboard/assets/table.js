// A table whose rows are updated in place: focus and selection stay where they
// are while numbers change.

import {make, setText} from './dom.js';

// What a column shows of a row: text, or {text, href, tone, progress, label}.
// progress: 0 to 1, a bar with `label` for who cannot see it.
function fillCell(cell, value) {
  const shown = typeof value === 'object' && value !== null ? value : {text: value};
  const text = String(shown.text ?? '');
  const kind = shown.href ? 'a' : shown.progress !== undefined ? 'bar' : 'text';
  if (cell.dataset.kind !== kind) {
    cell.dataset.kind = kind;
    cell.replaceChildren();
    if (kind === 'a') cell.append(make('a'));
    if (kind === 'text') cell.append(make('span'));
    if (kind === 'bar') {
      cell.append(make('span', {class: 'with-bar'}, make('span'), make('progress', {max: '1'})));
    }
  }
  if (kind === 'bar') {
    const [words, bar] = cell.firstChild.children;
    setText(words, text);
    if (bar.getAttribute('value') !== String(shown.progress)) {
      bar.setAttribute('value', String(shown.progress));
    }
    if (shown.label) bar.setAttribute('aria-label', shown.label);
  } else {
    const inner = cell.firstChild;
    setText(inner, text);
    if (kind === 'a' && inner.getAttribute('href') !== shown.href) {
      inner.setAttribute('href', shown.href);
    }
  }
  const tone = (shown.tone ?? '') + (text === '' && kind === 'text' ? ' nothing' : '');
  if (cell.className !== tone) cell.className = tone;
}

export class Table {
  // columns: [{name, value: (row) => cell, testid, optional}]; key: (row) => its
  // identity. optional: not shown where no row has anything in it.
  // caption: what it holds, for who cannot see it.
  constructor({caption, columns, key, rowTestid, empty}) {
    this.columns = columns;
    this.key = key;
    this.rowTestid = rowTestid;
    this.rows = new Map();
    // Roles: on a narrow screen rows are blocks, which would end their being a
    // table.
    this.body = make('tbody', {role: 'rowgroup'});
    this.heads = columns.map(({name}) => make('th', {scope: 'col', role: 'columnheader'}, name));
    this.table = make(
        'table', {role: 'table'}, make('caption', {class: 'unseen'}, caption),
        make('thead', {role: 'rowgroup'}, make('tr', {role: 'row'}, ...this.heads)), this.body);
    this.empty = make('p', {class: 'empty'}, empty ?? 'None.');
    this.element = make('div', {}, this.table, this.empty);
    this.set([]);
  }

  set(rows) {
    this.table.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
    const old = this.rows;
    this.rows = new Map();
    // First: what is moved loses the focus.
    const wanted = new Set(rows.map((row) => String(this.key(row))));
    for (const [key, line] of old) {
      if (!wanted.has(key)) line.remove();
    }
    let place = this.body.firstChild;
    for (const row of rows) {
      const key = String(this.key(row));
      if (this.rows.has(key)) continue;
      let line = old.get(key);
      if (!line) {
        line = make('tr', {role: 'row', testid: this.rowTestid},
                    ...this.columns.map(({name, testid}) => make(
                        'td', {role: 'cell', 'data-label': name, testid})));
        line.dataset.key = key;
      }
      this.rows.set(key, line);
      this.columns.forEach(({value}, i) => fillCell(line.children[i], value(row)));
      if (line === place) {
        place = place.nextSibling;
      } else {
        this.body.insertBefore(line, place);
      }
    }
    this.columns.forEach(({optional}, i) => {
      if (!optional) return;
      const cells = [...this.rows.values()].map((line) => line.children[i]);
      const nothing = cells.every((cell) => cell.textContent === '');
      for (const cell of [this.heads[i], ...cells]) cell.hidden = nothing;
    });
  }
}
