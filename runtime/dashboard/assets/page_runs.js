// All runs.

import {heading, make, setText} from './dom.js';
import {NO_RUNS, fetchRuns, runTable} from './page_parts.js';

export function runsPage() {
  const table = runTable();
  return {
    title: 'Runs',
    news: ['runs'],
    element: make('section', {}, heading('Runs'), table.element),
    async look(signal) {
      const runs = await fetchRuns(signal);
      if (runs === null) setText(table.empty, NO_RUNS);
      table.set(runs ?? []);
    },
  };
}
