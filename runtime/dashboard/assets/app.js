// The frame of the pages: which one is shown, when it looks for news, the
// banner, and the token.

import {Refusal, Unreachable, canBeToken, hasToken, setToken, whenRefused} from './api.js';
import {Live} from './live.js';
import {make, setText} from './dom.js';
import {overviewPage} from './page_overview.js';
import {runsPage} from './page_runs.js';
import {runPage} from './page_run.js';
import {jobsPage} from './page_jobs.js';
import {actorsPage, actorPage} from './page_actors.js';
import {nodesPage} from './page_nodes.js';
import {serversPage} from './page_servers.js';
import {logsPage} from './page_logs.js';

// Between the beginnings of two looks.
const MIN_LOOK_MS = 500;
// A look that takes longer waits for a connection that is no more, as after the
// machine has slept.
const MAX_LOOK_MS = 60000;

// '#/runs/ID?x=y' -> {name: 'runs', args: ['ID'], parameters}
function place() {
  const [whole, search = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = whole.split('/').filter((part) => part !== '').map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return {
    name: parts[0] ?? 'overview', args: parts.slice(1), parameters: new URLSearchParams(search),
  };
}

// A page is {title, element, news, look(signal), close()}: `news` names what it
// wants to hear of ('state', 'runs'); look() fetches and shows; close() is
// optional.
function pageOf({name, args, parameters}) {
  switch (name) {
    case 'overview': return overviewPage();
    case 'runs': return args.length > 0 ? runPage(args[0]) : runsPage();
    case 'jobs': return jobsPage(parameters);
    case 'actors': return args.length > 0 ? actorPage(args[0]) : actorsPage(parameters);
    case 'nodes': return nodesPage();
    case 'servers': return serversPage();
    case 'logs': return logsPage(args, parameters);
    default:
      return {
        title: 'No such page', news: [], look: async () => {},
        element: make('section', {}, make('h1', {tabindex: '-1'}, 'There is no such page'),
                      make('p', {}, make('a', {href: '#/overview'}, 'Overview'))),
      };
  }
}

const main = document.getElementById('main');
const banner = document.getElementById('banner');
const problem = make('p', {class: 'problem', role: 'alert', testid: 'problem'});

let page = null;
let closing = null;      // Aborts what the page fetches.
let looking = false;
let again = false;       // Something changed while it looked.
let lastLook = 0;
let timer = 0;

function say(text) {
  setText(problem, text);
}

async function look() {
  timer = 0;
  if (!page) return;
  if (looking) {
    again = true;
    return;
  }
  looking = true;
  again = false;
  lastLook = Date.now();
  const [shown, leaving] = [page, closing.signal];
  const ending = new AbortController();
  const end = () => ending.abort();
  leaving.addEventListener('abort', end);
  const limit = setTimeout(() => {
    again = true;
    end();
  }, MAX_LOOK_MS);
  try {
    await shown.look(ending.signal);
    if (shown === page) say('');
  } catch (error) {
    // Whether the head answers, the banner tells.
    if (shown === page && error.name !== 'AbortError') {
      if (error instanceof Refusal) {
        say(error.status === 401 ? '' : error.message);
      } else if (!(error instanceof Unreachable)) {
        say('This page failed: ' + error.message);
        throw error;
      }
    }
  } finally {
    clearTimeout(limit);
    leaving.removeEventListener('abort', end);
    looking = false;
    if (again) lookSoon();
  }
}

function lookSoon() {
  if (looking) {
    again = true;
  } else if (!timer) {
    timer = setTimeout(look, Math.max(0, lastLook + MIN_LOOK_MS - Date.now()));
  }
}

function show({first}) {
  const where = place();
  closing?.abort();
  page?.close?.();
  closing = new AbortController();
  page = pageOf(where);
  say('');
  main.replaceChildren(problem, page.element);
  main.dataset.testid = 'page-' + where.name;
  document.title = page.title + ' · Mini-Ray';
  for (const link of document.querySelectorAll('nav a')) {
    if (link.dataset.page === where.name) {
      link.setAttribute('aria-current', 'page');
    } else {
      link.removeAttribute('aria-current');
    }
  }
  // Who cannot see it hears which page it is now.
  if (!first) {
    scrollTo(0, 0);
    (page.element.querySelector('h1') ?? main).focus();
  }
  lastLook = 0;
  lookSoon();
}

const live = new Live({
  onTrouble: (text) => setText(banner, text),
  onNews: (news) => {
    if (page?.news.some((name) => news[name])) lookSoon();
  },
  onRefused: askForToken,
});

function askForToken() {
  const dialog = document.getElementById('token-dialog');
  if (dialog.open) return;
  setText(document.getElementById('token-wrong'),
          hasToken() ? 'The token that this tab has is not the cluster’s.' : '');
  dialog.showModal();
}

document.getElementById('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const input = document.getElementById('token');
  const text = input.value.trim();
  input.value = '';
  if (!canBeToken(text)) {
    setText(document.getElementById('token-wrong'),
            'That is no token: it has other characters than ASCII’s letters, digits and punctuation.');
    input.focus();
    return;
  }
  setToken(text);
  document.getElementById('token-dialog').close();
  show({first: true});
  live.start();
});
// Without the token there is nothing to see.
document.getElementById('token-dialog').addEventListener('cancel', (event) => event.preventDefault());
whenRefused(askForToken);

document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();  // The hash names the page.
  main.focus();
});
addEventListener('hashchange', () => show({first: false}));

show({first: true});
live.start();
