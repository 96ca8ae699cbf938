/** The rows of the batch lens on a canvas: shape shows the state, hue and letter the request. */
import { hatch, roundRect, textWidth, useFont } from '../../ui/canvas.js';
import { drawBadge, fillHue, hueOf, hueOutline } from '../shared/request-hues.js';
import { texts } from '../shared/texts.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { BatchModel, BatchRequest, BatchState } from './model.js' */
/** @import { BatchSpace, StepColumns } from './space.js' */
/** @import { Latency } from './latency.js' */

/** If several steps share a column, the rarest state is drawn. @type {BatchState[]} */
const RARE_FIRST = ['preempted', 'swapped', 'prefill', 'held', 'decode', 'waiting'];

/** From this width on, each decode step is a separate piece. */
const WIDE_CELL = 9;

/** @param {BatchModel} model @param {BatchRequest} request @param {StepColumns} columns @param {number} column @returns {BatchState} */
function columnState(model, request, columns, column) {
  const [from, to] = columns.steps(column);
  if (from === to) return model.stateAt(request, from);
  let best = RARE_FIRST.length;
  for (let step = from; step <= to; step++) {
    const rank = RARE_FIRST.indexOf(model.stateAt(request, step));
    if (rank >= 0 && rank < best) best = rank;
  }
  return RARE_FIRST[best] ?? model.stateAt(request, to);
}

/** A request's row, with its state in each column.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {BatchModel} model
 * @param {BatchRequest} request @param {StepColumns} columns @param {BatchSpace} space @param {number} top */
export function drawRow(context, palette, model, request, columns, space, top) {
  const y = top + space.barTop;
  context.fillStyle = palette.css('line', 0.6);
  context.fillRect(space.wide ? 0 : space.x, top + space.rowHeight - 1, space.width, 1);
  badge(context, palette, request, space, top);
  const last = columns.columnOf(Math.min(request.endStep, model.headStep));
  let from = columns.columnOf(Math.max(request.firstStep, model.base + 1));
  while (from <= last) {
    const state = columnState(model, request, columns, from);
    let to = from;
    while (to < last && columnState(model, request, columns, to + 1) === state) to += 1;
    drawRun(
      context,
      palette,
      request.id,
      state,
      columns.left(from),
      y,
      columns.left(to + 1) - columns.left(from),
      space.barHeight,
      columns.width,
    );
    from = to + 1;
  }
  if (columns.per === 1) chunkSizes(context, palette, model, request, columns, space, y);
  if (request.end && request.endStep >= request.firstStep)
    drawEnd(context, palette, request, columns.left(last + 1), y, space);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {BatchRequest} request @param {BatchSpace} space @param {number} top */
function badge(context, palette, request, space, top) {
  const size = Math.round(space.em * 1.8);
  const y = top + ((space.wide ? space.rowHeight : space.labelHeight) - size) / 2;
  drawBadge(context, palette, request.id, request.letter, space.wide ? 8 : space.x, y, size, size, false);
}

/**
 * One state over a run of columns: prefill tall and solid, decode thin and solid, waiting an outline, preempted
 * hatched, swapped dashed with the sign of the host tier, held a dotted line.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} id @param {BatchState} state
 * @param {number} x @param {number} y @param {number} width @param {number} height @param {number} cell width of one column
 */
function drawRun(context, palette, id, state, x, y, width, height, cell) {
  const middle = y + height / 2;
  const mark = palette.px('mark');
  const gap = cell >= 5 ? 1 : 0;
  context.lineWidth = 1.2 * mark;
  switch (state) {
    case 'prefill':
    case 'decode': {
      const tall = state === 'prefill' ? height : Math.max(4 * mark, Math.round(height * 0.34));
      const piece = state === 'decode' && cell < WIDE_CELL ? width : cell;
      for (let at = x; at < x + width - 0.5; at += piece) {
        const left = Math.round(at);
        context.beginPath();
        context.rect(left, Math.round(middle - tall / 2), Math.max(1, Math.round(at + piece) - left - gap), tall);
        fillHue(context, palette, id, piece < 4);
        outline(context, palette, piece);
      }
      break;
    }
    case 'held':
      context.strokeStyle = palette.css('ink-2');
      context.setLineDash([2 * mark, 3 * mark]);
      line(context, x + 1, middle, x + width - 1);
      break;
    case 'waiting':
      context.strokeStyle = palette.css('line-strong');
      context.strokeRect(x + 0.5, middle - height * 0.2, Math.max(1, width - 1 - gap), height * 0.4);
      break;
    case 'preempted':
      context.fillStyle = hatch(context, palette.css('nobody-ink'), 6 * mark, 1.6 * mark);
      context.fillRect(x, y, Math.max(2, width - gap), height);
      context.strokeStyle = palette.css('nobody-ink');
      context.strokeRect(x + 0.5, y + 0.5, Math.max(1, width - gap - 1), height - 1);
      break;
    case 'swapped':
      context.strokeStyle = palette.css('ink-2');
      context.setLineDash([5 * mark, 3 * mark]);
      context.strokeRect(x + 0.5, y + 0.5, Math.max(1, width - gap - 1), height - 1);
      context.setLineDash([]);
      hostSign(context, palette, x, y, width, height);
      break;
    default:
      break;
  }
  context.setLineDash([]);
}

/** The word if it fits, else a double arrow.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} x @param {number} y @param {number} width @param {number} height */
function hostSign(context, palette, x, y, width, height) {
  useFont(context, palette.font('text-xs', 'ui', 600));
  context.fillStyle = palette.css('ink');
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  const sign = [texts.batch.hostSign, '⇅'].find((text) => textWidth(context, text) + 2 <= width);
  if (sign) context.fillText(sign, x + width / 2, y + height / 2);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} cell */
function outline(context, palette, cell) {
  const color = hueOutline(palette);
  if (!color || cell < 4) return;
  context.strokeStyle = color;
  context.lineWidth = 1;
  context.stroke();
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} x2 */
function line(context, x, y, x2) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x2, y);
  context.stroke();
}

