/** Common claims about KV caches, next to the measurements of this run's lanes. */
import { h, setText } from '../../ui/dom.js';
import { count, fill } from '../../ui/format.js';
import { headOf } from '../../ui/table.js';
import { texts } from '../shared/texts.js';
/** @import { Lane, Lanes } from './model.js' */

const t = texts.compare.claims;

/** The claim is `over` ÷ `under`; `lanes` must be in the run.
 * @typedef {{name: 'cache'|'utilisation'|'heads'|'bits', over: (lane: Lane) => boolean, under: (lane: Lane) => boolean, value: (lane: Lane) => number|null, need: readonly string[]}} Claim */

/** @param {string} name */
const named = (name) => (/** @type {Lane} */ lane) => partsOf(lane).some((part) => part === name);
/** @param {Lane} lane */
const partsOf = (lane) => lane.header.spec.split('+').map((part) => part.split(/[=,]/)[0]);
/** Lanes that cache nothing, or reserve, by name. */
const NO_CACHE = /^no[-_]?cache$/;
const CONTIGUOUS = /^(contiguous|reserved?)$/;
/** @param {Lane} lane */
const isPlain = (lane) =>
  lane.header.exact && !partsOf(lane).some((part) => NO_CACHE.test(part) || CONTIGUOUS.test(part));

/** @type {Claim[]} */
const CLAIMS = [
  {
    name: 'cache',
    over: (lane) => partsOf(lane).some((part) => NO_CACHE.test(part)),
    under: (lane) => lane.index === 0 && isPlain(lane),
    value: (lane) => lane.figures?.ms_per_token ?? null,
    need: ['no-cache'],
  },
  {
    name: 'utilisation',
    over: (lane) => partsOf(lane).some((part) => CONTIGUOUS.test(part)),
    under: (lane) => lane.index === 0 && isPlain(lane),
    value: (lane) => lane.figures?.held_bytes ?? null,
    need: ['contiguous'],
  },
  {
    name: 'heads',
    over: named('mha'),
    under: named('gqa'),
    value: (lane) => lane.header.bytes_per_token,
    need: ['mha', 'gqa'],
  },
  {
    name: 'bits',
    over: (lane) => lane.index === 0,
    under: (lane) => partsOf(lane).some((part) => part === 'int8' || part === 'int4'),
    value: (lane) => lane.header.bytes_per_token,
    need: ['int8'],
  },
];

export class CompareClaims {
  /** @type {{row: HTMLElement, claim: HTMLElement, measured: HTMLElement, from: HTMLElement}[]} */
  cells = [];

  constructor() {
    this.body = h('tbody', {});
    this.root = h(
      'table',
      { class: 'compare-claims' },
      h('caption', {}, t.title),
      headOf([t.claim, t.measured, t.from]),
      this.body,
    );
  }

  /** @param {Lanes} lanes */
  update({ lanes, count: numNew, request }) {
    const tokens = (request?.promptLength ?? 0) + numNew;
    const rows = CLAIMS.flatMap((claim) => rowsOf(claim, lanes, tokens));
    while (this.cells.length > rows.length) this.cells.pop()?.row.remove();
    rows.forEach(({ claim, measured, from }, i) => {
      if (!this.cells[i]) {
        const cells = { claim: h('th', { scope: 'row' }), measured: h('strong', {}), from: h('td', {}) };
        const row = h('tr', {}, cells.claim, h('td', {}, cells.measured), cells.from);
        this.cells.push({ row, ...cells });
        this.body.append(row);
      }
      setText(this.cells[i].claim, claim);
      setText(this.cells[i].measured, measured);
      setText(this.cells[i].from, from);
    });
  }
}

/** @param {Claim} claim @param {readonly Lane[]} lanes @param {number} tokens @returns {{claim: string, measured: string, from: string}[]} */
function rowsOf({ name, over, under, value, need }, lanes, tokens) {
  const [text, from] = t[name];
  const high = lanes.find(over);
  const lows = lanes.filter((lane) => lane !== high && under(lane));
  const rows = lows.flatMap((low) => {
    const [a, b] = [high && value(high), value(low)];
    if (!a || !b) return [];
    const times = a / b;
    return [
      {
        claim: text,
        measured: `${times >= 9.95 ? times.toFixed(0) : times.toFixed(times < 0.995 ? 2 : 1)}×`,
        from: fill(from, { n: count(tokens), lane: low.header.spec }),
      },
    ];
  });
  if (rows.length > 0) return rows;
  const missing = need.filter((part) => !lanes.some((lane) => partsOf(lane).includes(part)));
  return [{ claim: text, measured: t.none, from: fill(t.add, { lanes: missing.join(t.and) || need.join(t.and) }) }];
}
