/** Sentences with meaningful parts, and the text of a token. */
import { singular } from './agreement.js';
import { count } from './format.js';
/** @import { Piece } from '../core/events.d.ts' */
/** @import { Selection } from '../core/types.d.ts' */

/** A part of a sentence: plain text, or text with a meaning.
 * @typedef {string | {text: string, kind: 'k'|'v'|'term'|'token'|'thing'|'key', term?: string, selection?: Selection, piece?: Piece}} Segment */

const K = /** @type {Segment} */ ({ text: 'K', kind: 'k' });
const V = /** @type {Segment} */ ({ text: 'V', kind: 'v' });

/** Fills in a text, as segments.
 * @param {string} template @param {Record<string, string|number|Segment|Segment[]>} [values] @returns {Segment[]} */
export function segments(template, values = {}) {
  /** @type {Segment[]} */
  const out = [];
  const parts = template.split(/(\{\w+\}|\[[^\]]+\])/);
  for (const [at, part] of parts.entries()) {
    if (part === '') continue;
    if (part[0] === '[') {
      const [text, term = text] = part.slice(1, -1).split('|');
      out.push({ text, kind: 'term', term });
    } else if (part[0] === '{') {
      const name = part.slice(1, -1);
      const value = name in values ? values[name] : name === 'K' ? K : name === 'V' ? V : part;
      if (Array.isArray(value)) out.push(...value);
      else out.push(typeof value === 'number' ? count(value) : value);
    } else {
      out.push(out[out.length - 1] === '1' ? singular(part, parts[at - 2]) : part);
    }
  }
  return out;
}

/** @param {Segment[]} parts @returns {string} */
export function plain(parts) {
  return parts.map((part) => (typeof part === 'string' ? part : part.text)).join('');
}

/** A token's text with a mark for a space and a sign for a line break: `␣` is a leading space.
 * @param {string} text @returns {{lead: number, text: string}} `lead`: how many spaces stand in front */
export function readable(text) {
  let lead = 0;
  while (lead < text.length && text[lead] === ' ') lead++;
  let out = '';
  for (const char of text.slice(lead)) {
    const code = /** @type {number} */ (char.codePointAt(0));
    if (char === '\n') out += '⏎';
    else if (char === '\t') out += '⇥';
    else if (code < 32) out += String.fromCodePoint(0x2400 + code);
    else if (code === 127) out += '\u2421';
    else if (
      code === 0x200b ||
      code === 0x2028 ||
      code === 0x2029 ||
      code === 0xfeff ||
      (code >= 0x202a && code <= 0x202e) ||
      (code >= 0x2066 && code <= 0x2069)
    )
      out += `U+${code.toString(16).toUpperCase().padStart(4, '0')}`;
    else out += char;
  }
  return { lead, text: out };
}

/** A token inside a sentence: `" sunlight"`. @param {Piece|undefined} piece @param {number} [max] @returns {string} */
export function quoted(piece, max = 24) {
  if (!piece) return '…';
  if (piece.kind === 'bytes') return piece.text ? `“${clip(piece.text, max)}”` : (piece.hex ?? '');
  const { lead, text } = readable(piece.text);
  if (piece.kind === 'special') return clip(text, max);
  return `“${lead > 0 ? ' '.repeat(Math.min(lead, 3)) : ''}${clip(text, max)}”`;
}

/** @param {string} text @param {number} max characters @returns {string} */
export function clip(text, max) {
  const chars = [...text];
  return chars.length <= max ? text : `${chars.slice(0, max - 1).join('')}…`;
}
