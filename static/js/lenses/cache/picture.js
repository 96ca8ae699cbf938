/** What the cache lens shows of a scene: the request, its work, its columns and their contents. Pure functions of scene, log and size. */
import { phasesOf, within } from '../../core/phases.js';
import { shownRequest } from '../../core/selectors.js';
import { span } from '../../ui/canvas.js';
import { ColumnEdges, layoutColumns } from './columns.js';
import { entriesOf, stagesOf } from './entries.js';
/** @import { Scene, StepInfo, Chunk, Request, World } from '../../core/types.d.ts' */
/** @import { Log } from '../../core/log.js' */
/** @import { Ui } from '../../ui/store.js' */
/** @import { Columns } from './columns.js' */
/** @import { Stages } from './entries.js' */

/**
 * @typedef {object} CachePicture
 * @property {Scene} scene
 * @property {Request|null} request as it is after the step
 * @property {Request|null} former as it was before the step
 * @property {Chunk|null} chunk what it computes in the step
 * @property {StepInfo|null} step the step when the request has a part in it, else null
 * @property {boolean} ended it ends in the step
 * @property {Columns} columnsBefore @property {Columns} columnsAfter
 * @property {Stages} stages
 * @property {number} attentionBefore step whose attention holds before the sweep, 0 for none
 * @property {number} attentionAfter
 */

/**
 * @param {Scene} scene @param {Log} log @param {Ui} ui @param {{x: number, width: number, maxPitch: number}} room
 * @returns {CachePicture}
 */
export function cachePicture(scene, log, ui, room) {
  const request = shownRequest(scene, ui);
  const former = request ? (scene.before.requests.get(request.id) ?? null) : null;
  const chunk = (request && scene.step?.chunks.find((part) => part.request_id === request.id)) ?? null;
  const touched = scene.step !== null && (chunk !== null || touches(scene.step, request));
  const ended = former !== null && request !== null && former.state !== 'finished' && request.state === 'finished';
  const columnsAfter = columnsOf(scene.after, request, ended, room);
  const columnsBefore =
    former && scene.before !== scene.after ? columnsOf(scene.before, former, false, room) : columnsAfter;
  const before = stateOf(scene.before, former, columnsBefore.numShown, log);
  const after = scene.before === scene.after ? before : stateOf(scene.after, request, columnsAfter.numShown, log);
  return {
    scene,
    request,
    former,
    chunk,
    ended,
    columnsBefore,
    columnsAfter,
    step: touched ? scene.step : null,
    stages: stagesOf(before, after, chunk, ended),
    attentionBefore: request ? log.lastWork(request.id, scene.position) : 0,
    attentionAfter: chunk && scene.step ? scene.step.step : request ? log.lastWork(request.id, scene.position) : 0,
  };
}

/** Whether a step that computes nothing for the request changes its blocks. @param {StepInfo} step @param {Request|null} request */
function touches(step, request) {
  if (!request) return false;
  const held = new Set(request.lastTable ?? request.table);
  return (
    step.released.some((event) => event.request_id === request.id) ||
    step.evicted.some((event) => held.has(event.block_id)) ||
    step.allocated.some((event) => held.has(event.block_id))
  );
}

/** @param {World} world @param {Request|null} request @param {boolean} ended it ends in this step, so it keeps its place
 * @param {{x: number, width: number, maxPitch: number}} room */
function columnsOf(world, request, ended, room) {
  const numTokens = !request
    ? 0
    : request.state === 'finished'
      ? Math.max(request.numComputed, 1)
      : request.tokens.length;
  const table = request ? (request.lastTable ?? request.table) : [];
  const known = ended ? numTokens + 1 : numTokens;
  return layoutColumns({
    numTokens: Math.max(known, 1),
    numSlots: Math.max(table.length * world.blockSize, known),
    blockSize: world.blockSize,
    ...room,
  });
}

/** @param {World} world @param {Request|null} request @param {number} numShown @param {Log} log */
function stateOf(world, request, numShown, log) {
  const freshFrom = log.stepRange(world.step)?.[0] ?? Infinity;
  const last = request && request.state === 'finished' ? (log.spanOf(request.id)?.lastStep ?? 0) : 0;
  return entriesOf(world, request, numShown, freshFrom, last > 0 ? (log.stepRange(last)?.[1] ?? Infinity) : Infinity);
}

/** @type {WeakMap<Columns, ColumnEdges>} */
const settled = new WeakMap();

/** Edges of columns at rest; always the same object. @param {Columns} columns @returns {ColumnEdges} */
export function settledEdges(columns) {
  let edges = settled.get(columns);
  if (!edges) settled.set(columns, (edges = new ColumnEdges(columns, columns, 1)));
  return edges;
}

/**
 * Edges of the columns at this progress. They move while the step's blocks are allocated, or at its start. In a long
 * context they change at once, because they would move by less than a pixel, and every frame would repaint all of
 * them.
 * @param {CachePicture} picture @param {number} progress @returns {ColumnEdges}
 */
export function edgesAt({ columnsBefore, columnsAfter, scene }, progress) {
  const { step } = scene;
  if (!step || (columnsBefore.long && columnsAfter.long) || sameColumns(columnsBefore, columnsAfter))
    return settledEdges(columnsAfter);
  const { blocks, duration } = phasesOf(step);
  const until = Math.max(blocks[1] * 0.4, Math.min(0.3, 250 / duration));
  return progress >= until
    ? settledEdges(columnsAfter)
    : new ColumnEdges(columnsBefore, columnsAfter, span(progress, 0, until));
}

/** Whether the columns of both are in the same places. @param {Columns} a @param {Columns} b @returns {boolean} */
function sameColumns(a, b) {
  return a === b || (a.numShown === b.numShown && a.x === b.x && JSON.stringify(a.scale) === JSON.stringify(b.scale));
}

/** How much of the open row belongs to a prefill wave. @param {CachePicture} picture @param {number} progress @returns {number} */
export function waveAt({ step, chunk }, progress) {
  if (!step || chunk?.kind !== 'prefill') return 0;
  const { layers, sample } = phasesOf(step);
  const into = span(progress, layers[0], layers[0] + (layers[1] - layers[0]) * 0.05);
  const out = span(within([layers[1], Math.max(layers[1] + 0.001, sample[1])], progress), 0, 0.6);
  return progress <= layers[0] ? 0 : into * (1 - out);
}

/** How far a row is open outside the sweep, while there are entries to read. @param {CachePicture} picture @param {number} progress */
export function opennessAt({ scene, step, chunk, request, former, ended, stages }, progress) {
  const reads = (/** @type {Request|null} */ who) =>
    Number(who !== null && who.state === 'running' && who.numComputed > who.numHitTokens);
  if (!scene.step || !step || !chunk) return reads(request);
  const { layers, release } = phasesOf(step);
  if (progress < layers[1]) return reads(former);
  return ended
    ? 1 - span(within(release, progress), 0, 0.5)
    : Math.max(reads(request), Number(stages.after.numStored > 0 && request?.state === 'running'));
}
