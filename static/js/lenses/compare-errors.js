/** How far each lossy lane's K and V are from the reference's: layers by KV heads, K and V side by side, on one scale. */
import { h, replace, setText } from '../dom.js';
import { percent, fill } from '../text.js';
import { lossyLanes } from './compare-model.js';
import { laneMark } from './lane-mark.js';
import { texts } from './texts.js';

/** @typedef {import('../types.d.ts').Ctx} Ctx */
/** @typedef {import('../events.d.ts').LaneErrorsMeasured} LaneErrorsMeasured */
/** @typedef {import('./compare-model.js').Lanes} Lanes */

const t = texts.compare.errors;

export class CompareErrors {
  /** @type {(LaneErrorsMeasured|null)[]} */
  shown = [];
  key = '';

  /** @param {Ctx} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.note = h('p', { class: 'compare-note' });
    this.maps = h('div', { class: 'compare-maps' });
    this.scale = h('p', { class: 'compare-scale' });
    this.root = h('figure', { class: 'compare-errors' }, h('figcaption', {}, t.title), this.maps, this.scale, this.note);
  }

  /** @param {Lanes} lanes */
  update(lanes) {
    const lossy = lossyLanes(lanes);
    const found = lossy.map((lane) => lane.errors);
    const key = `${lanes.key}/${this.ctx.palette.version}`;
    if (key === this.key && found.length === this.shown.length && found.every((one, i) => one === this.shown[i])) return;
    this.key = key;
    this.shown = found;
    const known = lossy.filter((lane) => lane.errors !== null);
    let most = 0;
    for (const { errors } of known) for (const map of [errors?.key_error, errors?.value_error]) for (const row of map ?? []) most = Math.max(most, ...row);
    setText(this.note, lossy.length === 0 ? t.exactOnly : known.length === 0 ? t.pending : fill(t.note, { n: known[0].errors?.num_tokens ?? 0 }));
    replace(this.scale, known.length > 0 && [h('span', { class: 'lens-number' }, '0 %'), h('span', { class: 'ramp' }), h('span', { class: 'lens-number' }, percent(most))]);
    replace(this.maps, known.map((lane) => {
      const errors = /** @type {LaneErrorsMeasured} */ (lane.errors);
      const text = textOf(lane.header.spec, errors);
      return h('div', { class: 'compare-map' }, h('div', { class: 'compare-map-name' }, laneMark(lane.index), h('code', {}, lane.header.spec)),
        h('div', { class: 'compare-map-pair', role: 'img', 'aria-label': text, title: text },
          [/** @type {const} */ ([t.k, errors.key_error, 'word-k']), /** @type {const} */ ([t.v, errors.value_error, 'word-v'])].map(([letter, map, name]) => h('div', { class: 'compare-map-half' }, h('strong', { class: name }, letter), this.#map(map, most)))),
        h('p', { class: 'visually-hidden' }, text));
    }));
  }

  /** One cell a pixel, blown up by the style sheet; layer 0 at the bottom. @param {readonly (readonly number[])[]} map @param {number} most @returns {HTMLCanvasElement} */
  #map(map, most) {
    const heads = map[0]?.length ?? 1;
    const canvas = h('canvas', { class: 'compare-map-cells', width: heads, height: map.length, 'aria-hidden': 'true', style: { '--heads': heads, '--layers': map.length } });
    const context = canvas.getContext('2d');
    if (!context) return canvas;
    const table = this.ctx.palette.magnitude();
    const image = new ImageData(heads, map.length);
    const words = new Uint32Array(image.data.buffer);
    map.forEach((row, layer) => row.forEach((value, head) => {
      words[(map.length - 1 - layer) * heads + head] = table[Math.round(255 * (most > 0 ? Math.min(1, value / most) : 0))];
    }));
    context.putImageData(image, 0, 0);
    return canvas;
  }
}

/** @param {string} lane @param {LaneErrorsMeasured} errors @returns {string} */
function textOf(lane, { key_error: keys, value_error: values }) {
  const about = (/** @type {readonly (readonly number[])[]} */ map) => {
    const all = map.flat();
    const most = Math.max(0, ...all);
    return { mean: percent(all.reduce((sum, value) => sum + value, 0) / Math.max(1, all.length)), max: percent(most), layer: map.findIndex((row) => row.includes(most)) };
  };
  const [k, v] = [about(keys), about(values)];
  return fill(t.one, { lane, k: k.mean, kMax: k.max, kLayer: k.layer, v: v.mean, vMax: v.max, vLayer: v.layer });
}
