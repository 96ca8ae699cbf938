/** Positions of the layers from bottom to top, and how one row opens while the others close. Pure functions. */
import { layerAt, phasesOf } from '../../core/phases.js';
import { clamp, lerp, span } from '../../ui/canvas.js';
/** @import { StepInfo } from '../../core/types.d.ts' */

/** One row: K above V at the bottom, and bars above them while it is open (`weight` 1).
 * @typedef {object} Row
 * @property {number} layer
 * @property {number} weight how far the row is open, 0-1
 * @property {number} top @property {number} height
 * @property {number} barTop @property {number} barBase where bars stand
 * @property {number} keyTop @property {number} keyHeight
 * @property {number} valueTop @property {number} valueHeight */

/**
 * @typedef {object} RowSpace
 * @property {number} numLayers
 * @property {number} top @property {number} height
 * @property {number} openHeight least height of the open row; what whole pixels leave over goes to it
 * @property {number} openStrip height of its K and of its V
 * @property {readonly number[]} keyShare by layer: share of the strips that belongs to K (or to a latent)
 * @property {number} unit one device pixel, in CSS pixels
 */

/** Share of a layer's time that passes before the next row begins to open. */
const HOLD = 0.82;
/** A closed row is at most this share of the open one. */
const MOST_CLOSED = 0.45;
const OPEN_HEAD = 9;
const OPEN_FOOT = 8;

/**
 * How far each layer's row is open. During a read the sum is 1, so that the other rows keep their height while the
 * open one moves.
 * @param {number} numLayers @param {StepInfo|null} step null, or a step in which this request computes
 * @param {number} progress @param {number} chosen the layer that is open when no sweep is under way
 * @param {number} openness 0-1: how far a row is open outside a sweep (nothing is open while nothing is stored)
 * @returns {Float64Array}
 */
export function openWeights(numLayers, step, progress, chosen, openness) {
  const weights = new Float64Array(numLayers);
  const rest = clamp(chosen, 0, Math.max(0, numLayers - 1));
  if (numLayers === 0) return weights;
  const moment = layerAt(step, progress);
  if (!step || !moment) {
    weights[rest] = openness;
    if (step && progress > 0) settle(weights, step, progress, rest, openness);
    return weights;
  }
  const [from, to] = phasesOf(step).layers;
  const order = step.written[0]?.layers ?? [];
  const entered = span(progress, from, from + (to - from) * Math.min(0.05, 0.7 / order.length));
  const next = order[moment.index + 1];
  const moved = next === undefined ? 0 : span(moment.within, HOLD, 1);
  weights[moment.layer] += (1 - moved) * entered;
  if (next !== undefined) weights[next] += moved * entered;
  weights[rest] += (1 - entered) * openness;
  return weights;
}

/** After the sweep, the chosen row opens again.
 * @param {Float64Array} weights @param {StepInfo} step
 * @param {number} progress @param {number} rest @param {number} openness */
function settle(weights, step, progress, rest, openness) {
  const { layers, sample } = phasesOf(step);
  const order = step.written[0]?.layers ?? [];
  if (progress < layers[1] || order.length === 0) return;
  const last = order[order.length - 1];
  const back = span(progress, layers[1], layers[1] + Math.max(0.02, (sample[1] - sample[0]) * 0.5));
  weights[rest] = back * openness;
  weights[last] += 1 - back;
}

/**
 * @param {RowSpace} space @param {Float64Array} weights
 * @returns {Row[]} by layer
 */
export function layoutRows(space, weights) {
  const { numLayers, top, height, unit } = space;
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const others = Math.max(1, numLayers - total);
  const most = total > 0 ? (space.openHeight * MOST_CLOSED) / total : Infinity;
  const exact = Math.max(1.5, Math.min((height - space.openHeight * total) / others, most));
  const base = exact >= 4 ? Math.floor(exact / unit) * unit : exact;
  const open = total > 0 ? (height - base * (numLayers - total)) / total : base;
  const closed = closedStrip(base, unit);
  /** @type {Row[]} */
  const rows = new Array(numLayers);
  let y = top + height;
  for (let layer = 0; layer < numLayers; layer += 1) {
    const weight = weights[layer];
    const rowHeight = numLayers === 1 ? Math.min(height, open) : lerp(base, open, weight);
    y -= rowHeight;
    rows[layer] = placeRow(layer, weight, y, rowHeight, closed, space);
  }
  return rows;
}

/** Strips and gaps of a closed row, in whole device pixels if they fit. @param {number} base @param {number} unit */
function closedStrip(base, unit) {
  const between = base >= 5 ? Math.max(unit, 1) : unit;
  const least = base >= 16 ? 3 : base >= 7 ? 2 : 1;
  const strip = Math.max(unit, Math.floor((base - between - least) / 2 / unit) * unit);
  return {
    strip,
    between: Math.min(between, Math.max(0, base - 2 * strip)),
    foot: Math.max(0, base - 2 * strip - between) / 2,
  };
}

/** A separate row, fully open.
 * @param {number} layer @param {number} top @param {number} height
 * @param {RowSpace} space @returns {Row} */
export function rowApart(layer, top, height, space) {
  return placeRow(layer, 1, top, height, { strip: space.openStrip, between: 1, foot: OPEN_FOOT }, space);
}

/** @param {number} layer @param {number} weight @param {number} top @param {number} height
 * @param {{strip: number, between: number, foot: number}} closed @param {RowSpace} space @returns {Row} */
function placeRow(layer, weight, top, height, closed, space) {
  const strip = lerp(closed.strip, Math.max(closed.strip, space.openStrip), weight);
  const foot = lerp(closed.foot, OPEN_FOOT, weight);
  const share = space.keyShare[layer] ?? 0.5;
  const keyHeight = share === 0.5 ? strip : Math.max(space.unit, Math.round(2 * strip * share));
  const valueHeight = Math.max(space.unit, 2 * strip - keyHeight);
  const valueTop = top + height - foot - valueHeight;
  const keyTop = valueTop - closed.between - keyHeight;
  const barBase = keyTop - 4 * weight;
  const room = Math.max(0, barBase - top - OPEN_HEAD);
  return {
    layer,
    weight,
    top,
    height,
    barBase,
    barTop: barBase - room * weight,
    keyTop,
    keyHeight,
    valueTop,
    valueHeight,
  };
}

/** The row under y, or -1. @param {readonly Row[]} rows @param {number} y @returns {number} */
export function rowAt(rows, y) {
  for (const row of rows) {
    if (y >= row.top && y < row.top + row.height) return row.layer;
  }
  return -1;
}
