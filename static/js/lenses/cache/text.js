/** The cache lens in words: for the tooltip, the cursor, the table of the open row and the description of the picture. */
import { goneHeads, goneTokens } from '../../core/selectors.js';
import { replace } from '../../ui/dom.js';
import { fill, percent } from '../../ui/format.js';
import { rowOf, tableParts } from '../../ui/table.js';
import { quoted } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
import { goneSince } from './chips.js';
import { ENTRY } from './entries.js';
/** @import { BlockHistory } from '../shared/block-history.js' */
/** @import { CachePicture } from './picture.js' */

/** Weight of one token or of several. @typedef {{from: number, to: number, weight: number}} Share */

/** @param {CachePicture} picture @param {number} position @returns {{block: number, slot: number}} */
function placeOf({ request, scene }, position) {
  const size = scene.after.blockSize;
  const table = request?.lastTable ?? request?.table ?? [];
  return { block: table[Math.floor(position / size)] ?? -1, slot: position % size };
}

/**
 * @param {CachePicture} picture @param {number} position @param {number} layer @param {number|null} window
 * @param {number|null} weight attention it gets now @param {BlockHistory} history @returns {string}
 */
export function entryText(picture, position, layer, window, weight, history) {
  const t = texts.cache.what;
  const { request, stages } = picture;
  const state = stages.after.states[position] ?? ENTRY.ABSENT;
  const place = placeOf(picture, position);
  const gone =
    request && request.state !== 'finished'
      ? goneHeads(picture.scene.after, request, layer, position)
      : { gone: 0, of: 0 };
  let what = '';
  if (state === ENTRY.ABSENT) what = t.absent;
  else if (state === ENTRY.BLANK) what = t.blank;
  else if (state === ENTRY.RELEASED) what = t.released;
  else if (gone.gone > 0 && gone.gone === gone.of) what = place.block < 0 ? t.forgottenBlock : fill(t.forgotten, place);
  else if (state === ENTRY.KEPT) what = fill(t.kept, place);
  else if (state === ENTRY.GONE) {
    const since = goneSince(picture, place.block, history);
    what = since ? fill(t.gone, { step: since.step }) : t.goneNow;
  } else if (window !== null && request && position < request.numComputed - window) what = t.dead;
  else what = weight === null ? fill(t.stored, place) : fill(t.storedAttention, { ...place, percent: percent(weight) });
  if (gone.gone > 0 && gone.gone < gone.of)
    what = `${what}, ${fill(t.keptIn, { n: gone.of - gone.gone, of: gone.of })}`;
  return fill(texts.cache.cursorValue, { position, token: quoted(request?.pieces[position]), layer, what });
}

/** @param {CachePicture} picture @param {readonly Share[]} shares @returns {string} */
export function largestText({ request }, shares) {
  return shares
    .map(({ from, to, weight }) =>
      to - from > 1
        ? fill(texts.cache.attention.tokens, { percent: percent(weight), from, to: to - 1 })
        : fill(texts.cache.attention.token, { percent: percent(weight), token: quoted(request?.pieces[from]) }),
    )
    .join(', ');
}

/** @param {CachePicture} picture @param {number} numLayers @param {number} layer @param {string} list @returns {string} */
export function describeCache({ request, stages }, numLayers, layer, list) {
  const t = texts.cache.describe;
  if (!request) return t.none;
  const { letter } = request;
  if (request.state === 'finished') return fill(t.over, { letter, n: stages.after.numStored });
  if (stages.after.numStored === 0) return fill(t.waiting, { letter, n: request.tokens.length });
  const numBlocks = request.table.filter((block) => block >= 0).length;
  const blocks = fill(texts.cache.blocks, { n: numBlocks });
  const { gone } = stages.after;
  const kept = gone ? Math.max(0, request.numComputed - goneTokens(request)) : 0;
  const stored = gone
    ? fill(t.forgotten, {
        letter,
        n: request.numComputed,
        layers: numLayers,
        blocks,
        percent: percent(kept / Math.max(1, request.numComputed)),
      })
    : fill(t.stored, { letter, n: stages.after.numStored, layers: numLayers, blocks });
  return list === '' ? stored : `${stored} ${fill(t.open, { layer, list })}`;
}

/** @param {HTMLTableElement} table @param {CachePicture} picture @param {number} layer @param {readonly Share[]} shares */
export function fillTable(table, picture, layer, shares) {
  const t = texts.cache.table;
  const { request } = picture;
  if (!request || shares.length === 0) return replace(table);
  const asked = request.numComputed - 1;
  replace(
    table,
    tableParts(
      fill(t.caption, { layer, position: asked, token: quoted(request.pieces[asked]) }),
      [t.token, t.share, t.place],
      shares.map(({ from, to, weight }) =>
        rowOf(
          to - from > 1 ? `${from}–${to - 1}` : `${from} ${quoted(request.pieces[from])}`,
          percent(weight),
          fill(texts.cache.what.stored, placeOf(picture, from)),
        ),
      ),
    ),
  );
}
