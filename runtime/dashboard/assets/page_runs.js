// All runs.

import {heading, make, setText} from './dom.js';
import {NO_RUNS, fetchRuns, runTable, timelineButton} from './page_parts.js';

export function runsPage() {
  const table = runTable();
  const timeline = timelineButton();
  return {
    title: 'Runs',
    news: ['runs'],
    element: make('section', {}, heading('Runs'), table.element,
                  make('p', {class: 'buttons'}, timeline.button), timeline.problem),
    async look(signal) {
      const runs = await fetchRuns(signal);
      if (runs === null) setText(table.empty, NO_RUNS);
      table.set(runs ?? []);
    },
  };
}
