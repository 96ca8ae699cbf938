/** Two bars on one scale: slots reserved by contiguous allocation and by paging, with the waste of both. */
import { fitText, hatch, textWidth, useFont } from '../../ui/canvas.js';
import { count, fill, percent } from '../../ui/format.js';
import { fillHue, hueOf } from '../shared/request-hues.js';
import { texts } from '../shared/texts.js';
import { holesOf } from './slab.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { World } from '../../core/types.d.ts' */
/** @import { SlabState } from './slab.js' */
/** @import { Box } from './tile.js' */

/** Reserved slots, and those of them with an entry. @typedef {{reserved: number, filled: number}} Use */

/** One part of a bar. @typedef {{request: number, start: number, filled: number, size: number}} Stretch */

/** Entries that a request holds now, also between two steps. @typedef {(request: number) => number} Computed */

/** @param {SlabState} state @param {Computed} computed @returns {{use: Use, stretches: Stretch[]}} */
function slabUse(state, computed) {
  const stretches = state.slabs.map(({ request, start, size }) => ({
    request,
    start,
    size,
    filled: Math.min(size, computed(request)),
  }));
  return { stretches, use: { reserved: sum(stretches, 'size'), filled: sum(stretches, 'filled') } };
}

/** Represents the blocks that several requests use. */
const SHARED = -1;

/** Blocks in use, end to end: first shared ones, each once, then by request.
 * @param {World} world @param {Computed} computed
 * @returns {{use: Use, stretches: Stretch[], numBlocks: number}} */
function pagedUse(world, computed) {
  /** @type {Stretch[]} */
  const stretches = [];
  /** Each block's place in its users' tables, and the users. @type {Map<number, {logical: number, users: number[]}>} */
  const blocks = new Map();
  for (const id of world.unfinished) {
    world.requests.get(id)?.table.forEach((block, logical) => {
      if (block < 0) return;
      const known = blocks.get(block);
      if (known) known.users.push(id);
      else blocks.set(block, { logical, users: [id] });
    });
  }
  let start = 0;
  const numBlocks = blocks.size;
  for (const owner of [SHARED, ...world.unfinished]) {
    const held = [...blocks].filter(([, { users }]) => (users.length > 1 ? owner === SHARED : users[0] === owner));
    if (held.length === 0) continue;
    const size = held.length * world.blockSize;
    stretches.push({
      request: owner,
      start,
      size,
      filled: held.reduce((total, [block, { logical }]) => total + filledBy(world, block, logical, computed), 0),
    });
    start += size;
  }
  return { stretches, numBlocks, use: { reserved: sum(stretches, 'size'), filled: sum(stretches, 'filled') } };
}

/** Entries of a block: those of the user that has computed the most.
 * @param {World} world @param {number} block @param {number} logical @param {Computed} computed */
function filledBy(world, block, logical, computed) {
  let most = 0;
  for (const id of world.unfinished) {
    if (world.requests.get(id)?.table[logical] === block)
      most = Math.max(most, Math.min(world.blockSize, computed(id) - logical * world.blockSize));
  }
  return most;
}

/** @param {readonly Stretch[]} stretches @param {'size'|'filled'} what @returns {number} */
function sum(stretches, what) {
  return stretches.reduce((total, stretch) => total + stretch[what], 0);
}

/** Share of the reserved slots that are empty. @param {Use} use @returns {number|null} */
function wasteOf({ reserved, filled }) {
  return reserved > 0 ? (reserved - filled) / reserved : null;
}

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} area @param {number} heading
 * @param {World} world whose block tables hold now @param {Computed} computed
 * @param {SlabState} slabs @param {number} capacity slots @param {boolean} stacked
 */
export function drawSlabs(context, palette, area, heading, world, computed, slabs, capacity, stacked) {
  const small = palette.px('text-xs');
  const slab = slabUse(slabs, (id) => slabComputed(world, id, computed));
  const paged = pagedUse(world, computed);
  const y = area.y + heading;
  const barHeight = Math.round(small * 1.7);
  const letterOf = (/** @type {number} */ id) =>
    id === SHARED ? texts.pages.sharedStretch : (world.requests.get(id)?.letter ?? '');
  bar(context, palette, area, y, barHeight, slab.stretches, capacity, letterOf);
  if (slabs.slabs.length > 0) holes(context, palette, area, y, barHeight, slabs, capacity);
  const y2 = y + barHeight + Math.round(small * 0.7);
  bar(context, palette, area, y2, Math.round(barHeight * 0.8), paged.stretches, capacity, letterOf);
  const letters = slabs.refused.map((one) => letterOf(one.request)).join(', ');
  figures(context, palette, area, y2 + Math.round(barHeight * 0.8) + 6, slab.use, paged, letters, stacked);
}

/** A request that is preempted here would have kept its entries in a contiguous allocation.
 * @param {World} world @param {number} id @param {Computed} computed @returns {number} */
export function slabComputed(world, id, computed) {
  const request = world.requests.get(id);
  const again = request && request.numPreemptions > 0 && request.tokens.length > request.promptLength;
  return again ? Math.max(computed(id), request.tokens.length - 1) : computed(id);
}

/** The holes between allocations, with their lengths.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} area @param {number} y
 * @param {number} height @param {SlabState} slabs @param {number} capacity */
