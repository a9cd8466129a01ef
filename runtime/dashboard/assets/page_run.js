// One run: how far it is, its curves, synchronisations and images.

import {getBlob, getJson, path, post} from './api.js';
import {Curves, Stacks} from './charts.js';
import {confirmed, Facts, heading, make, setText} from './dom.js';
import {
  bytes, epochOf, isLiveRun, num, number, seconds, time, workerName,
} from './format.js';
import {
  actorHref, etaOf, jobHref, metricsOf, runProgress, runState, speedOf, timelineButton,
} from './page_parts.js';
import {Table} from './table.js';

const POINTS = 500;
const BARS = 60;
const IMAGES = 12;

// One chart a metric, which stays while the page does.
class CurveCharts {
  constructor() {
    this.charts = new Map();
    this.element = make('div', {class: 'charts', testid: 'curves'});
  }

  set(curves) {
    const metrics = new Map();
    for (const curve of curves) {
      const shown = {
        name: workerName(curve.worker), mean: num(curve.worker) < 0,
        epochs: curve.epochs ?? [], values: curve.values ?? [],
      };
      if (!metrics.has(curve.metric)) metrics.set(curve.metric, []);
      metrics.get(curve.metric).push(shown);
    }
    for (const [metric, lines] of metrics) {
      if (!this.charts.has(metric)) {
        const chart = new Curves(metric);
        this.charts.set(metric, chart);
        this.element.append(chart.element);
      }
      lines.sort((a, b) => Number(b.mean) - Number(a.mean));
      this.charts.get(metric).set(lines);
    }
    for (const [metric, chart] of this.charts) {
      if (metrics.has(metric)) continue;
      chart.close();
      chart.element.remove();
      this.charts.delete(metric);
    }
  }

  close() {
    for (const chart of this.charts.values()) chart.close();
  }
}

// Of a run that is forgotten and begins anew the numbers begin anew, too.
const keyOf = (image) => image.image_id + ' ' + image.unix_ms;

// The newest images first; each is fetched once.
class Images {
  constructor(id) {
    this.id = id;
    this.element = make('div', {class: 'images', testid: 'images'});
    this.shown = new Map();  // By keyOf.
    this.all = false;
    this.busy = Promise.resolve();
    this.more = make('button', {type: 'button', testid: 'all-images', on: {click: () => {
      this.all = true;
      this.onMore?.();
    }}}, 'Show all images');
    this.more.hidden = true;
  }

  // One after the other: else two would fetch and show the same image.
  set(images, signal) {
    const done = this.busy.then(() => this.show(images, signal));
    this.busy = done.catch(() => {});
    return done;
  }

  async show(images, signal) {
    const newest = [...images].reverse();
    this.more.hidden = this.all || newest.length <= IMAGES;
    const wanted = this.all ? newest : newest.slice(0, IMAGES);
    const keys = new Set(wanted.map(keyOf));
    for (const [key, figure] of this.shown) {
      if (keys.has(key)) continue;
      URL.revokeObjectURL(figure.querySelector('img').src);
      figure.remove();
      this.shown.delete(key);
    }
    let place = this.element.firstChild;
    for (const image of wanted) {
      const key = keyOf(image);
      let figure = this.shown.get(key);
      if (figure) {
        place = figure.nextSibling;
        continue;
      }
      let blob;
      try {
        blob = await getBlob(path('runs', this.id, 'images', image.image_id + '.png'), signal);
      } catch (error) {
        if (error.status === 404) continue;  // It made room for newer ones.
        throw error;
      }
      const title = (image.name || 'image') + ', epoch ' + image.epoch;
      figure = make('figure', {testid: 'sample-image'},
                    make('img', {
                      src: URL.createObjectURL(blob), alt: title,
                      width: num(image.width) || null, height: num(image.height) || null,
                    }),
                    make('figcaption', {}, title));
      this.shown.set(key, figure);
      this.element.insertBefore(figure, place);
    }
  }

  close() {
    for (const figure of this.shown.values()) {
      URL.revokeObjectURL(figure.querySelector('img').src);
    }
  }
}

const workerTable = () => new Table({
  caption: 'How far each worker is', rowTestid: 'worker-row', key: (worker) => worker.worker,
  empty: 'No worker has told how far it is.',
  columns: [
    {name: 'Worker', value: (worker) => (num(worker.worker) < 0 ? 'the run' : String(worker.worker))},
    {name: 'Epoch', value: (worker) => String(num(worker.epoch) + 1)},
    {name: 'Step', value: (worker) => (num(worker.steps) > 0 ? {
      text: worker.step + ' / ' + worker.steps, progress: num(worker.step) / num(worker.steps),
      label: 'steps of worker ' + worker.worker,
    } : String(worker.step))},
    {name: 'Samples', value: (worker) => String(worker.samples)},
  ],
});

export const serverTable = (extra = []) => new Table({
  caption: 'Parameter servers', rowTestid: 'server-row',
  key: (server) => [server.run_id, server.actor_id, server.name].join(' '),
  empty: 'No parameter server has told of itself.',
  columns: [
    {name: 'Server', value: (server) => (server.actor_id ?
        {text: server.name || server.actor_id, href: actorHref(server.actor_id)} : server.name)},
    ...extra,
    {name: 'Strategy', value: (server) => server.strategy},
    {name: 'Version', value: (server) => String(server.version), testid: 'server-version'},
    {name: 'Syncs', value: (server) => String(server.num_syncs)},
    {name: 'Pulled', value: (server) => bytes(server.bytes_pulled)},
    {name: 'Pushed', value: (server) => bytes(server.bytes_pushed)},
    {name: 'Staleness', value: (server) => number(server.staleness)},
    {name: 'Restarts', value: (server) => String(server.num_restarts)},
  ],
});

