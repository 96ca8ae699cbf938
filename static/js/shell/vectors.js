/** The real K and V of one entry: one row per KV head, one cell per dimension, in the hue of K or V. */
import { placeOf } from '../core/selectors.js';
import { h } from '../ui/dom.js';
import { fill } from '../ui/format.js';
/** @import { Ctx, Request, Pack } from '../core/types.d.ts' */

const ROW_PX = 12;

/** @param {Request} request @param {number} position @param {number} layer @param {import('../core/types.d.ts').World} world @param {Ctx} ctx @returns {HTMLElement[]} */
export function vectorsOf(request, position, layer, world, ctx) {
  const { inspector } = ctx.strings;
  const pinned = ctx.ui.selection.pinned;
  const isPinned =
    pinned !== null && 'position' in pinned && pinned.position === position && pinned.request === request.id;
  const place = placeOf(world, request, position);
  if (!place?.stored) return [note(inspector.released)];
  if (!isPinned) return [note(inspector.vectorsPin)];
  const writer = world.slotRequest[place.slot];
  const pack = ctx.frames.entry(writer, position, layer, place.writeSeq);
  if (pack) return heatmaps(pack, layer, ctx);
  const problem = ctx.frames.problem('entry', writer, position, layer, place.writeSeq);
  if (!problem) return [note(inspector.vectorsLoading)];
  if (problem.code === 'gone')
    return [
      note(
        problem.sinceStep === null
          ? inspector.vectorsGoneNow
          : fill(inspector.vectorsGone, { step: problem.sinceStep }),
      ),
    ];
  if (problem.code === 'not_in_recording') return [note(inspector.vectorsMissing)];
  if (problem.code === 'unreachable') return [note(inspector.unreachable)];
  return [note(fill(inspector.vectorsDropped, { message: problem.message || problem.code }))];
}

/** @param {string} text */
function note(text) {
  return h('p', { class: 'note details-note', role: 'note' }, text);
}

/** @param {Pack} pack @param {number} layer @param {Ctx} ctx @returns {HTMLElement[]} */
function heatmaps(pack, layer, ctx) {
  const { inspector } = ctx.strings;
  const latent = ctx.log.header?.model.layers[layer]?.cache === 'latent';
  return /** @type {const} */ (['key', 'value']).flatMap((name) => {
    const values = pack.arrays[name];
    const shape = pack.meta.arrays.find((array) => array.name === name)?.shape;
    if (!values || !shape) return [];
    const [heads, dim] = shape;
    const letter =
      name === 'key'
        ? latent
          ? inspector.latentKey
          : inspector.keys
        : latent
          ? inspector.latentValue
          : inspector.values;
    const text = fill(latent ? inspector.latentVectors : inspector.vectors, { heads, dim });
    return [
      h(
        'figure',
        { class: 'vector' },
        h(
          'figcaption',
          {},
          h('strong', { class: name === 'key' ? 'word-k' : 'word-v' }, letter),
          ` · ${text}`,
          h('span', { class: 'vector-range' }, range(values)),
        ),
        heatmap(values, heads, dim, name === 'key' ? 'k' : 'v', `${letter}, ${text}, ${range(values)}`, ctx),
      ),
    ];
  });
}

/** @param {ArrayLike<number>} values @returns {number} */
function largest(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) most = Math.max(most, Math.abs(values[i]));
  return most;
}

/** @param {ArrayLike<number>} values */
function range(values) {
  const most = largest(values);
  return `±${most >= 10 ? most.toFixed(0) : most.toFixed(2)}`;
}

/** Positive values approach the hue, negative ones the ink; zero is close to the background.
 * @param {ArrayLike<number>} values @param {number} heads @param {number} dim @param {'k'|'v'} half @param {string} label @param {Ctx} ctx */
function heatmap(values, heads, dim, half, label, ctx) {
  const canvas = h('canvas', {
    class: 'heatmap',
    width: dim,
    height: heads,
    role: 'img',
    'aria-label': label,
    style: { '--rows': heads, '--row': `${ROW_PX}px` },
  });
  const g = canvas.getContext('2d');
  if (!g) return canvas;
  const image = g.createImageData(dim, heads);
  const zero = ctx.palette.rgb('zero');
  const plus = ctx.palette.rgb(half);
  const minus = ctx.palette.rgb('ink');
  const most = largest(values) || 1;
  for (let i = 0; i < heads * dim; i++) {
    const value = values[i] / most;
    const to = value >= 0 ? plus : minus;
    const t = Math.abs(value) ** 0.6;
    for (let c = 0; c < 3; c++) image.data[i * 4 + c] = Math.round(zero[c] + (to[c] - zero[c]) * t);
    image.data[i * 4 + 3] = 255;
  }
  g.putImageData(image, 0, 0);
  return canvas;
}
