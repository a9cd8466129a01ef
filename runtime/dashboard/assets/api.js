// Talks to the head: /api/v1/ (API.md), with the token in a header. The token
// comes once with the address and then stays out of it: out of the history, of
// bookmarks and of screenshots.

const KEY = 'miniray-token';

const address = new URL(location.href);
const given = address.searchParams.get('token');
if (given !== null) {
  if (given) sessionStorage.setItem(KEY, given);
  address.searchParams.delete('token');
  history.replaceState(null, '', address);
}
let token = sessionStorage.getItem(KEY);

// No cluster has another token, and fetch fails where a header has another
// character.
export const canBeToken = (text) => /^[\x21-\x7e]+$/.test(text);

export function setToken(text) {
  token = text;
  sessionStorage.setItem(KEY, text);
}

export const hasToken = () => Boolean(token);

// The head answered, but not with what was asked for.
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.name = 'Refusal';
    this.status = status;
  }
}

// Nobody answered.
export class Unreachable extends Error {
  constructor() {
    super('the head does not answer');
    this.name = 'Unreachable';
  }
}

const authorization = () => (token && canBeToken(token) ? {Authorization: 'Bearer ' + token} : {});

const onRefused = [];
// Called when the head wants another token.
export const whenRefused = (run) => onRefused.push(run);

async function refusalOf(answer) {
  let message = 'the head answered ' + answer.status;
  try {
    message = JSON.parse(await answer.text()).error ?? message;
  } catch {
    // The status has to do.
  }
  if (answer.status === 401) for (const run of onRefused) run();
  return new Refusal(answer.status, message);
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch('api/v1/' + path, {
      cache: 'no-store', ...options, headers: {...authorization(), ...options.headers},
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Unreachable();
  }
  if (!answer.ok) throw await refusalOf(answer);
  return answer;
}

async function read(path, signal, how) {
  const answer = await ask(path, {signal});
  try {
    return await answer[how]();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Unreachable();
  }
}

export const getJson = (path, signal) => read(path, signal, 'json');
export const getText = (path, signal) => read(path, signal, 'text');
export const getBlob = (path, signal) => read(path, signal, 'blob');

export async function post(path) {
  await ask(path, {
    method: 'POST', body: '{}', headers: {'Content-Type': 'application/json'},
  });
}

// 'runs/a b' -> path of parts that may hold anything.
export const path = (...parts) => parts.map(encodeURIComponent).join('/');

// {a: 'x', b: ''} -> '?a=x'
export function query(parameters) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return text ? '?' + text : '';
}

// Server-sent events: an EventSource would need the token in the address.
// Calls take({event, data}) for each, data parsed, and alive() when anything
// comes. Returns when the stream ends in good order; throws Refusal,
// Unreachable or AbortError.
export async function readEvents(eventsPath, {take, alive = () => {}, signal}) {
  const answer = await ask(eventsPath, {signal, headers: {Accept: 'text/event-stream'}});
  alive();
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let waiting = '';
  while (true) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Unreachable();
    }
    if (part.done) return;
    alive();
    waiting += decoder.decode(part.value, {stream: true});
    let end;
    while ((end = waiting.indexOf('\n\n')) >= 0) {
      const message = waiting.slice(0, end);
      waiting = waiting.slice(end + 2);
      let event = 'message';
      const data = [];
      for (const line of message.split('\n')) {
        if (line.startsWith('event:')) event = line.slice(6).trim();
        if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
      }
      if (data.length > 0) take({event, data: JSON.parse(data.join('\n'))});
    }
  }
}

const aborted = () => new DOMException('aborted', 'AbortError');

// Resolves after so long, or rejects when aborted.
export const pause = (ms, signal) => new Promise((resolve, reject) => {
  if (signal?.aborted) return reject(aborted());
  const stop = () => {
    clearTimeout(timer);
    reject(aborted());
  };
  const timer = setTimeout(() => {
    signal?.removeEventListener('abort', stop);
    resolve();
  }, ms);
  signal?.addEventListener('abort', stop, {once: true});
});

// Resolves when somebody looks at this tab, or rejects when aborted.
export const untilSeen = (signal) => new Promise((resolve, reject) => {
  const look = () => {
    if (document.hidden && !signal.aborted) return;
    document.removeEventListener('visibilitychange', look);
    signal.removeEventListener('abort', look);
    if (signal.aborted) return reject(aborted());
    resolve();
  };
  document.addEventListener('visibilitychange', look);
  signal.addEventListener('abort', look);
  look();
});
