/** Charts below the rows, in the same columns: tokens of each step and the budget, and use of the pool. */
import { hatch, textWidth, useFont } from '../../ui/canvas.js';
import { count, fill } from '../../ui/format.js';
import { fillHue } from '../shared/request-hues.js';
import { texts } from '../shared/texts.js';
/** @import { Palette } from '../../ui/palette.js' */
/** @import { BatchModel, BatchStep } from './model.js' */
/** @import { BatchSpace, StepColumns } from './space.js' */

/** The step that represents a column: the one that computed the most.
 * @param {BatchModel} model @param {StepColumns} columns @param {number} column @returns {BatchStep|null} */
function fullest(model, columns, column) {
  const [from, to] = columns.steps(column);
  /** @type {BatchStep|null} */
  let best = null;
  for (let step = from; step <= to; step++) {
    const one = model.step(step);
    if (one && (!best || one.numTokens > best.numTokens)) best = one;
  }
  return best;
}

/** A budget this many times the largest step would flatten the bars, so it is shown outside the scale. */
const FAR = 2.5;

/** @param {BatchModel} model @returns {{budget: number|null, most: number, far: boolean}} the budget, the top of the scale, and whether the budget lies beyond */
function budgetScale(model) {
  let most = 1;
  let budget = null;
  for (const step of model.steps) {
    most = Math.max(most, step.numTokens);
    budget = step.budget ?? budget;
  }
  const far = budget !== null && budget > FAR * most;
  return { budget, far, most: far ? most * 1.3 : Math.max(most, budget ?? 0) };
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {BatchModel} model @param {StepColumns} columns @param {BatchSpace} space */
export function drawBudget(context, palette, model, columns, space) {
  const { y, height } = space.budget;
  const { most } = budgetScale(model);
  const base = y + height;
  const gap = columns.width >= 5 ? 1 : 0;
  for (let column = 0; column < columns.count; column++) {
    const step = fullest(model, columns, column);
    if (!step) continue;
    let at = base;
    const chunks = [...step.chunks].sort((a, b) => Number(a.kind === 'prefill') - Number(b.kind === 'prefill'));
    for (const chunk of chunks) {
      const tall = (height * chunk.num_tokens) / most;
      const thin = chunk.kind === 'decode' && columns.width >= 5 ? columns.width * 0.3 : 0;
      context.beginPath();
      context.rect(columns.left(column) + thin / 2, at - tall, Math.max(1, columns.width - gap - thin), tall);
      fillHue(context, palette, chunk.request_id, columns.width < 4 || tall < 4);
      if (tall >= 5) {
        context.fillStyle = palette.css('ground');
        context.fillRect(columns.left(column), at - tall, columns.width, 1);
      }
      at -= tall;
    }
  }
  context.fillStyle = palette.css('line-strong');
  context.fillRect(space.x, base, space.stepsWidth, palette.px('mark'));
  budgetLine(context, palette, model, columns, space, most);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {BatchModel} model @param {StepColumns} columns @param {BatchSpace} space @param {number} most */
function budgetLine(context, palette, model, columns, space, most) {
  const { y, height } = space.budget;
  const { budget, far } = budgetScale(model);
  if (budget === null) return;
  const at = far ? y : Math.round(y + height * (1 - budget / most)) + 0.5;
  context.strokeStyle = palette.css('ink');
  context.lineWidth = palette.px('mark');
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(space.x, at);
  context.lineTo(space.x + space.stepsWidth, at);
  if (!far) context.stroke();
  context.setLineDash([]);
  const text = fill(far ? texts.batch.budgetFar : texts.batch.budgetLine, { n: count(budget) });
  useFont(context, palette.font('text-xs'));
  const width = textWidth(context, text);
  const x = space.x + space.stepsWidth - width;
  if (!far && columns.left(columns.count) > x - 8) return;
  context.fillStyle = palette.css('ink-2');
  context.textAlign = 'left';
  context.textBaseline = 'top';
  context.fillText(text, x, at + 3);
}

/** Blocks in use, and above them free but cached blocks; the frame is the whole pool.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {BatchModel} model @param {StepColumns} columns
 * @param {BatchSpace} space @param {number} numBlocks @param {number} numHost */
export function drawPoolFill(context, palette, model, columns, space, numBlocks, numHost) {
  if (!space.pool) return;
  const { y, height } = space.pool;
  for (let column = 0; column < columns.count; column++) {
    const [, last] = columns.steps(column);
    const step = model.step(last);
    if (!step) continue;
    const x = columns.left(column);
    const used = (height * step.used) / numBlocks;
    const cached = (height * step.cached) / numBlocks;
    context.fillStyle = palette.css('shared');
    context.fillRect(x, y + height - used, columns.width + 0.5, used);
    context.fillStyle = hatch(context, palette.css('nobody-ink'), 5, 1.4);
    context.fillRect(x, y + height - used - cached, columns.width + 0.5, cached);
    if (space.host && numHost > 0) {
      const tall = (space.host.height * step.host) / numHost;
      context.fillStyle = palette.css('ink-3');
      context.fillRect(x, space.host.y + space.host.height - tall, columns.width + 0.5, tall);
    }
  }
  frame(context, palette, space, y, height);
  if (!space.host) return;
  context.setLineDash([5, 3]);
  frame(context, palette, space, space.host.y, space.host.height);
  context.setLineDash([]);
}

/** @param {CanvasRenderingContext2D} context @param {Palette} palette @param {BatchSpace} space @param {number} y @param {number} height */
function frame(context, palette, space, y, height) {
  context.strokeStyle = palette.css('line-strong');
  context.lineWidth = palette.px('mark');
  context.strokeRect(space.x + 0.5, Math.round(y) + 0.5, space.stepsWidth - 1, Math.round(height) - 1);
}

/** Step numbers; the current one in full.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {StepColumns} columns @param {BatchSpace} space @param {number} current */
export function drawAxis(context, palette, columns, space, current) {
  useFont(context, palette.font('text-xs'));
  context.textBaseline = 'top';
  context.textAlign = 'center';
  const y = space.axisY + 2;
  const place = (/** @type {number} */ step) => columns.at(step) - columns.width / columns.per / 2;
  const label = fill(texts.batch.step, { step: current });
  const half = textWidth(context, label) / 2 + 4;
  const shown = current > columns.base && current <= columns.base + columns.numSteps;
  const here = Math.min(
    Math.max(place(current), space.x + half),
    Math.max(space.x + half, space.x + space.stepsWidth - half),
  );
  const every = niceStep((space.em * 4 * columns.per) / columns.width);
  context.fillStyle = palette.css('ink-3');
  for (
    let step = Math.ceil((columns.base + 1) / every) * every;
    step <= columns.base + columns.numSteps;
    step += every
  ) {
    const x = place(step);
    if (shown && Math.abs(x - here) < half + space.em * 1.6) continue;
    context.fillText(String(step), x, y);
  }
  if (!shown) return;
  context.fillStyle = palette.css('ink');
  useFont(context, palette.font('text-xs', 'ui', 700));
  context.fillText(label, here, y);
}

/** 1, 2, 5, 10, 20 … not below `least`. @param {number} least @returns {number} */
function niceStep(least) {
  for (let power = 1; ; power *= 10) {
    for (const digit of [1, 2, 5]) if (digit * power >= least) return digit * power;
  }
}
