// One stream of news for all of the page: what has changed, and whether the
// head answers at all. Comes back by itself.

import {Refusal, pause, readEvents} from './api.js';

const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 5000;
// The head says something every 10 s.
const SILENCE_MS = 25000;
const POLL_MS = 2000;

export class Live {
  // onNews({state, runs}): which of them may have changed. onTrouble(text):
  // empty: there is none. onRefused(): another token is needed.
  constructor({onNews, onTrouble, onRefused}) {
    this.onNews = onNews;
    this.onTrouble = onTrouble;
    this.onRefused = onRefused;
    this.running = null;
    document.addEventListener('visibilitychange', () => {
      // Nobody looks: the head has room for 16 streams.
      if (document.hidden) {
        this.stop();
      } else {
        this.start();
      }
    });
  }

  // Also: try at once instead of waiting.
  start() {
    this.stop();
    this.running = new AbortController();
    this.run(this.running.signal);
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }

  async run(signal) {
    let wait = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      try {
        await this.listen(signal, () => { wait = FIRST_PAUSE_MS; });
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refusal && error.status === 401) {
          this.onTrouble('');
          this.onRefused();
          return;  // start() is called with the token.
        }
        if (error instanceof Refusal && error.status === 503) {
          // It is there, but has no room for a further stream.
          this.onTrouble('Too many pages are open: this one looks for news every 2 s.');
          this.onNews({state: true, runs: true});
          if (!await this.rest(POLL_MS, signal)) return;
          continue;
        }
      }
      if (signal.aborted) return;
      this.onTrouble('The head does not answer; trying again.');
      // Not all pages at once.
      if (!await this.rest(wait * (0.75 + Math.random() / 2), signal)) return;
      wait = Math.min(2 * wait, MAX_PAUSE_MS);
    }
  }

  // False: it is to end.
  async rest(ms, signal) {
    try {
      await pause(ms, signal);
      return true;
    } catch {
      return false;
    }
  }

  async listen(signal, onConnected) {
    // Ends by the signal, or by silence.
    const ending = new AbortController();
    const end = () => ending.abort();
    signal.addEventListener('abort', end);
    let silence = setTimeout(end, SILENCE_MS);
    let connected = false;
    try {
      await readEvents('events', {
        signal: ending.signal,
        alive: () => {
          clearTimeout(silence);
          silence = setTimeout(end, SILENCE_MS);
          if (connected) return;
          connected = true;
          onConnected();
          this.onTrouble('');
          // What happened meanwhile, maybe in another head.
          this.onNews({state: true, runs: true});
        },
        take: ({event}) => this.onNews({state: event === 'state', runs: event === 'runs'}),
      });
    } finally {
      clearTimeout(silence);
      signal.removeEventListener('abort', end);
    }
  }
}
