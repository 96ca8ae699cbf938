/** One block as a tile: its slots above, its number below. The shape shows the state: blank, in use, cached, just changed. */
import { hatch, roundRect, textWidth, useFont } from '../../ui/canvas.js';
import { fillHue, hueOutline } from '../shared/request-hues.js';
import { slotGrid, traceSlots } from './slot-grid.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { BlockView } from './picture.js' */
/** @import { SlotGrid } from './slot-grid.js' */

/** @typedef {{x: number, y: number, width: number, height: number}} Box */

/**
 * @typedef {object} TileText
 * @property {string} id at the left of the foot
 * @property {string} note at the right of the foot
 * @property {boolean} strong the note is white: this block is next
 * @property {readonly string[]} letters owners, when there are several
 */

/** @type {Map<string, SlotGrid>} */
const grids = new Map();

/** @param {number} blockSize @param {number} width @param {number} height @returns {SlotGrid} */
function gridOf(blockSize, width, height) {
  const key = `${blockSize}/${width.toFixed(1)}/${height.toFixed(1)}`;
  let grid = grids.get(key);
  if (!grid) {
    if (grids.size > 200) grids.clear();
    grids.set(key, (grid = slotGrid(blockSize, width, height)));
  }
  return grid;
}

/** The places of slots and text in a tile. @param {Box} box @param {number} small smallest text @param {boolean} foot */
function partsOf(box, small, foot) {
  const pad = box.width >= 70 ? 6 : box.width >= 30 ? 4 : box.width >= 16 ? 2.5 : 1.5;
  const footHeight = foot ? small * 1.3 : 0;
  const inner = Math.max(2, box.width - 2 * pad);
  const slotHeight = Math.max(2, box.height - 2 * pad - footHeight);
  return { pad, inner, slotHeight: foot ? Math.min(slotHeight, Math.max(inner * 0.44, slotHeight * 0.8)) : slotHeight };
}

/** Whether a number fits at the bottom of a tile. @param {number} width @param {number} height @param {number} small */
export function hasFoot(width, height, small) {
  return width >= small * 2.4 && height >= small * 2.3;
}

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} box @param {number} blockSize
 * @param {BlockView} view @param {TileText} text @param {number} numSlots slots of the block (fewer than block size never)
 */
export function drawTile(context, palette, box, blockSize, view, text, numSlots = blockSize) {
  const small = palette.px('text-xs');
  const foot = hasFoot(box.width, box.height, small);
  const parts = partsOf(box, small, foot);
  const radius = Math.min(5, box.width / 6);
  shell(context, palette, box, view, radius);
  const grid = gridOf(blockSize, parts.inner, parts.slotHeight);
  const [x, y] = [box.x + parts.pad, box.y + parts.pad];
  if (view.form === 'cached') cachedSlots(context, palette, box, x, y, parts.inner, parts.slotHeight, view.falling);
  else usedSlots(context, palette, grid, x, y, view, numSlots);
  if (foot) footText(context, palette, box, view, text, parts.pad);
  if (text.strong) underline(context, palette, box);
  if (view.ring > 0) {
    context.globalAlpha = Math.min(1, view.ring);
    context.strokeStyle = palette.css('now');
    context.lineWidth = box.width >= 30 ? 2.5 : 2;
    roundRect(context, box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1, radius + 1);
    context.stroke();
    context.globalAlpha = 1;
  }
}

/** Background and outline.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} box @param {BlockView} view
 * @param {number} radius */
function shell(context, palette, box, view, radius) {
  roundRect(context, box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, radius);
  if (view.form === 'used') {
    context.fillStyle = palette.css('raised');
    context.fill();
  }
  context.lineWidth = palette.px('mark');
  context.strokeStyle = palette.css(view.form === 'used' ? 'line-strong' : view.form === 'cached' ? 'nobody' : 'line');
  if (view.form === 'cached') context.setLineDash(box.width >= 30 ? [4, 3] : [2, 2]);
  context.stroke();
  context.setLineDash([]);
}

/** Hatched: unused, but still cached. During eviction, the content falls out of the tile.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} box @param {number} x @param {number} y
 * @param {number} width @param {number} height @param {number} falling */
