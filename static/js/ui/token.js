/** A token as an element, the same on the tape and in tables. */
import { h } from './dom.js';
import { clip, readable } from './text.js';
/** @import { Piece } from '../core/events.d.ts' */

export const MAX_CHARS = 28;

/** What the chip contains: marks for leading spaces, then the text in its own direction. @param {Piece|undefined} piece @returns {HTMLElement} */
export function tokenText(piece) {
  if (!piece) return h('span', { class: 'token-text' }, '…');
  if (piece.kind === 'bytes') return h('span', { class: 'token-text token-bytes' }, piece.hex ?? '');
  const { lead, text } = readable(piece.text);
  const parts = [];
  for (let i = 0; i < Math.min(lead, 4); i++) parts.push(h('span', { class: 'token-space' }));
  if (lead > 4) parts.push(h('span', { class: 'token-times' }, `×${lead}`));
  parts.push(h('bdi', { dir: 'auto' }, clip(text, MAX_CHARS)));
  return h('span', { class: piece.kind === 'special' ? 'token-text token-special' : 'token-text' }, parts);
}
