/** The layout of a block's slots in a tile: a grid of cells, or a simple bar if cells would be too small. Pure. */

/** @typedef {{columns: number, rows: number, cell: number, cellHeight: number, gap: number, bar: boolean}} SlotGrid */

const LEAST_CELL = 2.4;

/** The quality of a grid: large cells, full rows, cells a little taller than wide. @param {SlotGrid} grid @param {number} blockSize */
function scoreOf({ rows, cell, cellHeight }, blockSize) {
  const even = blockSize % rows === 0 ? 1 : 0.25;
  return Math.min(cell, cellHeight) * even * Math.exp(-0.6 * Math.abs(Math.log(cellHeight / cell / 1.25)));
}

/** @param {number} blockSize @param {number} width @param {number} height @returns {SlotGrid} */
export function slotGrid(blockSize, width, height) {
  /** @type {SlotGrid|null} */
  let best = null;
  for (let rows = 1; rows <= blockSize; rows += 1) {
    const columns = Math.ceil(blockSize / rows);
    if (rows > 1 && columns * (rows - 1) >= blockSize) continue;
    const side = Math.min(width / columns, height / rows);
    const gap = side >= 4.5 ? 1 : side >= 3 ? 0.5 : 0;
    const grid = {
      columns,
      rows,
      cell: (width + gap) / columns - gap,
      cellHeight: (height + gap) / rows - gap,
      gap,
      bar: false,
    };
    if (grid.cell <= 0 || grid.cellHeight <= 0) continue;
    if (!best || scoreOf(grid, blockSize) > scoreOf(best, blockSize)) best = grid;
  }
  if (!best || Math.min(best.cell, best.cellHeight) < LEAST_CELL)
    return { columns: blockSize, rows: 1, cell: width / blockSize, cellHeight: height, gap: 0, bar: true };
  return best;
}

/**
 * Adds the rectangles of slots from … to - 1 to the current path.
 * @param {CanvasRenderingContext2D} context @param {SlotGrid} grid @param {number} x @param {number} y
 * @param {number} from @param {number} to @param {number} [part] share of the height, from below
 */
export function traceSlots(context, grid, x, y, from, to, part = 1) {
  if (grid.bar) {
    if (to > from)
      context.rect(
        x + from * grid.cell,
        y + grid.cellHeight * (1 - part),
        (to - from) * grid.cell,
        grid.cellHeight * part,
      );
    return;
  }
  const [stepX, stepY] = [grid.cell + grid.gap, grid.cellHeight + grid.gap];
  for (let slot = from; slot < to; slot += 1) {
    const left = x + (slot % grid.columns) * stepX;
    const top = y + Math.floor(slot / grid.columns) * stepY;
    context.rect(left, top + grid.cellHeight * (1 - part), grid.cell, grid.cellHeight * part);
  }
}
