/** The measured figures of all lanes as a table: a row per figure, a column per lane. */
import { h, replace, setText } from '../../ui/dom.js';
import { bytes, count, duration, fill, percent, small } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { timesText } from './lane-lead.js';
import { laneMark } from './lane-mark.js';
import { badgeOf } from './text.js';
/** @import { Ctx } from '../../core/types.d.ts' */
/** @import { Lane, Lanes } from './model.js' */
/** @import { LaneFigures } from '../../core/lane-figures.js' */

const t = texts.compare.figures;

/** Times differ by this much between runs. */
const NOISE = 0.1;

/** `value`: text of the cell; `of`: the number compared with the reference; `when`: whether the row is shown.
 * @typedef {{name: keyof typeof t & string, value: (figures: LaneFigures, lane: Lane) => string, of?: (figures: LaneFigures, lane: Lane) => number|null, when?: (lanes: readonly Lane[]) => boolean}} FigureRow */

/** @param {LaneFigures} figures */
const lossless = (figures) => figures.mean_kl === 0;

/** @type {FigureRow[]} */
const ROWS = [
  {
    name: 'bytes_per_token',
    value: (_, lane) => `${count(lane.header.bytes_per_token)} B`,
    of: (_, lane) => lane.header.bytes_per_token,
  },
  { name: 'held_bytes', value: (one) => bytes(one.held_bytes), of: (one) => one.held_bytes },
  { name: 'read_bytes', value: (one) => bytes(one.read_bytes), of: (one) => one.read_bytes },
  { name: 'kv_projections', value: (one) => count(one.kv_projections), of: (one) => one.kv_projections },
  {
    name: 'copied_bytes',
    value: (one) => bytes(one.copied_bytes),
    when: (lanes) => lanes.some((lane) => (lane.figures?.copied_bytes ?? 0) > 0),
  },
  {
    name: 'kept_share',
    value: (one) => percent(one.kept_share),
    when: (lanes) => lanes.some((lane) => (lane.figures?.kept_share ?? 1) < 1),
  },
  {
    name: 'first_token_ms',
    value: (one) =>
      one.num_hit_tokens > 0
        ? fill(t.hit, { time: duration(one.first_token_ms), n: count(one.num_hit_tokens) })
        : duration(one.first_token_ms),
    of: (one) => one.first_token_ms,
  },
  {
    name: 'ms_per_token',
    value: (one) => (one.ms_per_token === null ? t.not : duration(one.ms_per_token)),
    of: (one) => one.ms_per_token,
  },
  { name: 'mean_kl', value: (one) => (lossless(one) ? '0' : small(one.mean_kl)) },
  { name: 'top1_agreement', value: (one) => percent(one.top1_agreement) },
  {
    name: 'first_divergence',
    value: (one) => (one.first_divergence === null ? t.never : fill(t.at, { n: one.first_divergence })),
  },
  { name: 'perplexity', value: (one) => (one.perplexity < 100 ? one.perplexity.toFixed(2) : count(one.perplexity)) },
  { name: 'max_abs_logit_diff', value: (one) => small(one.max_abs_logit_diff) },
  {
    name: 'needle',
    value: (_, lane) => (lane.needle ? (lane.needle.found ? t.found : t.lost) : t.not),
    when: (lanes) => lanes.some((lane) => lane.needle),
  },
];

export class CompareFigures {
  /** @type {Map<string, {root: HTMLElement, cells: {value: HTMLElement, ratio: HTMLElement}[]}>} */
  rows = new Map();
  key = '';

  /** @param {Ctx} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.caption = h('caption', {});
    this.head = h('thead', {});
    this.body = h('tbody', {});
    this.root = h('table', { class: 'compare-figures' }, this.caption, this.head, this.body);
  }

  /** @param {Lanes} lanes @param {string} sessionId */
  update(lanes, sessionId) {
    setText(this.caption, fill(t.caption, { letter: lanes.request?.letter ?? '', n: lanes.count, all: lanes.planned }));
    const key = `${sessionId}/${lanes.key}`;
    if (key !== this.key) this.#build(lanes, sessionId);
    this.key = key;
    for (const row of ROWS) {
      const there = this.rows.get(row.name);
      if (!there) continue;
      there.root.hidden = row.when ? !row.when(lanes.lanes) : false;
      lanes.lanes.forEach((lane, i) => {
        const { figures } = lane;
        const { value, ratio } = there.cells[i];
        setText(value, figures ? row.value(figures, lane) : t.not);
        setText(
          ratio,
          row.of ? this.#ratio(row.of, lane, lanes.lanes[0], row.name.includes('ms') ? NOISE : 0.005) : '',
        );
        if (row.name === 'max_abs_logit_diff') value.classList.toggle('compare-bad', badgeOf(lane).kind === 'wrong');
      });
    }
  }

  /** The ratio to the reference.
   * @param {NonNullable<FigureRow['of']>} of @param {Lane} lane @param {Lane} reference @param {number} least difference that is said @returns {string} */
  #ratio(of, lane, reference, least) {
    if (lane.index === 0 || !lane.figures || !reference.figures) return '';
    const own = of(lane.figures, lane);
    const other = of(reference.figures, reference);
    if (!own || !other || Math.abs(own / other - 1) < least) return '';
    return fill(t.times, { x: timesText(own / other) });
  }

  /** @param {Lanes} lanes @param {string} sessionId */
  #build(lanes, sessionId) {
    this.rows.clear();
    replace(
      this.head,
      h(
        'tr',
        {},
        h('th', { scope: 'col' }, h('span', { class: 'visually-hidden' }, t.figure)),
        lanes.lanes.map((lane) =>
          h(
            'th',
            { scope: 'col', title: `${lane.title}: ${lane.header.about}` },
            laneMark(lane.index),
            h('code', {}, lane.header.spec),
          ),
        ),
      ),
    );
    replace(
      this.body,
      ROWS.map((row) => {
        const [title, hint] = /** @type {string[]} */ (t[row.name]);
        const cells = lanes.lanes.map(() => ({
          value: h('span', { class: 'compare-value' }),
          ratio: h('span', { class: 'fine-note compare-ratio' }),
        }));
        const root = h(
          'tr',
          { data: { figure: row.name } },
          h('th', { scope: 'row', title: hint }, title),
          cells.map(({ value, ratio }) => h('td', {}, value, ratio)),
        );
        this.rows.set(row.name, { root, cells });
        return root;
      }),
      this.#links(lanes, sessionId),
    );
  }

  /** Each lane has its own log, which every lens can show. @param {Lanes} lanes @param {string} sessionId */
  #links(lanes, sessionId) {
    const [title, hint] = t.open;
    const link = (/** @type {Lane} */ lane, /** @type {'cache'|'pages'} */ lens, /** @type {string} */ text) =>
      h(
        'a',
        {
          href: `?session=${encodeURIComponent(`${sessionId}.${lane.index}`)}&lens=${lens}`,
          'aria-label': fill(t.openLabel, { lane: lane.header.spec, lens: text }),
        },
        text,
      );
    return h(
      'tr',
      { data: { figure: 'open' } },
      h('th', { scope: 'row', title: hint }, title),
      lanes.lanes.map((lane) =>
        h(
          'td',
          {},
          lane.index === 0
            ? h('span', { class: 'fine-note compare-ratio' }, t.here)
            : h('span', { class: 'compare-links' }, link(lane, 'cache', t.openCache), link(lane, 'pages', t.openPages)),
        ),
      ),
    );
  }
}