export function runPage(id) {
  const title = heading(id, 'run-title');
  const facts = new Facts('run-facts');
  const bar = make('progress', {max: '1', 'aria-label': 'progress', testid: 'run-bar'});
  const error = make('p', {class: 'problem', testid: 'run-error'});
  const stop = make('button', {type: 'button', class: 'danger', testid: 'stop-run'}, 'Stop this run');
  stop.hidden = true;
  const timeline = timelineButton({run: id});
  const stopProblem = make('p', {class: 'problem', role: 'alert'});
  const workers = workerTable();
  const curves = new CurveCharts();
  const noCurves = make('p', {class: 'empty'}, 'No metrics yet.');
  const syncs = new Stacks({
    title: 'Seconds of each synchronisation', testid: 'chart-sync',
    parts: ['pull', 'aggregate', 'push'], xTitle: 'version', yTitle: 'seconds',
  });
  const syncFacts = new Facts('sync-facts');
  const syncSection = make('section', {}, make('h2', {}, 'Synchronisations'), syncFacts.element,
                           make('div', {class: 'charts'}, syncs.element));
  const servers = serverTable();
  const serverSection = make('section', {}, make('h2', {}, 'Parameter servers'), servers.element);
  const images = new Images(id);
  const imageSection = make('section', {}, make('h2', {}, 'Images'), images.element,
                            make('p', {class: 'buttons'}, images.more));
  let last = null;

  stop.addEventListener('click', async () => {
    const question = 'Stop the run ' + id + '? It ends after the epoch that it is in, with a ' +
        'checkpoint if it takes any.';
    if (!await confirmed(question, 'Stop the run')) return;
    stop.disabled = true;
    try {
      await post(path('runs', id, 'stop'));
      setText(stopProblem, '');
    } catch (problem) {
      setText(stopProblem, 'It was not stopped: ' + problem.message);
      stop.disabled = false;
    }
  });

  function showRun(run) {
    error.textContent = run.error || '';
    bar.hidden = num(run.epochs) === 0;
    bar.setAttribute('value', String(num(run.progress)));
    stop.hidden = !isLiveRun(run);
    stop.disabled = run.stop_requested;
    setText(stop, run.stop_requested ? 'It stops after this epoch' : 'Stop this run');
    facts.set([
      ['State', runState(run)],
      ['Progress', runProgress(run).text],
      ['Epoch', epochOf(run)],
      ['Images/s', speedOf(run)],
      ['ETA', etaOf(run)],
      ['Last means', metricsOf(run)],
      ['Kind', run.kind],
      ['Workers', run.num_workers],
      ['Job', run.job_id ? {text: run.job_id, href: jobHref(run.job_id)} : ''],
      ['Host', run.hostname],
      ['Folder', run.folder],
      ['Start', time(run.start_unix_ms)],
      ['End', time(run.end_unix_ms)],
      ['Starts', num(run.num_starts) > 1 ? run.num_starts : ''],
      ['Events lost', num(run.dropped_events) > 0 ? run.dropped_events : ''],
    ]);
  }

  function showSyncs(points) {
    syncSection.hidden = points.length === 0;
    if (points.length === 0) return;
    const bars = points.slice(-BARS).map(({sync}) => ({
      x: String(sync.version),
      values: [num(sync.seconds_pull), num(sync.seconds_aggregate), num(sync.seconds_push)],
    }));
    syncs.set(bars, seconds);
    const mean = (part) => bars.reduce((sum, {values}) => sum + values[part], 0) / bars.length;
    syncFacts.set([
      ['Mean pull', seconds(mean(0))], ['Mean aggregate', seconds(mean(1))],
      ['Mean push', seconds(mean(2))], ['Bytes of the last', bytes(points[points.length - 1].sync.bytes)],
    ]);
  }

  const page = {
    title: id,
    news: ['runs'],
    element: make(
        'article', {testid: 'run-detail'}, title, bar, error, facts.element,
        make('p', {class: 'buttons'}, stop, timeline.button), stopProblem, timeline.problem,
        make('section', {}, make('h2', {}, 'Curves'), noCurves, curves.element),
        imageSection, syncSection, serverSection,
        make('section', {}, make('h2', {}, 'Workers'), workers.element)),
    async look(signal) {
      const answer = await getJson(path('runs', id) + '?points=' + POINTS, signal);
      last = answer;
      showRun(answer.run ?? {});
      noCurves.hidden = (answer.curves ?? []).length > 0;
      curves.set(answer.curves ?? []);
      showSyncs(answer.syncs ?? []);
      serverSection.hidden = (answer.servers ?? []).length === 0;
      servers.set(answer.servers ?? []);
      workers.set(answer.workers ?? []);
      imageSection.hidden = (answer.images ?? []).length === 0;
      await images.set(answer.images ?? [], signal);
    },
    close() {
      closing.abort();
      curves.close();
      syncs.close();
      images.close();
    },
  };
  const closing = new AbortController();
  images.onMore = () => {
    images.set(last?.images ?? [], closing.signal).catch((problem) => {
      if (problem.name !== 'AbortError') setText(stopProblem, problem.message);
    });
  };
  return page;
}
