// Actors: a part of the list, by state and class, and one of them in detail.

import {getJson, getText, path, query} from './api.js';
import {Facts, heading, make, setText} from './dom.js';
import {bytes, num, quantity, state, time, withoutEscapes} from './format.js';
import {actorHref, actorLogHref, jobHref, withUsage} from './page_parts.js';
import {Pager} from './pager.js';
import {Table} from './table.js';

const LIMIT = 100;
const STATES = ['living', 'pending', 'starting', 'alive', 'restarting', 'dead'];
const LOG_LINES = 20;

const nameOf = (actor) => (actor.actor_namespace ? actor.actor_namespace + '/' : '') + actor.name;

const asked = (actor, but = '') => Object.entries(actor.resources?.quantity ?? {})
    .filter(([name]) => name !== but)
    .map(([name, q]) => (name === 'memory' ? bytes(q) : quantity(q) + ' ' + name)).join(', ');

// Measured, where its process lives and has been looked at.
const cpusOf = (actor) => (actor.usage ? quantity(actor.usage.cpus) : '');

function memoryOf(actor) {
  if (actor.usage) return bytes(actor.usage.memory_bytes);
  const wanted = num(actor.resources?.quantity?.memory);
  return wanted > 0 ? 'asks for ' + bytes(wanted) : '';
}

// Told by its process, which several actors may share.
const callsOf = (actor) => (actor.usage ? String(num(actor.usage.calls_done)) : '');
const queueOf = (actor) => (actor.usage ? String(num(actor.usage.calls_waiting)) : '');

const actorTable = () => new Table({
  caption: 'Actors, the newest first', rowTestid: 'actor-row', key: (actor) => actor.actor_id,
  empty: 'No actor is like this.',
  columns: [
    {name: 'Actor', value: (actor) => ({text: actor.actor_id, href: actorHref(actor.actor_id)})},
    {name: 'Class', value: (actor) => actor.class_name},
    {name: 'Name', value: nameOf},
    {name: 'State', value: (actor) => state(actor.state, 'ACTOR_STATE_'), testid: 'actor-state'},
    {name: 'Node', value: (actor) => actor.hostname || actor.node_id},
    {name: 'Pid', value: (actor) => num(actor.pid) || ''},
    {name: 'Asks for', value: (actor) => asked(actor, 'memory')},
    {name: 'CPUs', value: cpusOf, testid: 'actor-cpus'},
    {name: 'Memory', value: memoryOf, testid: 'actor-memory'},
    {name: 'Calls', value: callsOf, testid: 'actor-calls-done'},
    {name: 'Queue', value: queueOf, testid: 'actor-queue'},
    {name: 'Restarts', value: (actor) => String(actor.restarts)},
    {name: 'Cause', value: (actor) => actor.cause},
    {name: 'Log', testid: 'actor-row-log', value: (actor) => ({
      text: 'show', href: actorLogHref(actor.actor_id),
    })},
  ],
});

export function actorsPage(parameters) {
  const table = actorTable();
  const pager = new Pager('actors', parameters, LIMIT);
  const count = make('span', {class: 'count', testid: 'actor-count'});
  const wanted = {};
  for (const name of ['state', 'class', 'job', 'node']) wanted[name] = parameters.get(name) ?? '';

  const chosen = make('select', {id: 'actor-state-filter', testid: 'actor-state-filter'},
                      make('option', {value: ''}, 'all'),
                      ...STATES.map((name) => make('option', {value: name}, name)));
  chosen.value = wanted.state;
  const field = (name) => make(
      'input', {type: 'search', value: wanted[name], testid: 'actor-' + name + '-filter'});
  const fields = {class: field('class'), job: field('job'), node: field('node')};
  const form = make(
      'form', {class: 'filters', role: 'search', 'aria-label': 'Which actors'},
      make('label', {}, 'State', chosen),
      make('label', {}, 'Class contains', fields.class), make('label', {}, 'Job', fields.job),
      make('label', {}, 'Node', fields.node),
      make('button', {type: 'submit', testid: 'actor-filter'}, 'Show'));
  const go = () => {
    location.hash = '#/actors' + query({
      state: chosen.value, class: fields.class.value.trim(), job: fields.job.value.trim(),
      node: fields.node.value.trim(),
    });
  };
  chosen.addEventListener('change', go);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    go();
  });

  return {
    title: 'Actors',
    news: ['state'],
    element: make('section', {}, heading('Actors'), form,
                  make('p', {class: 'soft'}, count), table.element, pager.element),
    async look(signal) {
      const answer = await getJson(
          'actors' + query({...wanted, limit: LIMIT, offset: pager.offset}), signal);
      setText(count, answer.total + (answer.total === 1 ? ' actor' : ' actors'));
      table.set(withUsage(answer.actors, answer.usage, 'actor_id'));
      pager.set(answer.total);
    },
  };
}

