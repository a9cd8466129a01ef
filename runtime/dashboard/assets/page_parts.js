// What several pages show: tables of runs, jobs and nodes.

import {Refusal, getBlob, getJson, path, query} from './api.js';
import {make, setText} from './dom.js';
import {
  bytes, epochOf, isLiveRun, jobState, num, number, percent, quantity, seconds, state, time,
} from './format.js';
import {Table} from './table.js';

export const runHref = (id) => '#/' + path('runs', id);
export const jobHref = (id) => '#/jobs?id=' + encodeURIComponent(id);
export const actorHref = (id) => '#/' + path('actors', id);
export const actorLogHref = (id) => '#/' + path('logs', 'actor', id);
export const jobLogHref = (id) => '#/' + path('logs', 'job', id);

// The runs, the newest first; null: this head keeps none.
export async function fetchRuns(signal) {
  try {
    return (await getJson('runs', signal)).runs ?? [];
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) return null;
    throw error;
  }
}

export const NO_RUNS = 'This head keeps no runs.';

export const runState = (run) => (run.stop_requested && isLiveRun(run) ?
    {text: 'stops after this epoch', tone: 'state wait'} : state(run.state, 'RUN_STATE_'));

export const runProgress = (run) => (num(run.epochs) > 0 ?
    {text: percent(run.progress), progress: num(run.progress), label: 'progress of ' + run.run_id} :
    '');

export const metricsOf = (run) => Object.entries(run.metrics ?? {})
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => name + ' ' + number(value)).join(', ');

export const etaOf = (run) => (isLiveRun(run) && num(run.eta_seconds) >= 0 ?
    seconds(run.eta_seconds) : '');

export const speedOf = (run) => (num(run.samples_per_second) > 0 ?
    number(run.samples_per_second) : '');

export const runTable = () => new Table({
  caption: 'Runs, the newest first', rowTestid: 'run-row', key: (run) => run.run_id,
  empty: 'No training has told of itself yet.',
  columns: [
    {name: 'Run', value: (run) => ({text: run.run_id, href: runHref(run.run_id)})},
    {name: 'State', value: runState, testid: 'run-state'},
    {name: 'Progress', value: runProgress, testid: 'run-progress'},
    {name: 'Epoch', value: epochOf, testid: 'run-epoch'},
    {name: 'Images/s', value: speedOf},
    {name: 'ETA', value: etaOf},
    {name: 'Last means', value: metricsOf},
    {name: 'Workers', value: (run) => run.num_workers},
    {name: 'Start', value: (run) => time(run.start_unix_ms)},
  ],
});

export const jobTable = () => new Table({
  caption: 'Jobs, the newest first', rowTestid: 'job-row', key: (job) => job.job_id,
  empty: 'No program has connected yet.',
  columns: [
    {name: 'Job', value: (job) => ({text: job.job_id, href: jobHref(job.job_id)})},
    {name: 'Program', value: (job) => job.program || (job.command ?? [])[0]},
    {name: 'State', value: jobState, testid: 'job-state'},
    {name: 'Host', value: (job) => job.hostname || job.node_id},
    {name: 'Start', value: (job) => time(num(job.start_unix_ms) || job.submit_unix_ms)},
    {name: 'End', value: (job) => time(job.end_unix_ms)},
  ],
});

const total = (node, name) => num(node.total?.quantity?.[name]);
const free = (node, name) => num(node.available?.quantity?.[name]);

// Of what actors and jobs asked for; without a total it is not offered.
function used(node, name, show = quantity) {
  const all = total(node, name);
  if (!all) return '';
  const taken = all - free(node, name);
  return {
    text: show(taken) + ' / ' + show(all), progress: taken / all,
    label: name + ' in use on ' + node.node_id,
  };
}

// Each record with what it uses, where that is known. id: what names it.
export function withUsage(records, usage, id) {
  const known = new Map((usage ?? []).map((used) => [used[id], used]));
  return records.map((record) => ({...record, usage: known.get(record[id])}));
}

function machineCpus(node) {
  const all = num(node.usage?.cpus);
  if (!all) return '';
  const busy = num(node.usage.cpus_busy);
  return {
    text: quantity(busy) + ' / ' + all, progress: Math.min(1, busy / all),
    label: 'CPUs busy on ' + node.node_id,
  };
}

function machineMemory(node) {
  const all = num(node.memory_total_bytes);
  if (!all || node.state === 'NODE_STATE_DEAD') return '';
  return {
    text: bytes(node.memory_used_bytes) + ' / ' + bytes(all),
    progress: num(node.memory_used_bytes) / all, label: 'memory in use on ' + node.node_id,
  };
}

