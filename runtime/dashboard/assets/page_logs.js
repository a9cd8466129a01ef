// A log: followed, filtered, paused.

import {Refusal, getJson, getText, pause, query, readEvents, untilSeen} from './api.js';
import {heading, make, setText} from './dom.js';
import {withoutEscapes} from './format.js';

// What the page keeps; the log itself has all.
const MAX_LINES = 5000;
const PIECE_LINES = 250;
// Of a text: a line that never ends takes room too, and so does each piece.
const linesOf = (text) => Math.max(text.split('\n').length - 1, text.length / 1000, .1);
const TAILS = ['100', '1000', '10000', '100000'];

// The text: lines in pieces, of which the oldest go.
class LogView {
  constructor() {
    this.element = make('pre', {
      class: 'log', tabindex: '0', role: 'log', 'aria-live': 'off', 'aria-label': 'Log', testid: 'log-text',
    });
    this.clear();
  }

  clear() {
    this.element.replaceChildren();
    this.pieces = [];  // {element, lines}
    this.lines = 0;
  }

  add(text, tone) {
    const atEnd = this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight < 40;
    const lines = linesOf(text);
    let last = this.pieces[this.pieces.length - 1];
    if (!last || tone || last.tone || last.lines >= PIECE_LINES) {
      last = {element: make('span', {class: tone}), lines: 0, tone};
      this.pieces.push(last);
      this.element.append(last.element);
    }
    last.element.append(text);
    last.lines += lines;
    this.lines += lines;
    while (this.pieces.length > 1 && this.lines - this.pieces[0].lines >= MAX_LINES) {
      const oldest = this.pieces.shift();
      this.lines -= oldest.lines;
      oldest.element.remove();
    }
    if (atEnd) this.element.scrollTop = this.element.scrollHeight;
  }
}

