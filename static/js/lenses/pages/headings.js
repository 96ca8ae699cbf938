/** Headings of the parts of the pages lens, with their figures. */
import { poolCounts } from '../../core/selectors.js';
import { textWidth, useFont } from '../../ui/canvas.js';
import { count, fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { slabComputed } from './slab-bars.js';
import { holesOf } from './slab.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { Held } from './held.js' */
/** @import { PagesSpace } from './space.js' */
/** @import { SlabState } from './slab.js' */
/** @import { Box } from './tile.js' */

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesSpace} space @param {Held} held
 * @param {{hidden: readonly import('../../core/types.d.ts').Request[], byPrefix: boolean, treeHidden: number, numHost: number, slabs: SlabState, capacity: number, full: boolean, context: number}} facts
 */
export function drawHeadings(context, palette, space, held, facts) {
  const t = texts.pages;
  const put = (/** @type {Box} */ area, /** @type {string} */ title, /** @type {readonly string[]} */ notes) =>
    heading(context, palette, space.heading, area, title, notes);
  const { world } = held;
  const counts = { ...poolCounts(world), n: world.numBlocks, size: world.blockSize };
  put(space.chains, t.requests, hiddenNotes(facts.hidden));
  if (facts.byPrefix) {
    const hidden = facts.treeHidden > 0 ? [fill(t.tree.hidden, { n: facts.treeHidden })] : [];
    const blank = counts.blank > 0 ? [fill(t.tree.blank, counts)] : [];
    put(space.pool, t.tree.title, [
      ...hidden,
      [...t.tree.hint.slice(0, 1), ...blank].join(' · '),
      [...t.tree.hint.slice(1), ...blank].join(' · '),
      ...t.tree.hint.slice(1),
    ]);
  } else
    put(
      space.pool,
      t.pool,
      [t.poolCount, t.poolCountShort].map((text) => fill(text, counts)),
    );
  put(space.queue, t.queue, []);
  if (space.host)
    put(
      space.host,
      t.hostTitle,
      t.hostCount.map((text) => fill(text, { ...hostCounts(world), n: facts.numHost })),
    );
  put(space.slabs, t.slabs, slabNotes(held, facts));
}

/** Requests without a row; unfinished ones by letter.
 * @param {readonly import('../../core/types.d.ts').Request[]} hidden @returns {string[]} */
function hiddenNotes(hidden) {
  const t = texts.pages.hidden;
  const waiting = hidden.filter((request) => request.state !== 'finished');
  const over = hidden.length - waiting.length;
  const ended = over === 0 ? '' : fill(over === 1 ? t.ended.one : t.ended.many, { n: over });
  if (waiting.length === 0) return ended === '' ? [] : [ended];
  const letters = fill(t.also, { letters: waiting.map((request) => request.letter).join(' ') });
  return [
    [letters, ended].filter(Boolean).join(' · '),
    letters,
    fill(waiting.length === 1 ? t.one : t.many, { n: waiting.length }),
  ];
}

/** Blocks of the host tier, by contents. @param {import('../../core/types.d.ts').World} world */
export function hostCounts(world) {
  let swapped = 0;
  for (const block of world.host.values()) if (block.requestId !== null) swapped += 1;
  return { swapped, kept: world.host.size - swapped };
}

/** @param {Held} held @param {{slabs: SlabState, capacity: number, full: boolean, context: number}} facts @returns {string[]} */
function slabNotes({ world, computed }, { slabs, capacity, full, context }) {
  const t = texts.pages;
  const slots = slabs.slabs.reduce((sum, slab) => sum + slab.size, 0);
  if (slots === 0) return (full ? t.slabsNoneFull : t.slabsNone).map((text) => fill(text, { context: count(context) }));
  const holes = holesOf(slabs, capacity);
  const used = Math.round(
    slabs.slabs.reduce((sum, slab) => sum + Math.min(slab.size, slabComputed(world, slab.request, computed)), 0),
  );
  const values = {
    slots: count(slots),
    used: count(used),
    free: count(capacity - slots),
    context: count(context),
    holes: fill(t.holes, { n: holes.length }),
  };
  return (full ? t.slabsHintFull : t.slabsHint).map((text) => fill(text, values));
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} height @param {Box} area @param {string} title @param {readonly string[]} notes from long to short */
function heading(context, palette, height, area, title, notes) {
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  useFont(context, palette.font('text-xs', 'ui', 600));
  context.fillStyle = palette.css('ink-2');
  const y = area.y + height * 0.4;
  context.fillText(title, area.x, y);
  const used = textWidth(context, title) + 14;
  useFont(context, palette.font('text-xs'));
  context.fillStyle = palette.css('ink-3');
  const note = notes.find((text) => textWidth(context, text) <= area.width - used);
  if (note) context.fillText(note, area.x + used, y);
}
