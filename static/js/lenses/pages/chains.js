/** The requests as chains of logical blocks: a badge with a letter, a line of text, and one tile per block of the table. */
import { fitText, textWidth, useFont } from '../../ui/canvas.js';
import { count, fill } from '../../ui/format.js';
import { readable } from '../../ui/text.js';
import { drawBadge } from '../shared/request-hues.js';
import { texts } from '../shared/texts.js';
import { fillOf } from './picture.js';
import { changing } from './pool-tiles.js';
import { chainBox, LEVEL_WITH_ARROW } from './space.js';
import { signOf } from './tile-cache.js';
import { drawTile, hasFoot } from './tile.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { Request } from '../../core/types.d.ts' */
/** @import { BlockView, PagesPicture } from './picture.js' */
/** @import { Box } from './tile.js' */
/** @import { TileCache } from './tile-cache.js' */
/** @import { ChainRow } from './chain-layout.js' */

/**
 * One tile of a chain, for hit tests and connectors. `gone`: the request has finished and the block holds something
 * else.
 * @typedef {{request: number, logical: number, block: number, box: Box, gone: boolean, lane: number}} ChainTile
 */

/** Whether a block no longer holds what a finished request left there.
 * @typedef {(request: Request, logical: number, block: number) => boolean} IsGone */

/** Draws the chains; a tile stays on its canvas until its look changes. */
export class Chains {
  /** @type {ChainTile[]} */
  tiles = [];
  /** The state of each row when all its tiles were last checked. @type {Map<number, string>} */
  #shown = new Map();
  /** The layout of the rows. */
  #places = '';

  /** @param {TileCache} cache @param {IsGone} isGone */
  constructor(cache, isGone) {
    this.cache = cache;
    this.isGone = isGone;
  }

