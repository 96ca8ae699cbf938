/**
 * The error of each lossy lane's K and V: layers by KV heads, K and V side by side. Each lane has its own scale,
 * because the errors differ by orders of magnitude; a bar below each map compares the scales.
 */
import { h, replace, setText } from '../../ui/dom.js';
import { fill, percent } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { laneMark } from './lane-mark.js';
import { lossyLanes, niceTop } from './model.js';
/** @import { Ctx } from '../../core/types.d.ts' */
/** @import { LaneErrorsMeasured } from '../../core/events.d.ts' */
/** @import { Lanes } from './model.js' */

const t = texts.compare.errors;

export class CompareErrors {
  /** @type {(LaneErrorsMeasured|null)[]} */
  shown = [];
  key = '';

  /** @param {Ctx} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.note = h('p', { class: 'fine-note compare-note' });
    this.maps = h('div', { class: 'cluster compare-maps' });
    this.root = h('figure', { class: 'compare-errors' }, h('figcaption', {}, t.title), this.maps, this.note);
  }

  /** @param {Lanes} lanes */
  update(lanes) {
    const lossy = lossyLanes(lanes);
    const found = lossy.map((lane) => lane.errors);
    const key = `${lanes.key}/${this.ctx.palette.version}`;
    if (key === this.key && found.length === this.shown.length && found.every((one, i) => one === this.shown[i]))
      return;
    this.key = key;
    this.shown = found;
    const known = lossy.filter((lane) => lane.errors !== null);
    const most = Math.max(0, ...known.map(({ errors }) => largestOf(errors)));
    setText(
      this.note,
      lossy.length === 0
        ? t.exactOnly
        : known.length === 0
          ? t.pending
          : fill(known.length > 1 ? t.note : t.noteOne, { n: known[0].errors?.num_tokens ?? 0 }),
    );
    replace(
      this.maps,
      known.map((lane) => this.#lane(lane, most)),
    );
  }

  /** @param {import('./model.js').Lane} lane @param {number} most largest error of all lanes */
  #lane({ index, header, errors: measured }, most) {
    const errors = /** @type {LaneErrorsMeasured} */ (measured);
    const largest = largestOf(errors);
    const name = h('div', { class: 'compare-map-name' }, laneMark(index), h('code', {}, header.spec));
    if (largest === 0)
      return h(
        'div',
        { class: 'compare-map' },
        name,
        h(
          'p',
          { class: 'small-note compare-map-zero' },
          h('strong', {}, t.zero),
          ' ',
          header.family === 'bits' ? t.zeroBits : t.zeroOther,
        ),
      );
    const top = niceTop(largest);
    const text = textOf(header.spec, errors);
    const halves = [
      /** @type {const} */ ([t.k, errors.key_error, 'word-k']),
      /** @type {const} */ ([t.v, errors.value_error, 'word-v']),
    ];
    return h(
      'div',
      { class: 'compare-map' },
      name,
      h(
        'div',
        { class: 'compare-map-pair', role: 'img', 'aria-label': text, title: text },
        halves.map(([letter, map, word]) =>
          h('div', { class: 'compare-map-half' }, h('strong', { class: word }, letter), this.#map(map, top)),
        ),
      ),
      h(
        'p',
        { class: 'compare-scale' },
        h('span', { class: 'lens-number' }, '0'),
        h('span', { class: 'ramp' }),
        h('span', { class: 'lens-number' }, percent(top)),
      ),
      h(
        'p',
        { class: 'small-note compare-largest' },
        h('span', { class: 'largest-bar', 'aria-hidden': 'true', style: { '--share': (largest / most).toFixed(4) } }),
        fill(t.largest, { max: percent(largest) }),
      ),
    );
  }

  /** One cell per pixel, enlarged by the stylesheet; layer 0 at the bottom.
   * @param {readonly (readonly number[])[]} map @param {number} most @returns {HTMLCanvasElement} */
  #map(map, most) {
    const heads = map[0]?.length ?? 1;
    const canvas = h('canvas', {
      class: 'compare-map-cells',
      width: heads,
      height: map.length,
      'aria-hidden': 'true',
      style: { '--heads': heads, '--layers': map.length },
    });
    const context = canvas.getContext('2d');
    if (!context) return canvas;
    const table = this.ctx.palette.magnitude();
    const image = new ImageData(heads, map.length);
    const words = new Uint32Array(image.data.buffer);
    map.forEach((row, layer) =>
      row.forEach((value, head) => {
        words[(map.length - 1 - layer) * heads + head] =
          table[Math.round(255 * (most > 0 ? Math.min(1, value / most) : 0))];
      }),
    );
    context.putImageData(image, 0, 0);
    return canvas;
  }
}

/** @param {LaneErrorsMeasured|null} errors @returns {number} */
function largestOf(errors) {
  return errors ? Math.max(0, ...errors.key_error.flat(), ...errors.value_error.flat()) : 0;
}

/** @param {string} lane @param {LaneErrorsMeasured} errors @returns {string} */
function textOf(lane, { key_error: keys, value_error: values }) {
  const about = (/** @type {readonly (readonly number[])[]} */ map) => {
    const all = map.flat();
    const most = Math.max(0, ...all);
    return {
      mean: percent(all.reduce((sum, value) => sum + value, 0) / Math.max(1, all.length)),
      max: percent(most),
      layer: map.findIndex((row) => row.includes(most)),
    };
  };
  const [k, v] = [about(keys), about(values)];
  return fill(t.one, { lane, k: k.mean, kMax: k.max, kLayer: k.layer, v: v.mean, vMax: v.max, vLayer: v.layer });
}
