// Jobs: a page of the list, and one of them in detail.

import {getJson, path, post, query} from './api.js';
import {confirmed, Facts, heading, make, setText} from './dom.js';
import {jobState, num, time} from './format.js';
import {fetchRuns, jobLogHref, jobTable, runTable} from './page_parts.js';
import {Pager} from './pager.js';

const LIMIT = 50;
const goesOn = (job) => ['JOB_STATE_PENDING', 'JOB_STATE_RUNNING'].includes(job.state);

export function jobsPage(parameters) {
  return parameters.get('id') ? jobPage(parameters.get('id')) : jobListPage(parameters);
}

function jobListPage(parameters) {
  const table = jobTable();
  const pager = new Pager('jobs', parameters, LIMIT);
  return {
    title: 'Jobs',
    news: ['state'],
    element: make('section', {}, heading('Jobs'), table.element, pager.element),
    async look(signal) {
      const answer = await getJson(
          'jobs' + query({limit: LIMIT, offset: pager.offset}), signal);
      table.set(answer.jobs);
      pager.set(answer.total);
    },
  };
}

function jobPage(id) {
  const facts = new Facts('job-facts');
  const runs = runTable();
  const runSection = make('section', {}, make('h2', {}, 'Runs'), runs.element);
  const stop = make('button', {type: 'button', class: 'danger', testid: 'stop-job'}, 'Stop this job');
  stop.hidden = true;
  const problem = make('p', {class: 'problem', role: 'alert'});
  stop.addEventListener('click', async () => {
    const question = 'Stop the job ' + id + '? Its driver is ended at once, and its actors with it.';
    if (!await confirmed(question, 'Stop the job')) return;
    stop.disabled = true;
    try {
      await post(path('jobs', id, 'stop'));
      setText(problem, '');
    } catch (error) {
      setText(problem, 'It was not stopped: ' + error.message);
    }
    stop.disabled = false;
  });
  return {
    title: id,
    news: ['state', 'runs'],
    element: make(
        'article', {testid: 'job-detail'}, heading(id), facts.element,
        make('p', {class: 'buttons'}, stop), problem,
        make('p', {}, make('a', {href: '#/actors?state=living&job=' + encodeURIComponent(id)},
                           'Its actors')),
        runSection),
    async look(signal) {
      const [{job}, all] = await Promise.all([getJson(path('jobs', id), signal), fetchRuns(signal)]);
      const mine = (all ?? []).filter((run) => run.job_id === id);
      stop.hidden = !goesOn(job);
      facts.set([
        ['State', jobState(job)],
        ['Program', job.program],
        ['Command', (job.command ?? []).join(' ')],
        ['Host', job.hostname],
        ['Node', job.node_id],
        ['Pid', num(job.pid) || ''],
        ['Cause', job.cause],
        ['Exit code', job.submitted && !goesOn(job) ? String(job.exit_code) : ''],
        ['Submitted by', job.submitter],
        ['Submitted', time(job.submit_unix_ms)],
        ['Start', time(job.start_unix_ms)],
        ['End', time(job.end_unix_ms)],
        ['Log', job.submitted ? {text: job.log_file || 'show', href: jobLogHref(id)} :
                                'where the program was started'],
      ]);
      runSection.hidden = mine.length === 0;
      runs.set(mine);
    },
  };
}
