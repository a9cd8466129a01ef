// Which part of a long list is shown: the address says it, so that it can be
// passed on.

import {query} from './api.js';
import {make, setText} from './dom.js';
import {num} from './format.js';

export class Pager {
  // page: '#/PAGE'; parameters: of the address, which stay but for the offset.
  constructor(page, parameters, limit) {
    this.page = page;
    this.parameters = parameters;
    this.limit = limit;
    this.offset = Math.max(0, Math.floor(num(parameters.get('offset'))) || 0);
    this.where = make('span', {testid: 'pager-where'});
    this.before = make('a', {testid: 'pager-before'}, 'Previous');
    this.after = make('a', {testid: 'pager-after'}, 'Next');
    this.element = make('nav', {class: 'pages', 'aria-label': 'Parts of the list'},
                        this.before, this.where, this.after);
  }

  href(offset) {
    return '#/' + this.page +
        query({...Object.fromEntries(this.parameters), offset: offset > 0 ? offset : ''});
  }

  set(total) {
    const end = Math.min(this.offset + this.limit, total);
    setText(this.where, total === 0 ? '' :
        this.offset < total ? (this.offset + 1) + '–' + end + ' of ' + total :
                              'behind the last of ' + total);
    this.before.hidden = this.offset === 0;
    this.before.setAttribute('href', this.href(Math.max(0, this.offset - this.limit)));
    this.after.hidden = end >= total;
    this.after.setAttribute('href', this.href(this.offset + this.limit));
  }
}
