// How values are shown. All of it is text; nothing here touches the page.

// 64-bit integers come as strings, and so do NaN and Infinity.
export const num = (x) => Number(x ?? 0);

export function number(x) {
  const value = num(x);
  if (!Number.isFinite(value)) return String(x);
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2);
  if (size >= 1000) return value.toFixed(0);
  return String(Number(value.toPrecision(4)));
}

// A quantity of a resource: kept to 1/10000.
export const quantity = (x) => String(Math.round(num(x) * 100) / 100);

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
export function bytes(x) {
  let value = num(x);
  let unit = 0;
  while (value >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    ++unit;
  }
  return (unit === 0 ? String(value) : String(Number(value.toPrecision(3)))) + ' ' + UNITS[unit];
}

export function seconds(x) {
  const value = num(x);
  if (!Number.isFinite(value) || value < 0) return 'unknown';
  if (value < 0.001) return (value * 1e6).toFixed(0) + ' µs';
  if (value < 1) return Number((value * 1000).toPrecision(3)) + ' ms';
  if (value < 60) return Number(value.toPrecision(3)) + ' s';
  const whole = Math.round(value);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return hours > 0 ? hours + ' h ' + minutes + ' min' :
                     minutes + ' min ' + (whole % 60) + ' s';
}

export const percent = (x) => Math.floor(Math.min(1, Math.max(0, num(x))) * 100) + ' %';

export const time = (ms) => (num(ms) ? new Date(num(ms)).toLocaleString() : '');

// "ACTOR_STATE_ALIVE", "ACTOR_STATE_" -> "alive"
export const word = (name, prefix) =>
    String(name ?? '').replace(prefix, '').toLowerCase().replaceAll('_', ' ');

const TONES = {
  alive: 'good', running: 'good', finished: 'good', succeeded: 'good',
  pending: 'wait', starting: 'wait', restarting: 'wait', disconnected: 'wait', lost: 'wait',
  dead: 'bad', failed: 'bad',
};

// A cell (table.js) for a state.
export function state(name, prefix) {
  const text = word(name, prefix);
  return {text, tone: 'state ' + (TONES[text] ?? '')};
}

// How a driver that connected by itself ended, only who started it knows.
export const jobState = (job) => (job.state === 'JOB_STATE_SUCCEEDED' && !job.submitted ?
    {text: 'ended', tone: 'state'} : state(job.state, 'JOB_STATE_'));

export const isLiveRun = (run) => run.state === 'RUN_STATE_RUNNING';

// "3 / 10": which epoch a run is in, or how many it had.
export function epochOf(run) {
  const epochs = num(run.epochs);
  const epoch = num(run.epoch) + (isLiveRun(run) ? 1 : 0);
  return epochs > 0 ? Math.min(epoch, epochs) + ' / ' + epochs : String(epoch);
}

export const workerName = (worker) => (num(worker) < 0 ? 'mean' : 'worker ' + worker);

// What colours a terminal and moves its cursor.
export const withoutEscapes = (text) =>
    text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, '').replace(/\r(?!\n)/g, '\n');