  /**
   * @param {CanvasRenderingContext2D} still canvas of the tiles @param {CanvasRenderingContext2D} moving canvas that is cleared every frame
   * @param {Palette} palette @param {PagesPicture} picture @param {readonly ChainRow[]} rows @param {number} progress @param {boolean} all
   */
  draw(still, moving, palette, picture, rows, progress, all) {
    const changed = new Set(changing(picture));
    if (all) this.#keepPlaces(still, rows);
    const states = rows.map((row) => stateOf(picture, row, progress));
    const whole = rows.map((row, index) => all || this.#shown.get(row.request.id) !== states[index].sign);
    if (whole.some(Boolean))
      this.tiles = this.tiles.filter(
        (tile) => !rows.some((row, index) => whole[index] && row.request.id === tile.request),
      );
    if (all) this.tiles = [];
    rows.forEach((row, index) => {
      const { over, now } = states[index];
      const { request, badge } = row;
      header(moving, palette, picture, row, now, over);
      drawBadge(
        moving,
        palette,
        request.id,
        request.letter,
        badge.x,
        badge.y,
        badge.width,
        badge.height,
        over || (now.state === 'running' || now.state === 'finished' ? false : 'waits'),
      );
      if (whole[index]) {
        if (this.#shown.get(request.id) !== states[index].sign) this.cache.wipe(still, `chain/${request.id}/`);
        this.#shown.set(request.id, states[index].sign);
      }
      this.#drawRow(still, moving, palette, picture, row, now, progress, over, whole[index] ? null : changed);
    });
  }

  /**
   * When rows have moved, all tiles are cleared before any is painted, because a tile's new place can be another's old
   * one.
   * @param {CanvasRenderingContext2D} still @param {readonly ChainRow[]} rows
   */
  #keepPlaces(still, rows) {
    const places = rows
      .map(({ request, area, layout }) => `${request.id}/${area.x}/${area.y}/${layout.level}/${layout.perLine}`)
      .join();
    if (places === this.#places) return;
    this.#places = places;
    this.cache.wipe(still, 'chain/');
    this.#shown.clear();
  }

  /** The canvas is blank. */
  forget() {
    this.#shown.clear();
  }

  /**
   * @param {CanvasRenderingContext2D} still @param {CanvasRenderingContext2D} moving @param {Palette} palette @param {PagesPicture} picture
   * @param {ChainRow} row @param {Request} now @param {number} progress @param {boolean} over @param {Set<number>|null} only blocks to look at, null for all
   */
  #drawRow(still, moving, palette, picture, row, now, progress, over, only) {
    const { request, layout, area } = row;
    const { table, arriving, arrived } = picture.chain(request.id, progress);
    if (table.length === 0 && !over) return quiet(moving, palette, picture, row, now, progress);
    const first = Math.max(0, table.length - layout.shown);
    if (first > 0) more(moving, palette, row, first);
    for (let logical = first; logical < table.length; logical += 1) {
      const block = table[logical];
      if (only && !only.has(block)) continue;
      const box = chainBox(area, layout, logical - first);
      const gone = over && (block < 0 || this.isGone(request, logical, block));
      const view = block < 0 || gone ? NOTHING : viewIn(picture, request, block, progress, over);
      const fresh = logical >= arriving ? arrived : 1;
      if (!only)
        this.tiles.push({
          request: request.id,
          logical,
          block,
          box,
          gone,
          lane: row.compact ? row.box.y + row.box.height + 1 : box.y + box.height + layout.gap / 2,
        });
      const hit = request.numHitTokens > logical * picture.after.blockSize && request.numPreemptions === 0 && !over;
      this.cache.draw(
        still,
        `chain/${request.id}/${logical}`,
        box,
        layout.gap / 2,
        `${signOf(view)}/${gone}/${hit}/${Math.round(fresh * 20)}/${block}`,
        () => {
          still.globalAlpha = fresh;
          paintTile(still, palette, picture, row, box, logical, block, view, gone, hit);
          still.globalAlpha = 1;
        },
      );
    }
    return undefined;
  }
}

/** The state of a row: whether its request has finished, and the values that require all tiles to be checked.
 * @param {PagesPicture} picture @param {ChainRow} row @param {number} progress */
function stateOf(picture, row, progress) {
  const { request, layout, area } = row;
  const was = picture.before.requests.get(request.id);
  const now = picture.request(request.id, progress) ?? request;
  const over =
    now.state === 'finished' && (!picture.step || !was || was.state === 'finished' || progress > backOf(picture));
  const { table } = picture.chain(request.id, progress);
  return {
    now,
    over,
    sign: `${over}/${now.state}/${table.length}/${area.x}/${area.y}/${layout.level}/${layout.shown}/${picture.after.seq}`,
  };
}

/** Whether the released blocks are halfway back. @param {PagesPicture} picture */
function backOf({ phases }) {
  return phases ? (phases.release[0] + phases.release[1]) / 2 : 0;
}

/** Why a request has no blocks.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture
 * @param {ChainRow} row @param {Request} now @param {number} progress */
function quiet(context, palette, picture, { area, badge }, now, progress) {
  const t = texts.pages.without;
  let held = 0;
  for (const block of picture.host(progress).values()) if (block.requestId === now.id) held += 1;
  const all = (
    now.state === 'swapped' ? t.swapped : now.state === 'preempted' ? t.preempted : now.fork ? t.fork : t.waiting
  ).map((text) => fill(text, { n: held }));
  useFont(context, palette.font('text-xs'));
  context.fillStyle = palette.css('ink-3');
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  const text = all.find((one) => textWidth(context, one) <= area.width) ?? all[all.length - 1];
  context.fillText(fitText(context, text, area.width), area.x, area.y + badge.height / 2);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture @param {ChainRow} row @param {Box} box
 * @param {number} logical @param {number} block @param {BlockView} view @param {boolean} gone @param {boolean} hit */
function paintTile(context, palette, picture, row, box, logical, block, view, gone, hit) {
  const t = texts.pages.tile;
  const spaced = fill(t.logical, { logical, block: block < 0 ? '–' : block });
  const arrow = row.layout.level === 0 || spaced.length <= 5 ? spaced : spaced.replace(/ /g, '');
  drawTile(context, palette, box, picture.after.blockSize, view, {
    id: row.layout.level <= LEVEL_WITH_ARROW ? arrow : block < 0 ? '–' : String(block),
    note: gone && block >= 0 ? t.gone : hit ? t.hit : '',
    strong: false,
    letters: view.owners.length > 1 ? view.owners.map((id) => picture.after.requests.get(id)?.letter ?? '') : [],
  });
  if (gone) strike(context, palette, box);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {PagesPicture} picture @param {ChainRow} row @param {Request} request @param {boolean} over */
function header(context, palette, picture, row, request, over) {
  const t = texts.pages;
  const small = palette.px('text-xs');
  const { x, y, width, height } = row.title;
  const state = over ? t.state.finished : request.state === 'finished' ? '' : t.state[request.state];
  const tail = [
    fill(t.tokens, {
      n: count(
        request.state === 'waiting' || request.state === 'preempted' ? request.tokens.length : request.numComputed,
      ),
    }),
    state,
  ]
    .filter(Boolean)
    .join(' · ');
  const parent = request.fork ? picture.after.requests.get(request.fork.parent_id) : null;
  const name = request.fork
    ? fill(t.forkOf, { letter: parent?.letter ?? '?', position: request.fork.position })
    : readable(
        request.prompt.trim() ||
          request.pieces
            .map((piece) => piece.text)
            .join('')
            .trim(),
      ).text;
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  if (row.compact) {
    const middle = y + Math.min(height, row.badge.height) / 2;
    useFont(context, palette.font('text-xs'));
    context.fillStyle = palette.css(over ? 'ink-2' : 'ink');
    context.fillText(fitText(context, name, width), x, middle - small * 0.62);
    context.fillStyle = palette.css('ink-3');
    const short = [tail, state].find((text) => text !== '' && textWidth(context, text) <= width) ?? tail;
    context.fillText(fitText(context, short, width), x, middle + small * 0.68);
    return;
  }
  useFont(context, palette.font('text-s'));
  const title = fitText(context, name, Math.max(30, width - textWidth(context, tail) - 16));
  context.fillStyle = palette.css(over ? 'ink-2' : 'ink');
  context.fillText(title, x, y + small * 0.75);
  context.fillStyle = palette.css('ink-3');
  context.fillText(tail, x + textWidth(context, title) + 12, y + small * 0.75);
}

/** @type {BlockView} */
const NOTHING = { form: 'blank', owners: [], filled: 0, fresh: 0, freshPart: 1, falling: 0, ring: 0, count: 0 };

/** A block as seen by this chain.
 * @param {PagesPicture} picture @param {Request} request @param {number} block @param {number} progress
 * @param {boolean} over @returns {BlockView} */
function viewIn(picture, request, block, progress, over) {
  const view = picture.view(block, progress);
  if (!over)
    return {
      ...view,
      form: 'used',
      owners: view.owners.length > 0 ? view.owners : [request.id],
      falling: picture.left.has(block) ? view.falling : 0,
    };
  if (view.form === 'used') return { ...view, form: 'cached', filled: fillOf(picture.after, block, Infinity).filled };
  return view;
}

/** The block no longer belongs to this request. @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} box */
function strike(context, palette, box) {
  const small = palette.px('text-xs');
  const foot = hasFoot(box.width, box.height, small) ? small * 1.5 : 0;
  context.strokeStyle = palette.css('nobody');
  context.lineWidth = palette.px('mark');
  context.beginPath();
  context.moveTo(box.x + 5, box.y + box.height - 5 - foot);
  context.lineTo(box.x + box.width - 5, box.y + 5);
  context.stroke();
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {ChainRow} row @param {number} n */
function more(context, palette, row, n) {
  useFont(context, palette.font('text-xs'));
  context.fillStyle = palette.css('ink-3');
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.fillText(
    fill(texts.pages.more, { n }),
    row.area.x + row.area.width,
    row.compact ? row.area.y + row.area.height - palette.px('text-xs') * 0.5 : row.area.y - palette.px('text-xs'),
  );
}