// Of all GPUs of the node's machine that tell.
function machineGpus(node) {
  const told = (node.usage?.gpus ?? []).filter((gpu) => gpu.busy !== undefined);
  if (told.length === 0) return '';
  const busy = told.reduce((sum, gpu) => sum + num(gpu.busy), 0);
  return {
    text: quantity(busy) + ' / ' + told.length, progress: busy / told.length,
    label: 'GPUs busy on ' + node.node_id,
  };
}

function gpuMemory(node) {
  const gpus = node.usage?.gpus ?? [];
  const sum = (field) => gpus.reduce((all, gpu) => all + num(gpu[field]), 0);
  const all = sum('memory_total_bytes');
  if (!all) return '';
  return {
    text: bytes(sum('memory_used_bytes')) + ' / ' + bytes(all),
    progress: sum('memory_used_bytes') / all, label: 'GPU memory in use on ' + node.node_id,
  };
}

const others = (node) => Object.keys(node.total?.quantity ?? {})
    .filter((name) => !['CPU', 'GPU', 'memory'].includes(name)).sort()
    .map((name) => name + ' ' + used(node, name).text).join(', ');

export const nodeTable = () => new Table({
  caption: 'Nodes', rowTestid: 'node-row', key: (node) => node.node_id,
  empty: 'No node has joined: start one with miniray start --address.',
  columns: [
    {name: 'Node', value: (node) => node.node_id},
    {name: 'Host', value: (node) => node.hostname},
    {name: 'Address', value: (node) => ({text: node.address, tone: 'whole'})},
    {name: 'State', value: (node) => state(node.state, 'NODE_STATE_'), testid: 'node-state'},
    {name: 'CPU', value: machineCpus, testid: 'node-cpu'},
    {name: 'CPU given', value: (node) => used(node, 'CPU')},
    {name: 'GPU', value: machineGpus, testid: 'node-gpu', optional: true},
    {name: 'GPU memory', value: gpuMemory, testid: 'node-gpu-memory', optional: true},
    {name: 'GPU given', value: (node) => used(node, 'GPU'), optional: true},
    {name: 'Memory', value: machineMemory, testid: 'node-memory'},
    {name: 'Memory given', value: (node) => used(node, 'memory', bytes), optional: true},
    {name: 'Other', value: others, optional: true},
    {name: 'Actors', value: (node) => ({
      text: 'show', href: '#/actors?node=' + encodeURIComponent(node.node_id),
    })},
    {name: 'Cause', value: (node) => node.death_cause, optional: true},
  ],
});

// Of the nodes that live, with their usage: {CPU: {used, all}, GPU: ...}, of
// what was asked for; and measured, {cpus: ..., gpus: ..., memory: ...}.
export function inUse(nodes) {
  const sums = {};
  const add = (name, taken, all) => {
    sums[name] ??= {used: 0, all: 0};
    sums[name].used += taken;
    sums[name].all += all;
  };
  for (const node of nodes) {
    if (node.state !== 'NODE_STATE_ALIVE') continue;
    for (const name of ['CPU', 'GPU']) {
      const all = total(node, name);
      add(name, all - free(node, name), all);
    }
    add('cpus', num(node.usage?.cpus_busy), num(node.usage?.cpus));
    for (const gpu of node.usage?.gpus ?? []) {
      if (gpu.busy !== undefined) add('gpus', num(gpu.busy), 1);
    }
    add('memory', num(node.memory_used_bytes), num(node.memory_total_bytes));
  }
  return sums;
}

// A button that saves the trace of what happened. parameters: of which run or
// job; none: the newest calls of all, and the runs that went on meanwhile.
export function timelineButton(parameters = {}) {
  const problem = make('p', {class: 'problem', role: 'alert', testid: 'timeline-problem'});
  const button = make('button', {
    type: 'button', testid: 'timeline',
    title: 'A trace of calls and runs, for ui.perfetto.dev or chrome://tracing',
  }, 'Save the timeline');
  button.addEventListener('click', async () => {
    button.disabled = true;
    setText(problem, '');
    try {
      const url = URL.createObjectURL(await getBlob('timeline' + query(parameters)));
      make('a', {href: url, download: 'miniray-timeline.json'}).click();
      // A minute is enough for the browser to have begun.
      setTimeout(() => URL.revokeObjectURL(url), 60000);
    } catch (error) {
      setText(problem, 'The timeline did not come: ' + error.message);
    }
    button.disabled = false;
  });
  return {button, problem};
}
