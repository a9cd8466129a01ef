// All nodes, dead ones too.

import {getJson} from './api.js';
import {heading, make} from './dom.js';
import {nodeTable, withUsage} from './page_parts.js';

export function nodesPage() {
  const table = nodeTable();
  return {
    title: 'Nodes',
    news: ['state'],
    element: make('section', {}, heading('Nodes'), table.element),
    async look(signal) {
      const {nodes, usage} = await getJson('nodes?limit=1000', signal);
      table.set(withUsage(nodes, usage, 'node_id'));
    },
  };
}