/** The number of tokens of a prefill chunk, if it fits.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {BatchModel} model
 * @param {BatchRequest} request @param {StepColumns} columns @param {BatchSpace} space @param {number} y */
function chunkSizes(context, palette, model, request, columns, space, y) {
  useFont(context, palette.font('text-xs', 'ui', 700));
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  request.states.forEach((state, index) => {
    if (state !== 'prefill') return;
    const step = request.firstStep + index;
    const text = String(model.step(step)?.chunks.find((chunk) => chunk.request_id === request.id)?.num_tokens ?? '');
    if (textWidth(context, text) > columns.width || space.barHeight < space.em) return;
    const x = columns.left(columns.columnOf(step)) + columns.width / 2 - 0.5;
    if (request.id >= 4) {
      context.fillStyle = hueOf(palette, request.id);
      context.fillRect(
        x - textWidth(context, text) / 2 - 1,
        y + space.barHeight / 2 - space.em * 0.6,
        textWidth(context, text) + 2,
        space.em * 1.2,
      );
    }
    context.fillStyle = palette.css('on-request');
    context.fillText(text, x, y + space.barHeight / 2 + 0.5);
  });
}

/** A bar where the request finished, a cross where it was cancelled.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {BatchRequest} request @param {number} x @param {number} y @param {BatchSpace} space */
function drawEnd(context, palette, request, x, y, space) {
  const mark = palette.px('mark');
  const middle = y + space.barHeight / 2;
  const size = Math.min(space.barHeight * 0.3, space.em * 0.45);
  context.strokeStyle = palette.css(request.end === 'failed' ? 'bad' : 'ink');
  context.lineWidth = 2 * mark;
  context.beginPath();
  if (request.end === 'finished') {
    context.moveTo(x + mark, middle - size * 1.4);
    context.lineTo(x + mark, middle + size * 1.4);
  } else {
    for (const side of [-1, 1]) {
      context.moveTo(x + 2, middle - side * size);
      context.lineTo(x + 2 + 2 * size, middle + side * size);
    }
  }
  context.stroke();
}

/** From the parent's row to the branch's.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} x @param {number} from @param {number} to */
export function drawBranch(context, palette, x, from, to) {
  context.strokeStyle = palette.css('ink-3');
  context.lineWidth = palette.px('mark');
  roundRect(context, x - 1.5, to - 1.5, 3, 3, 1);
  context.stroke();
  context.setLineDash([2, 3]);
  context.beginPath();
  context.moveTo(x, from);
  context.lineTo(x, to - 2);
  context.stroke();
  context.setLineDash([]);
}

/** Scales of the strips, the same for all rows. @param {Iterable<Latency>} latencies */
export function latencyScales(latencies) {
  let first = 0;
  let low = Infinity;
  let high = 0;
  for (const latency of latencies) {
    first = Math.max(first, latency.firstUs ?? 0);
    for (const us of latency.intervals) {
      if (us <= 0) continue;
      low = Math.min(low, us);
      high = Math.max(high, us);
    }
  }
  low = Math.min(low, high);
  const span = Math.log(high / low) || 1;
  return {
    first,
    low,
    high,
    place: (/** @type {number} */ us) => (high > low ? Math.log(Math.max(us, low) / low) / span : 0.5),
  };
}

/**
 * A bar for the time to the first token, and a stroke for each time between two tokens: the median long, the worst
 * with a ringed dot.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Latency} latency @param {ReturnType<typeof latencyScales>} scales @param {BatchSpace} space @param {number} top
 */
export function drawLatency(context, palette, latency, scales, space, top) {
  if (!space.latency) return;
  const { x, firstWidth, restX, restWidth } = space.latency;
  const height = Math.max(4, Math.round(space.em * 0.5));
  const y = top + space.rowHeight / 2 + Math.round(space.em * 0.32);
  if (latency.firstUs !== null && scales.first > 0) {
    context.fillStyle = palette.css('control-hover');
    context.fillRect(x, y, firstWidth, height);
    context.fillStyle = palette.css('bar');
    context.fillRect(x, y, Math.max(2, (firstWidth * latency.firstUs) / scales.first), height);
  }
  if (latency.intervals.length === 0) return;
  const at = (/** @type {number} */ us) => restX + 4 + scales.place(us) * (restWidth - 8);
  context.fillStyle = palette.css('line-strong');
  context.fillRect(restX, y + height / 2 - 0.5, restWidth, 1);
  context.fillStyle = palette.css('ink-3', 0.8);
  for (const us of latency.intervals) context.fillRect(at(us) - 0.5, y, palette.px('mark'), height);
  context.fillStyle = palette.css('ink');
  const mark = palette.px('mark');
  if (latency.medianUs !== null) context.fillRect(at(latency.medianUs) - mark, y - 2, 2 * mark, height + 4);
  const told = latency.worstAtWork ?? (latency.spikes.length > 0 ? latency.worst : null);
  if (!told) return;
  context.strokeStyle = palette.css('ink');
  context.fillStyle = palette.css('mark-eviction');
  context.lineWidth = mark;
  context.beginPath();
  context.arc(at(told.us), y + height / 2, height / 2 + mark, 0, 7);
  context.fill();
  context.stroke();
}
