/**
 * Paints the cells of all layers: a bitmap with two rows per layer (K, V) and one device pixel per column pixel,
 * filled by lookup table and then drawn strip by strip at each row's height.
 */
import { mix, packed } from '../../ui/palette.js';
import { ENTRY } from './entries.js';
import { goneShare } from './gone.js';
/** @import { Bitmap } from '../../ui/canvas.js' */
/** @import { Palette, Rgb } from '../../ui/palette.js' */
/** @import { ColumnEdges } from './columns.js' */
/** @import { Entries } from './entries.js' */
/** @import { Row } from './rows.js' */
/** @import { CacheView, LayerGeometry } from '../../core/types.d.ts' */

/**
 * Pixel words by level for one half of a cell.
 * @typedef {object} HalfTables
 * @property {Uint32Array} stored @property {Uint32Array} kept @property {number} fresh @property {number} dead
 */

/**
 * @typedef {object} CellTables
 * @property {HalfTables} k @property {HalfTables} v @property {HalfTables} latent @property {HalfTables} rotary
 * @property {Uint32Array} magnitude @property {number} unknown @property {number} ground
 */

/** @param {Palette} palette @returns {CellTables} */
export function cellTables(palette) {
  const ground = palette.rgb('ground');
  const nobody = palette.rgb('nobody');
  const both = mix(palette.rgb('k'), palette.rgb('v'), 0.5);
  const bothCalm = mix(palette.rgb('k-calm'), palette.rgb('v-calm'), 0.5);
  return {
    k: half(palette.rgb('k'), palette.rgb('k-calm'), ground, nobody),
    v: half(palette.rgb('v'), palette.rgb('v-calm'), ground, nobody),
    latent: half(both, bothCalm, ground, nobody),
    rotary: half(palette.rgb('k'), palette.rgb('k-calm'), ground, nobody),
    magnitude: palette.magnitude(),
    unknown: packed(mix(ground, nobody, 0.55)),
    ground: packed(ground),
  };
}

/** @param {Rgb} full @param {Rgb} calm @param {Rgb} ground @param {Rgb} nobody @returns {HalfTables} */
function half(full, calm, ground, nobody) {
  const stored = new Uint32Array(256);
  const kept = new Uint32Array(256);
  const low = mix(calm, ground, 0.2);
  const high = mix(calm, full, 0.42);
  for (let level = 0; level < 256; level += 1) {
    const t = level / 255;
    const color = t < 0.5 ? mix(low, calm, t * 2) : mix(calm, high, t * 2 - 1);
    stored[level] = packed(color);
    kept[level] = packed(mix(mix(color, nobody, 0.62), ground, 0.12));
  }
  return { stored, kept, fresh: packed(full), dead: packed(mix(ground, nobody, 0.5)) };
}

/**
 * @typedef {object} PaintInput
 * @property {ColumnEdges} edges
 * @property {Entries} entries
 * @property {readonly LayerGeometry[]} layers
 * @property {CellTables} tables
 * @property {CacheView} view
 * @property {import('./levels.js').Levels|null} levels
 * @property {number} ratio device pixels per CSS pixel @property {number} blockSize @property {number} gapFrom width from which columns have gaps
 * @property {number} left CSS pixel at which the bitmap begins @property {number} width CSS pixels
 */

/** @param {Bitmap} bitmap @param {PaintInput} input */
export function paintCells(bitmap, input) {
  const { edges, entries, layers, ratio, left, width } = input;
  bitmap.resize(Math.round(width * ratio), layers.length * 2);
  bitmap.words.fill(0);
  const { x0, x1 } = pixelEdges(edges, ratio, left, input.blockSize, input.gapFrom);
  const states = columnStates(edges, entries);
  const { words } = bitmap;
  const ground = input.tables.ground;
  for (let layer = 0; layer < layers.length; layer += 1) {
    const geometry = layers[layer];
    if (geometry.cache === 'none') continue;
    const firstRead = geometry.window === null ? 0 : lastStored(entries) + 1 - geometry.window;
    for (let h = 0; h < 2; h += 1) {
      const tables = halfTables(input.tables, geometry, h);
      const row = (layer * 2 + h) * bitmap.width;
      const levels = input.levels?.halves[h];
      const first = layer * (input.levels?.count ?? 0);
      for (let c = 0; c < edges.count; c += 1) {
        const state = states[c];
        if (state < ENTRY.KEPT) continue;
        const gone = entries.gone ? goneShare(entries.gone, layer, edges.from[c], edges.to[c]) : 0;
        if (gone === 1) continue;
        const full = wordOf(input, tables, state, levels ? levels[first + c] : -1, edges.to[c] <= firstRead);
        const word = gone > 0 ? towards(full, ground, gone * MOST_DIMMED) : full;
        const end = row + x1[c];
        for (let x = row + x0[c]; x < end; x += 1) words[x] = word;
      }
    }
  }
  bitmap.commit();
}

