/** Draws the pool as a tree of prefixes: the tokens of each block, and each request at its last one. */
import { fitText, hatch, roundRect, textWidth, useFont } from '../../ui/canvas.js';
import { fill } from '../../ui/format.js';
import { readable } from '../../ui/text.js';
import { drawBadge, fillHue, hueOutline } from '../shared/request-hues.js';
import { texts } from '../shared/texts.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { World } from '../../core/types.d.ts' */
/** @import { TreeLayout, TreePlace } from './prefix-layout.js' */
/** @import { TreeNode } from './prefix-tree.js' */
/** @import { Box } from './tile.js' */

/** @param {World} world @param {TreeNode} node @param {number} from @param {number} to @returns {string} */
export function nodeText(world, node, from = 0, to = node.tokens.length) {
  let text = '';
  for (let i = from; i < to; i += 1) {
    const request = world.requests.get(node.writers[i]);
    const piece = request?.tokens[node.position + i] === node.tokens[i] ? request.pieces[node.position + i] : null;
    const { lead, text: body } = readable(piece?.text ?? '·');
    text += (lead > 0 ? ' ' : '') + body;
  }
  return text;
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {World} world @param {TreeLayout} layout @param {number|undefined} next block that is taken next @param {ReadonlySet<number>} changed */
export function drawTree(context, palette, world, layout, next, changed) {
  context.strokeStyle = palette.css('line-strong');
  context.lineWidth = palette.px('mark');
  context.beginPath();
  for (const { from, to } of layout.lines) {
    const [x0, y0] = [from.box.x + from.box.width, from.box.y + from.box.height / 2];
    const [x1, y1] = [to.box.x, to.box.y + to.box.height / 2];
    const middle = Math.round((x0 + x1) / 2) + 0.5;
    context.moveTo(x0, y0);
    context.lineTo(middle, y0);
    context.lineTo(middle, y1);
    context.lineTo(x1, y1);
  }
  context.stroke();
  for (const place of layout.places) drawPlace(context, palette, world, place, next, changed);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {World} world @param {TreePlace} place @param {number|undefined} next @param {ReadonlySet<number>} changed */
function drawPlace(context, palette, world, place, next, changed) {
  const { nodes, box } = place;
  const [first] = nodes;
  const small = palette.px('text-xs');
  const blocks = nodes.flatMap((node) => node.blocks);
  const used = first.owners.length > 0;
  const gone = blocks.length === 0 && first.host === null;
  roundRect(context, box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, 4);
  if (used) {
    context.fillStyle = palette.css('raised');
    context.fill();
  }
  context.lineWidth = palette.px('mark');
  context.strokeStyle = palette.css(used ? 'line-strong' : 'nobody');
  if (!used) context.setLineDash(gone ? [1, 4] : [4, 3]);
  context.stroke();
  context.setLineDash([]);
  const strip = Math.max(5, small * 0.5);
  if (!gone) side(context, palette, first, box, strip);
  const taken = badges(context, palette, world, nodes[nodes.length - 1], box, small);
  const inner = { x: box.x + strip + small * 0.4, width: Math.max(0, box.width - strip - small * 0.8 - taken) };
  const tall = box.height >= small * 2.7;
  const name = nameOf(first, nodes, blocks, gone);
  const owners = used && first.owners.length > 1 ? fill(texts.pages.tree.users, { n: first.owners.length }) : '';
  useFont(context, palette.font('text-xs', 'mono'));
  context.textBaseline = 'middle';
  const y = tall ? box.y + box.height - small * 0.85 : box.y + box.height / 2;
  context.textAlign = 'left';
  context.fillStyle = palette.css(used ? 'ink-2' : 'ink-3');
  const label = fitText(context, name, inner.width);
  context.fillText(label, inner.x, y);
  const labelWidth = textWidth(context, label) + small * 0.7;
  if (tall) {
    words(context, palette, world, first, inner.x, box.y + small * 0.95, inner.width, used);
    if (owners !== '' && textWidth(context, owners) + labelWidth <= inner.width) {
      context.textAlign = 'right';
      context.fillStyle = palette.css('ink-2');
      context.fillText(owners, inner.x + inner.width, y);
    }
  } else words(context, palette, world, first, inner.x + labelWidth, y, inner.width - labelWidth, used);
  outlines(context, palette, box, blocks, next, changed);
}

/** The edge shows the state: the request's hue, shared, or unused.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {TreeNode} node @param {Box} box @param {number} width */
function side(context, palette, node, box, width) {
  roundRect(context, box.x + 1.5, box.y + 1.5, width, box.height - 3, 3);
  if (node.owners.length === 1) {
    fillHue(context, palette, node.owners[0]);
    const outline = hueOutline(palette);
    if (outline) {
      context.strokeStyle = outline;
      context.lineWidth = 0.6;
      context.stroke();
    }
    return;
  }
  context.fillStyle =
    node.owners.length > 1 ? palette.css('shared') : hatch(context, palette.css('nobody-ink'), 4, 1.2);
  context.fill();
}

/** @param {TreeNode} first @param {readonly TreeNode[]} nodes @param {readonly number[]} blocks @param {boolean} gone @returns {string} */
function nameOf(first, nodes, blocks, gone) {
  const t = texts.pages.tree;
  if (gone) return t.gone;
  if (blocks.length === 0) return fill(t.host, { host: first.host ?? 0 });
  if (nodes.length > 1) return fill(t.run, { first: blocks[0], last: blocks[blocks.length - 1], n: nodes.length });
  return blocks.join(' = ');
}

/** The tokens: those that siblings share are dimmed, those where they diverge aren't.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {World} world
 * @param {TreeNode} node @param {number} x @param {number} y @param {number} width @param {boolean} used */
function words(context, palette, world, node, x, y, width, used) {
  if (width < 14) return;
  context.textAlign = 'left';
  const same = nodeText(world, node, 0, node.shared).trimStart();
  const rest = nodeText(world, node, node.shared);
  const quiet = same === '' ? '' : fitText(context, same, rest === '' ? width : width * 0.45);
  context.fillStyle = palette.css('ink-3');
  context.fillText(quiet, x, y);
  const used_ = quiet === '' ? 0 : textWidth(context, quiet);
  context.fillStyle = palette.css(used ? 'ink' : 'ink-2');
  context.fillText(fitText(context, quiet === '' ? rest.trimStart() : rest, width - used_), x + used_, y);
}

/** Requests that end here, at the right edge.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {World} world @param {TreeNode} node @param {Box} box @param {number} small @returns {number} width that they take */
function badges(context, palette, world, node, box, small) {
  if (node.ends.length === 0) return 0;
  const size = Math.min(box.height - 4, small * 1.6);
  const most = Math.max(1, Math.floor((box.width * 0.55) / (size + 3)));
  const shown = node.ends.length > most ? most - 1 : node.ends.length;
  const more = shown < node.ends.length ? `×${node.ends.length}` : '';
  useFont(context, palette.font('text-xs'));
  const used = more !== '' ? textWidth(context, more) + 4 : shown * (size + 3);
  const right = box.x + box.width - 3;
  if (more !== '') {
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillStyle = palette.css('ink');
    context.fillText(more, right, box.y + box.height / 2);
    return used;
  }
  node.ends.forEach((id, index) => {
    drawBadge(
      context,
      palette,
      id,
      world.requests.get(id)?.letter ?? '',
      right - (shown - index) * (size + 3) + 1,
      box.y + (box.height - size) / 2,
      size,
      size,
      false,
    );
  });
  return used;
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {Box} box @param {readonly number[]} blocks @param {number|undefined} next @param {ReadonlySet<number>} changed */
function outlines(context, palette, box, blocks, next, changed) {
  if (next !== undefined && blocks.includes(next)) {
    context.fillStyle = palette.css('now');
    roundRect(context, box.x + 3, box.y + box.height - 1.5, box.width - 6, 3, 1.5);
    context.fill();
  }
  if (!blocks.some((block) => changed.has(block))) return;
  context.strokeStyle = palette.css('now');
  context.lineWidth = 2 * palette.px('mark');
  roundRect(context, box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1, 5);
  context.stroke();
}
