// The parameter servers of the newest runs.

import {getJson, path} from './api.js';
import {heading, make, setText} from './dom.js';
import {num} from './format.js';
import {NO_RUNS, fetchRuns, runHref} from './page_parts.js';
import {serverTable} from './page_run.js';

const RUNS = 20;

export function serversPage() {
  const table = serverTable([
    {name: 'Run', value: (server) => ({text: server.run_id, href: runHref(server.run_id)})},
  ]);
  // A run that has not changed is not asked again.
  const known = new Map();
  return {
    title: 'Parameter servers',
    news: ['runs'],
    element: make('section', {}, heading('Parameter servers'),
                  make('p', {class: 'soft'}, 'Of the ' + RUNS + ' newest runs that have synchronised.'),
                  table.element),
    async look(signal) {
      const runs = await fetchRuns(signal);
      if (runs === null) setText(table.empty, NO_RUNS);
      const rows = [];
      for (const run of (runs ?? []).filter((one) => num(one.num_syncs) > 0).slice(0, RUNS)) {
        let found = known.get(run.run_id);
        if (!found || found.version !== run.version) {
          const answer = await getJson(path('runs', run.run_id) + '?points=2', signal);
          found = {version: run.version, servers: answer.servers ?? []};
          known.set(run.run_id, found);
        }
        rows.push(...found.servers.map((server) => ({...server, run_id: run.run_id})));
      }
      table.set(rows);
    },
  };
}
