/** Moves between blocks and tiers in a step, as arrows: a copy within the pool, to the host tier, and back. */
import { lerp, roundRect } from '../../ui/canvas.js';
import { fillHue, hueOf, hueOutline } from '../shared/request-hues.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { StepInfo } from '../../core/types.d.ts' */
/** @import { Box } from './tile.js' */

/** A block's entries in motion. `host` is the end in the host tier; `request` null means a cached prefix.
 * @typedef {{kind: 'copy'|'out'|'in', from: number, to: number, request: number|null}} Move */

/** Maximum number of arrows at the same time. A group that moves together counts as one, so more aren't drawn. */
const MOST_ARROWS = 4;

/** @param {StepInfo|null} step @returns {Move[]} */
export function movesOf(step) {
  if (!step) return [];
  const pairs = (
    /** @type {'out'|'in'} */ kind,
    /** @type {readonly {request_id: number, block_ids: number[], host_ids: number[]}[]} */ events,
  ) =>
    events.flatMap((event) =>
      event.block_ids.map((block, i) => ({
        kind,
        request: event.request_id,
        from: kind === 'out' ? block : event.host_ids[i],
        to: kind === 'out' ? event.host_ids[i] : block,
      })),
    );
  return [
    ...step.copied.map(
      (event) =>
        /** @type {Move} */ ({
          kind: 'copy',
          from: event.from_block_id,
          to: event.block_id,
          request: event.request_id,
        }),
    ),
    ...pairs('out', step.swappedOut),
    ...pairs('in', step.swappedIn),
    ...step.offloaded.map(
      (event) => /** @type {Move} */ ({ kind: 'out', from: event.block_id, to: event.host_id, request: null }),
    ),
    ...step.fetched.map(
      (event) =>
        /** @type {Move} */ ({ kind: 'in', from: event.host_id, to: event.block_id, request: event.request_id }),
    ),
  ];
}

/**
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {readonly Move[]} moves
 * @param {(block: number) => Box|null} poolBox @param {(host: number) => Box|null} hostBox
 * @param {number} t 0-1: how far they have come @param {number} alpha of the arrows
 */
export function drawMoves(context, palette, moves, poolBox, hostBox, t, alpha) {
  if (alpha <= 0.01) return;
  context.globalAlpha = alpha;
  moves.slice(0, MOST_ARROWS).forEach((move, index) => {
    const from = move.kind === 'in' ? hostBox(move.from) : poolBox(move.from);
    const to = move.kind === 'out' ? hostBox(move.to) : poolBox(move.to);
    if (!from || !to) return;
    const path = pathBetween(from, to, index);
    arrow(context, palette, path, t);
    if (t > 0 && t < 1) mover(context, palette, path, t, move.request);
  });
  context.globalAlpha = 1;
}

/** @typedef {{x0: number, y0: number, x1: number, y1: number, cx: number, cy: number}} Curve */

/** From edge to edge, bent to one side. @param {Box} from @param {Box} to @param {number} index @returns {Curve} */
function pathBetween(from, to, index) {
  const [ax, ay, bx, by] = [
    from.x + from.width / 2,
    from.y + from.height / 2,
    to.x + to.width / 2,
    to.y + to.height / 2,
  ];
  const length = Math.hypot(bx - ax, by - ay) || 1;
  const bend = Math.min(26, length * 0.16) * (index % 2 === 0 ? 1 : -1);
  const [cx, cy] = [(ax + bx) / 2 - ((by - ay) / length) * bend, (ay + by) / 2 + ((bx - ax) / length) * bend];
  const [x0, y0] = edge(from, cx, cy);
  const [x1, y1] = edge(to, cx, cy);
  if (Math.hypot(x1 - x0, y1 - y0) < 24) return overhead(from, to);
  return { x0, y0, x1, y1, cx, cy };
}

/** Adjacent tiles leave no space between them, so the arrow goes over their tops. @param {Box} from @param {Box} to @returns {Curve} */
function overhead(from, to) {
  const [x0, x1] = [from.x + from.width / 2, to.x + to.width * (to.x > from.x ? 0.4 : 0.6)];
  return { x0, y0: from.y, x1, y1: to.y, cx: (x0 + x1) / 2, cy: Math.min(from.y, to.y) - 20 };
}

/** The point where the line from the middle of a box to a point leaves the box.
 * @param {Box} box @param {number} x @param {number} y @returns {[number, number]} */
function edge(box, x, y) {
  const [mx, my] = [box.x + box.width / 2, box.y + box.height / 2];
  const [dx, dy] = [x - mx, y - my];
  const scale = Math.min(
    dx === 0 ? Infinity : box.width / 2 / Math.abs(dx),
    dy === 0 ? Infinity : box.height / 2 / Math.abs(dy),
    1,
  );
  return [mx + dx * scale, my + dy * scale];
}

/** @param {Curve} curve @param {number} t @returns {[number, number]} */
function pointAt({ x0, y0, x1, y1, cx, cy }, t) {
  return [lerp(lerp(x0, cx, t), lerp(cx, x1, t), t), lerp(lerp(y0, cy, t), lerp(cy, y1, t), t)];
}

/** A dashed line with a head, on its own background.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Curve} curve @param {number} t */
function arrow(context, palette, curve, t) {
  const mark = palette.px('mark');
  const [hx, hy] = pointAt(curve, t);
  const [px, py] = pointAt(curve, Math.max(0, t - 0.04));
  for (const [color, width, dash] of /** @type {const} */ ([
    ['ground', 5, []],
    ['now', 2, [5, 4]],
  ])) {
    context.strokeStyle = palette.css(color);
    context.lineWidth = width * mark;
    context.setLineDash([...dash]);
    context.beginPath();
    for (let i = 0; i <= 20; i += 1) {
      const [x, y] = pointAt(curve, (t * i) / 20);
      if (i === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    }
    context.stroke();
  }
  context.setLineDash([]);
  if (t <= 0) return;
  const angle = Math.atan2(hy - py, hx - px);
  const size = 7 * mark;
  context.fillStyle = palette.css('now');
  context.beginPath();
  context.moveTo(hx + Math.cos(angle) * 2, hy + Math.sin(angle) * 2);
  context.lineTo(hx - Math.cos(angle - 0.5) * size, hy - Math.sin(angle - 0.5) * size);
  context.lineTo(hx - Math.cos(angle + 0.5) * size, hy - Math.sin(angle + 0.5) * size);
  context.fill();
}

/** The block in motion.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Curve} curve @param {number} t @param {number|null} request */
function mover(context, palette, curve, t, request) {
  const size = palette.px('text-xs');
  const [x, y] = pointAt(curve, t);
  roundRect(context, x - size * 0.7, y - size * 0.5, size * 1.4, size, 3);
  if (request === null) {
    context.fillStyle = palette.css('nobody');
    context.fill();
  } else fillHue(context, palette, request);
  context.strokeStyle = request === null || !hueOutline(palette) ? palette.css('ground') : hueOf(palette, request);
  context.lineWidth = palette.px('mark');
  context.stroke();
}
