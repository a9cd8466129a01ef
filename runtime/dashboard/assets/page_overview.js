// The cluster at a glance.

import {getJson} from './api.js';
import {heading, make, setText} from './dom.js';
import {bytes, num, quantity, word} from './format.js';
import {
  NO_RUNS, fetchRuns, inUse, jobTable, nodeTable, runTable, timelineButton, withUsage,
} from './page_parts.js';

const SHOWN = 5;

function card(title, testid) {
  const value = make('p', {class: 'value'}, '…');
  const bar = make('progress', {max: '1', 'aria-label': title});
  bar.hidden = true;
  return {
    element: make('section', {class: 'card', testid}, make('h2', {}, title), value, bar),
    set(text, share) {
      setText(value, text);
      bar.hidden = share === undefined;
      if (share !== undefined) bar.setAttribute('value', String(share));
    },
  };
}

function section(title, href, table) {
  return make('section', {}, make('h2', {}, make('a', {href}, title)), table.element);
}

export function overviewPage() {
  const cards = {
    nodes: card('Nodes', 'card-nodes'), cpu: card('CPU', 'card-cpu'),
    given: card('CPU given', 'card-cpu-given'), gpus: card('GPU', 'card-gpu-busy'),
    gpu: card('GPU given', 'card-gpu'), memory: card('Memory', 'card-memory'),
  };
  const states = make('ul');
  const actors = make('section', {class: 'card', testid: 'card-actors'},
                      make('h2', {}, 'Actors'), states);
  const tables = {runs: runTable(), jobs: jobTable(), nodes: nodeTable()};
  const timeline = timelineButton();
  let countsShown = '';

  function showCounts(counts) {
    const text = JSON.stringify(counts);
    if (text === countsShown) return;
    countsShown = text;
    const entries = Object.entries(counts);
    states.replaceChildren(...(entries.length === 0 ? [make('li', {}, 'none')] : entries.map(
        ([name, count]) => {
          const state = word(name, 'ACTOR_STATE_');
          return make('li', {}, make('a', {href: '#/actors?state=' + state}, state),
                      make('span', {testid: 'actors-' + state}, String(count)));
        })));
  }

  return {
    title: 'Overview',
    news: ['state', 'runs'],
    element: make(
        'section', {}, heading('Overview'),
        make('div', {class: 'cards'}, ...Object.values(cards).map(({element}) => element), actors),
        make('p', {class: 'buttons'}, timeline.button), timeline.problem,
        section('Runs', '#/runs', tables.runs), section('Jobs', '#/jobs', tables.jobs),
        section('Nodes', '#/nodes', tables.nodes)),
    async look(signal) {
      const [{nodes: told, total, usage}, {by_state: counts}, {jobs}, runs] = await Promise.all([
        getJson('nodes?limit=1000', signal), getJson('actors?limit=0', signal),
        getJson('jobs?limit=' + SHOWN, signal), fetchRuns(signal),
      ]);
      const nodes = withUsage(told, usage, 'node_id');
      const alive = nodes.filter((node) => node.state === 'NODE_STATE_ALIVE').length;
      cards.nodes.set(alive + (num(total) > alive ? ' of ' + total : '') + ' alive');
      const sums = inUse(nodes);
      const share = ({used, all}) => (all > 0 ? used / all : undefined);
      const none = {used: 0, all: 0};
      const [busy, cpu, gpus, gpu, memory] =
          ['cpus', 'CPU', 'gpus', 'GPU', 'memory'].map((name) => sums[name] ?? none);
      cards.cpu.set(busy.all > 0 ? quantity(busy.used) + ' / ' + busy.all : 'unknown', share(busy));
      cards.given.set(quantity(cpu.used) + ' / ' + quantity(cpu.all), share(cpu));
      cards.gpus.element.hidden = gpus.all === 0;  // No machine tells.
      cards.gpus.set(quantity(gpus.used) + ' / ' + gpus.all, share(gpus));
      cards.gpu.set(gpu.all > 0 ? quantity(gpu.used) + ' / ' + quantity(gpu.all) : 'none', share(gpu));
      cards.memory.set(memory.all > 0 ? bytes(memory.used) + ' / ' + bytes(memory.all) : 'unknown',
                       share(memory));
      showCounts(counts);
      if (runs === null) setText(tables.runs.empty, NO_RUNS);
      tables.runs.set((runs ?? []).slice(0, SHOWN));
      tables.jobs.set(jobs);
      tables.nodes.set(nodes.filter((node) => node.state !== 'NODE_STATE_DEAD'));
    },
  };
}