export function logsPage(args, parameters) {
  const [kind, id] = args;  // 'actor', 'job' or 'any'; nothing: none is chosen.
  const view = new LogView();
  const status = make('p', {class: 'soft', role: 'status', testid: 'log-status'}, id ? '' : 'Choose a log.');
  const options = make('datalist', {id: 'log-choices'});
  const who = make('input', {
    type: 'search', list: 'log-choices', value: id ?? '', required: true, testid: 'log-who',
    placeholder: 'id or name',
  });
  const filter = make('input', {type: 'search', value: parameters.get('filter') ?? '', testid: 'log-filter'});
  const tail = make('select', {testid: 'log-tail'},
                    ...TAILS.map((lines) => make('option', {value: lines}, lines)));
  tail.value = TAILS.includes(parameters.get('tail')) ? parameters.get('tail') : '1000';
  const follow = make('input', {type: 'checkbox', testid: 'log-follow'});
  follow.checked = parameters.get('follow') !== '0';
  const pauseButton = make('button', {type: 'button', 'aria-pressed': 'false', testid: 'log-pause'}, 'Pause');
  const form = make(
      'form', {class: 'filters', role: 'search', 'aria-label': 'Which log'},
      make('label', {}, 'Actor or job', who), options,
      make('label', {}, 'Only lines with', filter), make('label', {}, 'Last lines', tail),
      make('label', {class: 'check'}, follow, 'Follow'),
      make('button', {type: 'submit', class: 'primary', testid: 'log-show'}, 'Show'), pauseButton);

  const closing = new AbortController();
  let paused = false;
  let held = [];  // What came while it was paused.
  let heldLines = 0;

  function add(text, tone) {
    const shown = withoutEscapes(text);
    if (!paused) return view.add(shown, tone);
    held.push([shown, tone]);
    heldLines += linesOf(shown);
    while (held.length > 1 && heldLines > MAX_LINES) heldLines -= linesOf(held.shift()[0]);
    setText(pauseButton, 'Go on (' + Math.floor(heldLines) + ' lines wait)');
  }

  pauseButton.addEventListener('click', () => {
    paused = !paused;
    pauseButton.setAttribute('aria-pressed', String(paused));
    setText(pauseButton, paused ? 'Go on' : 'Pause');
    if (paused) return;
    for (const [text, tone] of held) view.add(text, tone);
    held = [];
    heldLines = 0;
  });

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const wanted = who.value.trim();
    const same = kind !== undefined && wanted === id;
    const hash = '#/logs/' + (same ? kind : 'any') + '/' + encodeURIComponent(wanted) + query({
      filter: filter.value, tail: tail.value === '1000' ? '' : tail.value,
      follow: follow.checked ? '' : '0',
    });
    if (hash !== location.hash) {
      location.hash = hash;
    } else {
      dispatchEvent(new HashChangeEvent('hashchange'));  // The same once more.
    }
  });
  follow.addEventListener('change', () => id && form.requestSubmit());

  const name = {actor: 'actor', job: 'job'}[kind] ?? 'id';

  async function readOnce() {
    setText(status, 'Reading…');
    const text = await getText('logs' + query({
      [name]: id, tail: tail.value, filter: filter.value,
    }), closing.signal);
    if (text !== '') add(text);
    setText(status, text === '' ? 'There is no such line.' : '');
  }

  // As readEvents, until nobody looks: the head has room for 16 streams, and a
  // browser for 6 connections to it.
  async function readWhileSeen(eventsPath, readers) {
    const ending = new AbortController();
    const check = () => {
      if (document.hidden || closing.signal.aborted) ending.abort();
    };
    document.addEventListener('visibilitychange', check);
    closing.signal.addEventListener('abort', check);
    check();
    try {
      await readEvents(eventsPath, {...readers, signal: ending.signal});
    } finally {
      document.removeEventListener('visibilitychange', check);
      closing.signal.removeEventListener('abort', check);
    }
  }

  async function followIt() {
    let place = null;  // Where to go on after a break.
    let ended = false;
    let wait = 500;
    setText(status, 'Following…');
    while (!ended) {
      try {
        await readWhileSeen('logs' + query({
          [name]: id, follow: 1, filter: filter.value, ...(place ?? {tail: tail.value}),
        }), {
          alive: () => {
            wait = 500;
            setText(status, 'Following…');
          },
          take: ({event, data}) => {
            if (event === 'log') {
              place = {incarnation: data.incarnation, skip: data.position};
              add(data.text);
            } else if (event === 'notice') {
              add('[miniray: ' + data.text + ']\n', 'notice');
            } else if (event === 'end') {
              ended = true;
            } else if (event === 'error') {
              setText(status, data.error);
              wait = 2000;
            }
          },
        });
        if (ended) break;
      } catch (error) {
        if (error.name === 'AbortError') {
          await untilSeen(closing.signal);
          continue;
        }
        // Else it comes back.
        if (error instanceof Refusal && error.status !== 503) throw error;
        setText(status, error.message + '; trying again');
      }
      await pause(wait, closing.signal);
      wait = Math.min(2 * wait, 5000);
    }
    setText(status, 'It has ended, and this is all.');
  }

  if (id) {
    (follow.checked ? followIt() : readOnce()).catch((error) => {
      if (error.name !== 'AbortError') setText(status, error.message);
    });
  }

  return {
    title: id ? 'Log of ' + id : 'Logs',
    news: ['state'],
    element: make('section', {}, heading(id ? 'Log of ' + id : 'Logs'), form, status, view.element),
    // What can be chosen, once.
    async look(signal) {
      if (options.children.length > 0) return;
      const [{actors}, {jobs}] = await Promise.all([
        getJson('actors?limit=200', signal), getJson('jobs?limit=100', signal),
      ]);
      options.replaceChildren(
          ...jobs.filter((job) => job.submitted).map((job) => make(
              'option', {value: job.job_id}, 'job ' + (job.program || job.job_id))),
          ...actors.map((actor) => make(
              'option', {value: actor.actor_id}, actor.class_name + (actor.name ? ' ' + actor.name : ''))));
    },
    close() {
      closing.abort();
    },
  };
}
