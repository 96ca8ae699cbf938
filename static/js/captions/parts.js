/** Parts of sentences: linked things, lists, counts, and captions put together. */
import { strings } from '../strings/main.js';
import { duration } from '../ui/format.js';
import { quoted, segments } from '../ui/text.js';
/** @import { World, Request } from '../core/types.d.ts' */
/** @import { Segment } from '../ui/text.js' */
/** @typedef {{short: string, long: string}} Texts */
/** @typedef {Record<string, string|number|Segment|Segment[]>} Values */
/** @typedef {{short: Segment[], long: Segment[], kind: string}} Caption */

const texts = strings.captions;
const MAX_LISTED = 4;

/** @param {string} kind @param {Texts} text @param {Values} values @returns {Caption} */
export function caption(kind, text, values = {}) {
  return { kind, short: segments(text.short, values), long: segments(text.long, values) };
}

/** Two captions as one. @param {Caption} first @param {Caption|null} second @returns {Caption} */
export function join(first, second) {
  return second ? joinLong({ ...first, short: [...first.short, ' ', ...second.short] }, second) : first;
}

/** Adds the second caption to the long form only. @param {Caption} first @param {Caption|null} second @returns {Caption} */
export function joinLong(first, second) {
  return second ? { ...first, long: [...first.long, ' ', ...second.long] } : first;
}

/** @param {Request|undefined} request @returns {Segment} */
export function letter(request) {
  return request ? { text: request.letter, kind: 'thing', selection: { kind: 'request', request: request.id } } : '?';
}

/** `A, B and C`. @param {World} world @param {readonly number[]} ids @returns {Segment[]} */
export function letters(world, ids) {
  const shown = ids.length > MAX_LISTED + 1 ? ids.slice(0, MAX_LISTED) : ids;
  /** @type {Segment[]} */
  const list = [];
  shown.forEach((id, i) => {
    if (i > 0) list.push(i === shown.length - 1 && shown.length === ids.length ? texts.and : ', ');
    list.push(letter(world.requests.get(id)));
  });
  return shown.length === ids.length ? list : segments(texts.listMore, { list, n: ids.length - shown.length });
}

/** @param {number} block @returns {Segment} */
export function thing(block) {
  return { text: String(block), kind: 'thing', selection: { kind: 'block', block } };
}

/** `blocks 3, 4 and 2 more`. @param {readonly number[]} blocks @param {boolean} [bare] @returns {Segment[]} */
export function blockList(blocks, bare = false) {
  /** @type {Segment[]} */
  const list = [];
  blocks.slice(0, MAX_LISTED).forEach((block, i) => {
    if (i > 0) list.push(', ');
    list.push(thing(block));
  });
  const all = blocks.length > MAX_LISTED ? segments(texts.listMore, { list, n: blocks.length - MAX_LISTED }) : list;
  if (bare) return all;
  return blocks.length === 1
    ? segments(texts.blockOne, { a: thing(blocks[0]) })
    : segments(texts.blockMany, { list: all });
}

/** @param {Request|undefined} request @param {number} position @returns {Segment} */
export function token(request, position) {
  if (!request) return '…';
  return {
    text: quoted(request.pieces[position]),
    kind: 'token',
    piece: request.pieces[position],
    selection: { kind: 'token', request: request.id, position },
  };
}

/** A move of bytes often takes less than a tenth of a millisecond. @param {number} us @returns {string} */
export function took(us) {
  const { units } = strings;
  if (us >= 1000) return duration(us / 1000);
  return us < 10 ? `< 0.01 ${units.ms}` : `${(us / 1000).toFixed(2)} ${units.ms}`;
}
