/** The name of a token in a canvas label: never raw bytes, never invisible. */
import { clip, readable } from '../../ui/text.js';
/** @import { Piece } from '../../core/types.d.ts' */

/** @param {Piece|undefined} piece @param {number} position @returns {string} */
export function tokenName(piece, position) {
  if (!piece) return `#${position}`;
  if (piece.kind === 'bytes' && !piece.joins) return piece.hex ?? `#${position}`;
  const { lead, text } = readable(piece.text);
  if (text.trim() === '') return '␣'.repeat(Math.min(4, Math.max(1, lead + text.length)));
  return clip(text, 40);
}