function holes(context, palette, area, y, height, slabs, capacity) {
  const scale = area.width / Math.max(1, capacity);
  useFont(context, palette.font('text-xs'));
  context.fillStyle = palette.css('ink-3');
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  for (const { start, size } of holesOf(slabs, capacity)) {
    const width = size * scale;
    const text = [fill(texts.pages.hole, { n: count(size) }), count(size)].find(
      (one) => textWidth(context, one) + 6 <= width,
    );
    if (text) context.fillText(text, area.x + start * scale + width / 2, y + height / 2 + 0.5);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} area @param {number} y @param {number} height
 * @param {readonly Stretch[]} stretches @param {number} capacity @param {(request: number) => string} letterOf */
function bar(context, palette, area, y, height, stretches, capacity, letterOf) {
  const scale = area.width / Math.max(1, capacity);
  context.fillStyle = palette.css('raised');
  context.fillRect(area.x, y, area.width, height);
  context.strokeStyle = palette.css('line');
  context.lineWidth = palette.px('mark');
  context.strokeRect(area.x + 0.5, y + 0.5, area.width - 1, height - 1);
  for (const { request, start, filled, size } of stretches) {
    const x = area.x + start * scale;
    const width = Math.max(1, size * scale);
    const done = filled * scale;
    context.fillStyle = palette.css('control');
    context.fillRect(x, y, width, height);
    context.fillStyle = hatch(context, request === SHARED ? palette.css('shared') : hueOf(palette, request), 6, 1.1);
    context.fillRect(x + done, y, Math.max(0, width - done), height);
    context.beginPath();
    context.rect(x, y, done, height);
    if (request === SHARED) {
      context.fillStyle = palette.css('shared');
      context.fill();
    } else fillHue(context, palette, request);
    context.strokeStyle = palette.css('line-strong');
    context.strokeRect(x + 0.5, y + 0.5, Math.max(0, width - 1), height - 1);
    letter(context, palette, letterOf(request), request, x, y + height / 2, done, height);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {string} text @param {number} request @param {number} x @param {number} y middle
 * @param {number} width @param {number} height */
function letter(context, palette, text, request, x, y, width, height) {
  const size = Math.min(palette.px('text-s'), height * 0.8);
  useFont(context, `700 ${size}px ${palette.get('font-ui')}`);
  const wide = textWidth(context, text);
  if (wide + 8 > width) return;
  if (request >= 4) {
    // The pattern leaves the letter readable.
    context.fillStyle = hueOf(palette, request);
    context.fillRect(x + 2, y - height / 2 + 1, wide + 6, height - 2);
  }
  context.fillStyle = palette.css(request === SHARED ? 'ground' : 'on-request');
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.fillText(text, x + 5, y + 0.5);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} area @param {number} y @param {Use} slab
 * @param {{use: Use, numBlocks: number}} paged @param {string} refused @param {boolean} stacked */
function figures(context, palette, area, y, slab, paged, refused, stacked) {
  const t = texts.pages;
  const small = palette.px('text-xs');
  const blocks = fill(t.blocks, { n: paged.numBlocks });
  const note = paged.use.reserved > 0 ? fill(t.paged, { blocks, slots: count(paged.use.reserved) }) : t.none;
  context.textBaseline = 'top';
  context.textAlign = 'left';
  useFont(context, palette.font('text-xs'));
  context.fillStyle = palette.css('ink-3');
  context.fillText(fitText(context, note, area.width * (stacked ? 1 : 0.3)), area.x, y);
  if (refused !== '') {
    context.fillStyle = palette.css('warn');
    const limit = area.width * (stacked ? 1 : 0.3);
    const text = t.refused
      .map((one) => fill(one, { letters: refused }))
      .find((one) => textWidth(context, one) <= limit);
    context.fillText(
      text ?? fitText(context, fill(t.refused[1], { letters: refused }), limit),
      area.x,
      y + small * 1.4,
    );
  }
  const [left, right] = [wasteOf(paged.use), wasteOf(slab)];
  if (left === null && right === null && refused === '') return;
  useFont(context, palette.font('text-figure', 'ui', 700));
  context.fillStyle = palette.css('ink');
  const size = palette.px('text-figure');
  const one =
    left === null
      ? ''
      : fill(t.wastePaged, {
          slots: count(paged.use.reserved),
          empty: count(paged.use.reserved - paged.use.filled),
          percent: percent(left),
        });
  const slabText =
    right === null
      ? ''
      : fill(t.wasteSlab, {
          slots: count(slab.reserved),
          empty: count(slab.reserved - slab.filled),
          percent: percent(right),
        });
  const two =
    right === null
      ? refused === ''
        ? ''
        : t.slabNobody
      : refused === ''
        ? slabText
        : fill(t.wasteRefused, { text: slabText, letters: refused });
  const top = stacked ? y + small * (refused === '' ? 1.6 : 3) : y + 2;
  if (stacked) {
    context.fillText(fitText(context, one, area.width), area.x, top);
    context.fillText(fitText(context, two, area.width), area.x, top + size * 1.25);
    return;
  }
  useFont(context, palette.font('text-xs'));
  const noteWidth = Math.max(textWidth(context, note), refused === '' ? 0 : area.width * 0.27) + size * 0.5;
  const room = area.width - noteWidth;
  const scale = Math.min(1, room / (figureWidth(context, palette, size, one, two) + size * 0.8));
  const fitted = Math.floor(size * scale);
  const width = figureWidth(context, palette, fitted, one, two);
  const gap = Math.max(fitted * 0.8, Math.min(fitted * 2, room - width));
  const x = area.x + Math.min(Math.max(area.width * 0.3, noteWidth), Math.max(noteWidth, area.width - width - gap));
  const first = textWidth(context, one);
  context.fillText(one, x, top);
  context.fillText(two, x + (one === '' ? 0 : first + gap), top);
}

/** Width of both figures side by side, without a gap; leaves their font set.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} size @param {string} one @param {string} two */
function figureWidth(context, palette, size, one, two) {
  useFont(context, `700 ${size}px ${palette.get('font-ui')}`);
  return textWidth(context, one) + textWidth(context, two);
}