export function actorPage(id) {
  const facts = new Facts('actor-facts');
  const calls = new Facts('actor-calls');
  const running = new Table({
    caption: 'Calls that run now', rowTestid: 'running-row',
    key: (call) => [call.method, call.concurrency_group, call.start_unix_us].join(' '),
    empty: 'No call runs now.',
    columns: [
      {name: 'Method', value: (call) => call.method},
      {name: 'Group', value: (call) => call.concurrency_group},
      {name: 'Since', value: (call) => time(num(call.start_unix_us) / 1000)},
    ],
  });
  const noCalls = make('p', {class: 'empty'});
  const log = make('pre', {class: 'log short', tabindex: '0', 'aria-label': 'The end of its log', testid: 'actor-log'});
  let logOf = null;  // Which of its processes' logs is shown.

  async function showCalls(signal) {
    try {
      const {calls: told} = await getJson(path('actors', id, 'calls'), signal);
      calls.set([
        ['Calls done', String(told.calls_done)],
        ['Failed', String(told.calls_failed)],
        ['In its queue', String(told.calls_waiting)],
        ['Objects that it keeps', num(told.kept_objects) > 0 ?
            told.kept_objects + ' (' + bytes(told.kept_bytes) + ')' : ''],
      ]);
      running.set(told.running ?? []);
      running.element.hidden = false;
      setText(noCalls, '');
    } catch (error) {
      if (error.name === 'AbortError' || error.status === undefined) throw error;
      calls.set([]);
      running.element.hidden = true;
      setText(noCalls, 'Not known: ' + error.message);
    }
  }

  async function showLog(actor, signal) {
    const process = [actor.restarts, actor.state].join(' ');
    if (process === logOf) return;
    try {
      setText(log, withoutEscapes(await getText(
          'logs' + query({actor: id, tail: LOG_LINES}), signal)) || 'It has printed nothing.');
      logOf = process;
    } catch (error) {
      if (error.name === 'AbortError' || error.status === undefined) throw error;
      setText(log, error.message);
    }
  }

  return {
    title: 'Actor ' + id,
    news: ['state'],
    element: make(
        'article', {testid: 'actor-detail'}, heading('Actor ' + id), facts.element,
        make('section', {}, make('h2', {}, 'Calls'), noCalls, calls.element, running.element),
        make('section', {}, make('h2', {}, make('a', {href: actorLogHref(id), testid: 'actor-log-link'}, 'Log')), log)),
    async look(signal) {
      const {actor: told, usage} = await getJson(path('actors', id), signal);
      const actor = {...told, usage};
      facts.set([
        ['State', state(actor.state, 'ACTOR_STATE_')],
        ['Cause', actor.cause],
        ['Class', actor.class_name],
        ['Name', nameOf(actor)],
        ['Job', {text: actor.job_id, href: jobHref(actor.job_id)}],
        ['Node', actor.node_id],
        ['Host', actor.hostname],
        ['Address', actor.address],
        ['Pid', num(actor.pid) || ''],
        ['Restarts', actor.restarts + ' of ' +
            (num(actor.max_restarts) < 0 ? 'any number' : actor.max_restarts)],
        ['Asks for', asked(actor)],
        ['CPUs in use', cpusOf(actor)],
        ['Memory in use', actor.usage ? memoryOf(actor) : ''],
        ['GPUs', (actor.gpus ?? []).join(', ')],
        ['Outlives its driver', actor.detached ? 'yes' : ''],
        ['Placement group', actor.placement_group_id],
        ['Created', time(actor.create_unix_ms)],
        ['Process started', time(actor.start_unix_ms)],
        ['Ended', time(actor.end_unix_ms)],
        ['Log file', actor.log_file],
      ]);
      await Promise.all([showCalls(signal), showLog(actor, signal)]);
    },
  };
}