/** The most that fades from an entry that few heads keep. */
const MOST_DIMMED = 0.72;

/** One pixel word mixed with another. @param {number} word @param {number} to @param {number} t @returns {number} */
function towards(word, to, t) {
  const part = (/** @type {number} */ shift) =>
    Math.round(((word >>> shift) & 255) * (1 - t) + ((to >>> shift) & 255) * t) << shift;
  return ((255 << 24) | part(16) | part(8) | part(0)) >>> 0;
}

/** @param {PaintInput} input @param {HalfTables} tables @param {number} state @param {number} level @param {boolean} dead */
function wordOf(input, tables, state, level, dead) {
  if (input.view !== 'state') return level < 0 ? input.tables.unknown : input.tables.magnitude[level];
  if (dead) return tables.dead;
  if (state === ENTRY.FRESH) return tables.fresh;
  const shade = level < 0 ? 128 : level;
  return state === ENTRY.KEPT ? tables.kept[shade] : tables.stored[shade];
}

/** @param {CellTables} tables @param {LayerGeometry} geometry @param {number} h */
function halfTables(tables, geometry, h) {
  if (geometry.cache === 'latent') return h === 0 ? tables.latent : tables.rotary;
  return h === 0 ? tables.k : tables.v;
}

/** @param {Entries} entries @returns {number} last position that is stored, or -1 */
function lastStored(entries) {
  for (let p = entries.states.length - 1; p >= 0; p -= 1) {
    if (entries.states[p] >= ENTRY.STORED) return p;
  }
  return -1;
}

/** @type {WeakMap<Entries, {edges: ColumnEdges, states: Uint8Array}>} */
const knownStates = new WeakMap();

/** State of each drawn column: the fullest of its tokens.
 * @param {ColumnEdges} edges @param {Entries} entries
 * @returns {Uint8Array} */
export function columnStates(edges, entries) {
  const known = knownStates.get(entries);
  if (known && known.edges === edges) return known.states;
  const states = new Uint8Array(edges.count);
  for (let c = 0; c < edges.count; c += 1) {
    let most = 0;
    for (let p = edges.from[c]; p < edges.to[c]; p += 1) {
      const state = p < entries.states.length ? entries.states[p] : ENTRY.ABSENT;
      if (state > most) most = state;
    }
    states[c] = most;
  }
  knownStates.set(entries, { edges, states });
  return states;
}

/** Columns in whole device pixels, with a gap if they, or at least their blocks, are wide enough.
 * @param {ColumnEdges} edges @param {number} ratio @param {number} left @param {number} blockSize
 * @param {number} gapFrom */
function pixelEdges(edges, ratio, left, blockSize, gapFrom) {
  const x0 = new Int32Array(edges.count);
  const x1 = new Int32Array(edges.count);
  const blockWidth = edges.after.scale.bodyPitch * blockSize;
  for (let c = 0; c < edges.count; c += 1) {
    const width = edges.x1[c] - edges.x0[c];
    const ends = edges.to[c] % blockSize === 0 && blockWidth >= 6;
    const gap = width >= 24 ? Math.round(2 * ratio) : width >= gapFrom || ends ? Math.max(1, Math.round(ratio)) : 0;
    x0[c] = Math.round((edges.x0[c] - left) * ratio);
    x1[c] = Math.max(x0[c] + 1, Math.round((edges.x1[c] - left) * ratio) - gap);
  }
  return { x0, x1 };
}

/**
 * @param {CanvasRenderingContext2D} context @param {Bitmap} bitmap @param {Row} row
 * @param {number} left @param {number} width CSS pixels @param {number} ratio
 */
export function drawRow(context, bitmap, row, left, width, ratio) {
  const snap = (/** @type {number} */ y) => Math.round(y * ratio) / ratio;
  const strips = /** @type {const} */ ([
    [0, row.keyTop, row.keyHeight],
    [1, row.valueTop, row.valueHeight],
  ]);
  for (const [h, top, height] of strips) {
    const y = snap(top);
    bitmap.drawRows(context, row.layer * 2 + h, 1, left, y, width, Math.max(1 / ratio, snap(top + height) - y));
  }
}
