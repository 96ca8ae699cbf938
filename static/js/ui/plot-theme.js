/**
 * Gives plotly's charts the look of the page: colours by name, sizes, axes in bytes. Texts stay text, because plotly
 * would parse tags in them. Pure, except that it reads the palette.
 */
import { plotTexts } from '../strings/plot.js';
import { css } from './palette.js';
/** @import { Palette } from './palette.js' */
/** @typedef {Record<string, any>} Parts a trace or a layout of plotly */

const NAMED = /^var\(--([\w-]+)\)(?:\/(0?\.\d+|1))?$/;
const WRITTEN = new Set(['name', 'text', 'hovertext', 'ticktext', 'label', 'labels', 'customdata', 'x', 'y', 'value']);
const STEPS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const UNIT = 1024;
const MAX_DIGITS = 4;

/** A text in which plotly finds no tags; line breaks stay. @param {string} text @returns {string} */
function plainText(text) {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/\n/g, '<br>');
}

/**
 * A copy with colours named as in CSS (`var(--k)`, `var(--k)/0.4`) replaced by the palette's, and texts made plain.
 * Numbers and templates (`hovertemplate`, `texttemplate`) stay as they are.
 * @param {any} value @param {Palette} palette @param {string} [key] @returns {any}
 */
export function themed(value, palette, key = '') {
  if (typeof value === 'string')
    return /color/i.test(key) ? colorOf(value, palette) : WRITTEN.has(key) ? plainText(value) : value;
  if (Array.isArray(value))
    return typeof value[0] === 'number' ? value : value.map((item) => themed(item, palette, key));
  if (value === null || typeof value !== 'object' || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, themed(item, palette, name)]));
}

/** @param {string} text @param {Palette} palette @returns {string} */
function colorOf(text, palette) {
  const match = NAMED.exec(text);
  return match ? css(palette.rgb(match[1]), match[2] ? Number(match[2]) : 1) : text;
}

/** 1.5 GiB, 640 KiB, with enough digits to distinguish neighbours on an axis.
 * @param {number} value @param {number} [step] between two ticks @returns {string} */
export function byteText(value, step = value) {
  const size = Math.max(Math.abs(value), Math.abs(step));
  let power = size < 1 ? 0 : Math.min(plotTexts.units.length - 1, Math.floor(Math.log2(size) / 10));
  while (power > 0 && step > 0 && step !== value && step / UNIT ** power < 1 / 2 ** MAX_DIGITS) power--;
  const scaled = value / UNIT ** power;
  const digits = step === value ? 2 : Math.max(0, Math.min(MAX_DIGITS, Math.ceil(-Math.log2(step / UNIT ** power))));
  return `${Number(scaled.toFixed(digits))} ${plotTexts.units[power]}`;
}

/** Ticks of an axis in bytes: powers of two, at most `most` of them and the one below the lowest.
 * @param {number} low @param {number} high @param {number} [most] @returns {{tickvals: number[], ticktext: string[]}} */
export function byteTicks(low, high, most = 6) {
  const span = Math.max(high - low, 1);
  let step = 1;
  for (let power = 0; power < plotTexts.units.length; power++) {
    const found = STEPS.find((factor) => span / (factor * UNIT ** power) <= most);
    if (found) {
      step = found * UNIT ** power;
      break;
    }
  }
  const tickvals = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) tickvals.push(value);
  return { tickvals, ticktext: tickvals.map((value) => (value === 0 ? '0' : byteText(value, step))) };
}

/** The common layout of all charts, overridden by this chart's own. @param {Palette} palette @param {Parts} layout @returns {Parts} */
export function fullLayout(palette, layout) {
  const size = palette.px('text-xs');
  const axis = {
    gridcolor: 'var(--line)',
    linecolor: 'var(--line-strong)',
    zerolinecolor: 'var(--line-strong)',
    tickcolor: 'var(--line-strong)',
    tickfont: { color: 'var(--ink-2)', size },
    title: { font: { color: 'var(--ink-2)', size }, standoff: size * 0.3 },
    automargin: true,
    fixedrange: false,
  };
  const axes = Object.fromEntries(['xaxis', 'yaxis', ...axesOf(layout)].map((name) => [name, axis]));
  return merged(
    {
      font: { family: palette.get('font-ui'), size, color: 'var(--ink)' },
      paper_bgcolor: 'rgba(0,0,0,0)',
      plot_bgcolor: 'rgba(0,0,0,0)',
      margin: { l: size * 2, r: size * 1.5, t: size, b: size * 2, pad: 0 },
      hoverlabel: {
        bgcolor: 'var(--raised)',
        bordercolor: 'var(--line-strong)',
        font: { color: 'var(--ink)', size, family: palette.get('font-ui') },
        align: 'left',
      },
      legend: {
        font: { color: 'var(--ink)', size },
        itemclick: false,
        itemdoubleclick: false,
        bgcolor: 'rgba(0,0,0,0)',
      },
      hovermode: 'x unified',
      dragmode: 'zoom',
      separators: '.,',
      ...axes,
    },
    layout,
  );
}

/** Names of the axes in a layout. @param {Parts} layout @returns {string[]} */
export function axesOf(layout) {
  return Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key));
}

/** Merges `over` into `under`, nested objects too. @param {Parts} under @param {Parts} over @returns {Parts} */
function merged(under, over) {
  const out = { ...under };
  for (const [key, value] of Object.entries(over)) {
    const isPart = value !== null && typeof value === 'object' && !Array.isArray(value) && !ArrayBuffer.isView(value);
    out[key] = isPart && typeof out[key] === 'object' ? merged(out[key], value) : value;
  }
  return out;
}
