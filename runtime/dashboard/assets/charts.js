// Curves and bars (Chart.js, loaded before the modules), updated in place and
// without animation: what is drawn is at most as many points as were asked for.
// Beside each picture stand its last values as text.

import {make, setText} from './dom.js';
import {num, number} from './format.js';

// Told apart by people who see few colours too, on light and on dark.
const COLOURS = [
  '#4477aa', '#ee6677', '#228833', '#ccbb44', '#66ccee', '#aa3377', '#e07b39', '#7a8290',
];
const colour = (i) => COLOURS[i % COLOURS.length];

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const dark = matchMedia('(prefers-color-scheme: dark)');

class Figure {
  constructor({title, testid, config}) {
    this.canvas = make('canvas', {role: 'img', 'aria-label': title, testid});
    this.lines = make('ul', {testid: testid + '-values'});
    this.element = make(
        'div', {class: 'chart'}, make('h3', {}, title),
        make('div', {class: 'canvas'}, this.canvas),
        make('details', {}, make('summary', {}, 'Last values'), this.lines));
    this.title = title;
    this.config = config;
    config.options = {
      animation: false, responsive: true, maintainAspectRatio: false, parsing: false,
      normalized: true, interaction: {mode: 'nearest', axis: 'x', intersect: false},
      ...config.options,
    };
    this.chart = new globalThis.Chart(this.canvas, config);
    this.recolour = () => {
      this.colours();
      this.chart.update('none');
    };
    dark.addEventListener('change', this.recolour);
    this.colours();
  }

  colours() {
    const [text, line] = [style('--soft'), style('--line')];
    const {options} = this.config;
    for (const scale of Object.values(options.scales)) {
      scale.ticks = {...scale.ticks, color: text};
      scale.grid = {...scale.grid, color: line};
      scale.title = {...scale.title, color: text};
    }
    options.plugins.legend.labels.color = style('--text');
  }

  // texts: [name, what it is now]
  tell(texts) {
    setText(this.lines, '');
    for (const [name, text] of texts) {
      this.lines.append(make('li', {}, name + ': ' + text));
    }
    this.canvas.setAttribute(
        'aria-label', this.title + (texts.length ? '; now ' + texts[0][0] + ' ' + texts[0][1] : ''));
  }

  close() {
    dark.removeEventListener('change', this.recolour);
    this.chart.destroy();
  }
}

const legend = {position: 'bottom', labels: {boxWidth: 12, boxHeight: 2}};

// Curves of one metric over the epochs.
export class Curves extends Figure {
  constructor(metric) {
    super({
      title: metric, testid: 'chart-' + metric,
      config: {
        type: 'line', data: {datasets: []},
        options: {
          plugins: {legend},
          scales: {
            x: {type: 'linear', title: {display: true, text: 'epoch'}, ticks: {maxTicksLimit: 8}},
            y: {type: 'linear', ticks: {maxTicksLimit: 6}},
          },
        },
      },
    });
    this.sets = new Map();
  }

  // curves: [{name, mean, epochs, values}], the mean first.
  set(curves) {
    let points = 0;
    this.chart.data.datasets = curves.map((curve, i) => {
      const data = curve.epochs.map((epoch, at) => {
        const y = num(curve.values[at]);
        return {x: num(epoch), y: Number.isFinite(y) ? y : NaN};
      });
      points += data.length;
      const set = this.sets.get(curve.name) ?? {
        label: curve.name, borderColor: curve.mean ? colour(0) : colour(1 + (i - 1) % 7),
        backgroundColor: 'transparent', borderWidth: curve.mean ? 2.5 : 1,
        pointHitRadius: 6, tension: 0, order: curve.mean ? 0 : 1,
      };
      this.sets.set(curve.name, set);
      set.pointRadius = data.length < 2 ? 3 : 0;  // A curve of one point is a dot.
      set.data = data;
      return set;
    });
    this.canvas.dataset.points = String(points);
    this.frameConstant();
    this.chart.update('none');
    this.tell(curves.map((curve) => [
      curve.name,
      curve.values.length === 0 ? 'none' :
          number(curve.values[curve.values.length - 1]) + ' at epoch ' +
              number(curve.epochs[curve.epochs.length - 1]),
    ]));
  }

  // Chart.js gives a constant an axis of 1 above and below it, where a learning
  // rate of 2e-4 looks like 0.
  frameConstant() {
    let [min, max] = [Infinity, -Infinity];
    for (const {data} of this.chart.data.datasets) {
      for (const {y} of data) {
        if (y < min) min = y;
        if (y > max) max = y;
      }
    }
    const margin = min === max ? Math.abs(min) / 10 : 0;
    const axis = this.config.options.scales.y;
    axis.suggestedMin = margin > 0 ? min - margin : undefined;
    axis.suggestedMax = margin > 0 ? max + margin : undefined;
  }
}

// Bars that stand on each other.
export class Stacks extends Figure {
  // parts: their names, from below.
  constructor({title, testid, parts, xTitle, yTitle}) {
    super({
      title, testid,
      config: {
        type: 'bar',
        data: {
          datasets: parts.map((label, i) => ({
            label, backgroundColor: colour(i), data: [], categoryPercentage: 1, barPercentage: .9,
          })),
        },
        options: {
          plugins: {legend: {...legend, labels: {boxWidth: 12, boxHeight: 12}}},
          interaction: {mode: 'index', axis: 'x', intersect: false},
          scales: {
            x: {
              type: 'category', stacked: true, title: {display: true, text: xTitle},
              ticks: {maxTicksLimit: 8, maxRotation: 0}, grid: {display: false},
            },
            y: {
              type: 'linear', stacked: true, beginAtZero: true,
              title: {display: true, text: yTitle}, ticks: {maxTicksLimit: 6},
            },
          },
        },
      },
    });
    this.parts = parts;
  }

  // bars: [{x, values}], a value for each part. show: a value as text.
  set(bars, show) {
    this.chart.data.labels = bars.map(({x}) => x);
    this.chart.data.datasets.forEach((set, part) => {
      set.data = bars.map(({x, values}, at) => ({x: at, y: values[part]}));
    });
    this.canvas.dataset.points = String(bars.length);
    this.chart.update('none');
    const last = bars[bars.length - 1];
    this.tell(last ? this.parts.map((name, part) => [name, show(last.values[part])]) : []);
  }
}