function cachedSlots(context, palette, box, x, y, width, height, falling) {
  if (falling >= 1) return;
  context.save();
  if (falling > 0) {
    context.beginPath();
    context.rect(box.x, box.y, box.width, box.height);
    context.clip();
    context.globalAlpha = 1 - falling;
  }
  context.fillStyle = hatch(context, palette.css('nobody'), width >= 24 ? 5 : 3.5, width >= 24 ? 1.4 : 1.1);
  context.fillRect(x, y + falling * (box.height - (y - box.y)), width, height);
  context.restore();
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {SlotGrid} grid @param {number} x @param {number} y
 * @param {BlockView} view @param {number} numSlots */
function usedSlots(context, palette, grid, x, y, view, numSlots) {
  const settled = view.filled - view.fresh;
  context.beginPath();
  traceSlots(
    context,
    grid,
    x,
    y,
    view.form === 'used' ? settled + (view.freshPart >= 1 ? view.fresh : 0) : 0,
    numSlots,
  );
  context.fillStyle = palette.css('control', view.form === 'used' ? 1 : 0.5);
  context.fill();
  if (view.form !== 'used' || view.filled === 0) return;
  const part = view.falling > 0 ? 1 - view.falling : 1;
  context.globalAlpha = part;
  context.beginPath();
  traceSlots(context, grid, x, y, 0, settled);
  if (view.fresh > 0) traceSlots(context, grid, x, y, settled, view.filled, view.freshPart);
  if (view.owners.length > 1) {
    context.fillStyle = palette.css('shared');
    context.fill();
  } else if (view.owners.length === 1) {
    fillHue(context, palette, view.owners[0], grid.cell * grid.columns < 26);
    outline(context, palette, view.owners[0], grid);
  } else {
    context.fillStyle = palette.css('shared');
    context.fill();
  }
  context.globalAlpha = 1;
  if (view.fresh > 0 && grid.cell >= 4 && !grid.bar) notches(context, palette, grid, x, y, view);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} owner @param {SlotGrid} grid */
function outline(context, palette, owner, grid) {
  const color = owner % 4 === 0 ? hueOutline(palette) : null;
  if (!color || grid.cell < 4) return;
  context.strokeStyle = color;
  context.lineWidth = 0.6;
  context.stroke();
}

/** White notches on slots that were just written. @param {CanvasRenderingContext2D} context @param {Palette} palette @param {SlotGrid} grid
 * @param {number} x @param {number} y @param {BlockView} view */
function notches(context, palette, grid, x, y, view) {
  context.fillStyle = palette.css('now');
  context.beginPath();
  const size = Math.min(4.5, grid.cell * 0.6, grid.cellHeight * 0.6);
  for (let slot = view.filled - view.fresh; slot < view.filled; slot += 1) {
    const right = x + (slot % grid.columns) * (grid.cell + grid.gap) + grid.cell;
    const top = y + Math.floor(slot / grid.columns) * (grid.cellHeight + grid.gap);
    context.moveTo(right, top);
    context.lineTo(right - size, top);
    context.lineTo(right, top + size);
  }
  context.fill();
}

/** The mark of the block that is reused next. @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} box */
function underline(context, palette, box) {
  context.fillStyle = palette.css('now');
  roundRect(context, box.x + 2, box.y + box.height - 1.5, box.width - 4, 3, 1.5);
  context.fill();
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} box @param {BlockView} view @param {TileText} text
 * @param {number} pad */
function footText(context, palette, box, view, text, pad) {
  const y = box.y + box.height - pad - palette.px('text-xs') * 0.42;
  useFont(context, palette.font('text-xs', 'mono'));
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  context.fillStyle = palette.css(
    view.form === 'used' || text.strong ? 'ink' : view.form === 'cached' ? 'ink-2' : 'ink-3',
  );
  const inner = box.width - 2 * pad;
  const full = textWidth(context, text.id) + 5;
  // "logical → block" is shortened to show how many share the block.
  const id =
    text.letters.length > 1 && full + textWidth(context, `×${text.letters.length}`) > inner
      ? text.id.slice(text.id.indexOf('→') + 1).trim()
      : text.id;
  context.fillText(id, box.x + pad, y);
  const room = inner - textWidth(context, id) - 5;
  if (text.letters.length > 1)
    return letters(context, palette, text.letters, view.owners, box.x + box.width - pad, y, room);
  useFont(context, palette.font('text-xs', 'ui', text.strong ? 600 : 400));
  if (text.note === '' || textWidth(context, text.note) > room) return undefined;
  context.textAlign = 'right';
  context.fillStyle = palette.css(text.strong ? 'now' : view.form === 'cached' ? 'nobody-ink' : 'ink-3');
  context.fillText(text.note, box.x + box.width - pad, y);
  return undefined;
}

/**
 * From the fifth request on, a chip has a dark band below, and from the ninth on also one above; the pattern leaves
 * the letter readable.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} owner @param {number} x @param {number} y @param {number} width @param {number} height
 */
function bands(context, palette, owner, x, y, width, height) {
  const round = Math.floor(owner / 4) % 3;
  context.fillStyle = palette.css('on-request');
  if (round > 0) context.fillRect(x + 1, y + height - 2.5, width - 2, 1.5);
  if (round > 1) context.fillRect(x + 1, y + 1, width - 2, 1.5);
}

/** Chips of the requests that share a block, or their number.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette
 * @param {readonly string[]} names @param {readonly number[]} owners @param {number} right @param {number} y @param {number} room */
function letters(context, palette, names, owners, right, y, room) {
  const size = palette.px('text-xs');
  const fits = Math.floor(room / (size + 2));
  if (names.length > fits) {
    context.textAlign = 'right';
    context.fillStyle = palette.css('ink');
    context.fillText(`×${names.length}`, right, y);
    return;
  }
  names.forEach((name, index) => {
    const x = right - (names.length - index) * (size + 1.5);
    roundRect(context, x, y - size * 0.62, size, size * 1.2, 2.5);
    fillHue(context, palette, owners[index], true);
    bands(context, palette, owners[index], x, y - size * 0.62, size, size * 1.2);
    useFont(context, `700 ${size * (name.length > 1 ? 0.6 : 0.82)}px ${palette.get('font-ui')}`);
    context.fillStyle = palette.css('on-request');
    context.textAlign = 'center';
    context.fillText(name, x + size / 2, y);
  });
}
