/** The texts of the chips above the columns and of the axis below them. */
import { phasesOf, within } from '../../core/phases.js';
import { clamp, span } from '../../ui/canvas.js';
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { blockGroups } from './columns.js';
import { ENTRY } from './entries.js';
/** @import { Log } from '../../core/log.js' */
/** @import { Selection } from '../../core/types.d.ts' */
/** @import { BlockHistory } from '../shared/block-history.js' */
/** @import { Chip, AxisPart } from './grid.js' */
/** @import { CachePicture } from './picture.js' */
/** @import { ColumnEdges } from './columns.js' */
/** @import { Entries } from './entries.js' */

/**
 * @param {CachePicture} picture @param {Entries} entries what is on screen now @param {ColumnEdges} edges
 * @param {number} progress @param {BlockHistory} history @param {Selection|null} selection
 * @returns {Chip[]}
 */
export function chipsOf(picture, entries, edges, progress, history, selection) {
  const { request, scene } = picture;
  if (!request) return [];
  const size = scene.after.blockSize;
  const t = texts.cache.chip;
  return blockGroups(edges, entries.table, size).map(({ logical, block, x0, x1, from, to }) => {
    const first = entries.states[from] ?? ENTRY.ABSENT;
    const state =
      block < 0 && first === ENTRY.FORGOTTEN
        ? 'released'
        : chipState(first, entries.kept[logical], from < request.numHitTokens);
    const title =
      state === 'none'
        ? t.none
        : state === 'released'
          ? first === ENTRY.FORGOTTEN
            ? t.forgotten
            : t.released
          : fill(t.block, { block });
    return {
      x0,
      x1,
      state,
      title,
      notes: notesOf(picture, state, block, to - from, history),
      short: block >= 0 ? String(block) : '',
      ring: ringAt(picture, logical, block, progress),
      selected: selection?.kind === 'block' && selection.block === block && block >= 0,
    };
  });
}

/** @param {CachePicture} picture @param {Chip['state']} state @param {number} block @param {number} shown slots that are shown
 * @param {BlockHistory} history @returns {string[]} from long to short */
function notesOf(picture, state, block, shown, history) {
  const t = texts.cache.chip;
  const size = picture.scene.after.blockSize;
  const values = { from: 0, to: shown - 1, size, step: 0 };
  /** @type {readonly string[]} */
  let notes = [];
  if (state === 'used') notes = shown < size ? t.cut : t.slots;
  else if (state === 'hit') notes = t.hit;
  else if (state === 'kept') notes = t.kept;
  else if (state === 'gone') {
    const since = goneSince(picture, block, history);
    notes = since?.kind === 'blanked' && since.taker === null ? t.blank : t.gone;
    values.step = since?.step ?? 0;
  }
  return notes.map((note) => fill(note, values));
}

/** @param {number} first state of the block's first entry @param {boolean} kept @param {boolean} hit @returns {Chip['state']} */
function chipState(first, kept, hit) {
  if (first === ENTRY.ABSENT) return 'none';
  if (first === ENTRY.RELEASED) return 'released';
  if (first === ENTRY.GONE) return 'gone';
  if (first === ENTRY.KEPT) return kept ? 'kept' : 'used';
  return hit ? 'hit' : 'used';
}

/** The step since which a finished request's entries are gone from a block.
 * @param {CachePicture} picture @param {number} block @param {BlockHistory} history */
export function goneSince({ request, scene }, block, history) {
  const span_ = request ? history.log.spanOf(request.id) : null;
  const end = span_ ? history.log.stepRange(span_.lastStep) : null;
  if (block < 0 || !span_ || !end) return null;
  const written = history.log.step(span_.lastStep)?.writtenSeq[0] ?? end[0];
  return history.goneSince(block, written, scene.after.seq);
}

/** How strongly a chip marks a recent change.
 * @param {CachePicture} picture @param {number} logical @param {number} block @param {number} progress */
function ringAt({ step, former, ended }, logical, block, progress) {
  if (!step || block < 0) return 0;
  const phases = phasesOf(step);
  if (ended && progress >= phases.release[0]) {
    const t = within(phases.release, progress);
    return clamp(Math.min(span(t, 0, 0.2), 1 - span(t, 0.75, 1)), 0, 1);
  }
  const had = former?.table[logical] === block;
  if (had) return 0;
  const t = within(phases.blocks, progress);
  const into = phases.blocks[1] > 0 ? span(t, 0.3, 0.5) : 1;
  const out = span(within(phases.layers, progress), 0, 0.25);
  return into * (1 - out);
}

/** @param {CachePicture} picture @param {ColumnEdges} edges @param {Log} log @returns {AxisPart[]} */
export function axisParts({ request, scene, chunk, stages }, edges, log) {
  if (!request || request.tokens.length === 0) return [];
  const t = texts.cache.axis;
  const parts = /** @type {AxisPart[]} */ ([]);
  const { numHitTokens: hit, promptLength } = request;
  const last = edges.after.numShown - 1;
  if (request.state === 'finished' && !(scene.step && chunk)) {
    const options = stages.after.numStored > 0 ? t.over : t.overGone;
    return [
      {
        x0: edges.left,
        x1: edges.right,
        texts: options.map((option) => fill(option, { letter: request.letter })),
        strong: true,
      },
    ];
  }
  const put = (
    /** @type {readonly string[]} */ options,
    /** @type {number} */ from,
    /** @type {number} */ to,
    /** @type {Record<string, number>} */ values,
    strong = false,
  ) => {
    if (to <= from || from > last) return;
    parts.push({
      x0: edges.leftOf(from),
      x1: edges.rightOf(Math.min(last, to - 1)),
      texts: options.map((option) => fill(option, values)),
      strong,
    });
  };
  const n = promptLength - hit;
  const span_ = log.spanOf(request.id);
  const chunks = span_ && span_.firstTokenStep > 0 ? span_.firstTokenStep - span_.firstStep + 1 : 1;
  const done = scene.step && chunk ? (scene.before.requests.get(request.id)?.numComputed ?? 0) : request.numComputed;
  put(t.hit, 0, hit, { n: hit });
  if (done <= hit)
    put(
      chunk?.kind === 'prefill' && chunk.num_tokens >= n ? t.prefillNow : t.prefillAhead,
      hit,
      promptLength,
      { n },
      chunk?.kind === 'prefill',
    );
  else if (done < promptLength)
    put(t.prefillPart, hit, promptLength, { n, done: done - hit }, chunk?.kind === 'prefill');
  else if (chunks > 1) put(t.prefillChunks, hit, promptLength, { n, chunks });
  else put(t.prefill, hit, promptLength, { n });
  if (request.numComputed > promptLength || chunk?.kind === 'decode') put(t.decode, promptLength, last + 1, {}, true);
  return parts;
}
