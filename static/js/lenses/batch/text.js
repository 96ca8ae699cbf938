/** The batch lens in words: a request's state in a step, a step's work, and why a token was late. */
import { letterOf } from '../../core/state.js';
import { replace } from '../../ui/dom.js';
import { bytes, count, duration, fill } from '../../ui/format.js';
import { rowOf, tableParts } from '../../ui/table.js';
import { clip } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
import { idleBefore, latencyOf } from './latency.js';
/** @import { BatchModel, BatchRequest, BatchStep } from './model.js' */
/** @import { Cause, Latency } from './latency.js' */

const t = texts.batch;

/** @param {number} us @returns {string} */
export function time(us) {
  return duration(us / 1000);
}

/** @param {Cause} cause @param {'short'|'long'} [length] @returns {string} */
function causeText(cause, length = 'long') {
  const words = t.cause;
  switch (cause.kind) {
    case 'preempted':
      return fill((cause.own ? words.preemptedOwn : words.preempted)[length], {
        by: letterOf(cause.by),
        n: count(cause.numTokens),
        step: cause.step,
        steps: steps(cause.numSteps),
      });
    case 'swapped':
      return fill((cause.own ? words.swappedOwn : words.swapped)[length], {
        by: letterOf(cause.by),
        bytes: bytes(cause.bytes),
        step: cause.step,
        steps: steps(cause.numSteps),
      });
    case 'held':
      return fill(words.held[length], { steps: steps(cause.numSteps) });
    case 'idle':
      return fill((cause.measured === null ? words.idle : words.measured)[length], {
        time: time(cause.us),
        letter: letterOf(cause.measured ?? 0),
      });
    case 'prefill': {
      const text = fill(words.prefill[length], { by: letterOf(cause.by), n: count(cause.numTokens), step: cause.step });
      return cause.others > 0 ? fill(words.prefillMore, { text, n: cause.others }) : text;
    }
    case 'moves':
      return fill(words.moves[length], { list: movesText(cause.moves), step: cause.step });
    default:
      return fill(words.none[length], { step: cause.step });
  }
}

/** @param {number} n */
function steps(n) {
  return fill(t.steps, { n });
}

/** @param {BatchStep['moves']} moves @returns {string} */
function movesText(moves) {
  const parts = [];
  for (const name of /** @type {const} */ (['evicted', 'copied', 'offloaded', 'fetched', 'forgotten']))
    if (moves[name] > 0) parts.push(fill(t.moves[name], { n: moves[name] }));
  if (moves.bytes > 0) parts.push(bytes(moves.bytes));
  return parts.join(', ');
}

/** Median, worst and its cause. @param {Latency} latency @returns {string} */
export function restText(latency) {
  const { medianUs, worst, spikes } = latency;
  if (medianUs === null || !worst) return t.none;
  const values = { median: time(medianUs), worst: time(worst.us) };
  const { worstAtWork } = latency;
  if (worstAtWork && worstAtWork !== worst)
    return fill(t.restStill, {
      ...values,
      worst: time(worstAtWork.us),
      cause: causeText(worstAtWork.causes[0], 'short'),
    });
  if (latency.intervals.length === 1) return fill(t.restOne, values);
  return spikes.length > 0 && worst.causes.length > 0
    ? fill(t.restWorst, { ...values, cause: causeText(worst.causes[0], 'short') })
    : fill(t.restCalm, values);
}

/** All times of one request. @param {Latency} latency @returns {string} */
export function latencyText(latency) {
  const lines = [];
  if (latency.firstUs !== null) lines.push(fill(t.firstLong, { time: time(latency.firstUs) }));
  if (latency.medianUs !== null)
    lines.push(fill(t.medianLong, { time: time(latency.medianUs), n: latency.intervals.length }));
  const worst = [...latency.spikes].sort((a, b) => b.us - a.us).slice(0, 3);
  for (const spike of worst)
    lines.push(
      fill(t.spikeLong, {
        time: time(spike.us),
        step: spike.step,
        causes: spike.causes.map((cause) => causeText(cause)).join('; '),
      }),
    );
  if (latency.spikes.length > worst.length) lines.push(fill(t.spikesMore, { n: latency.spikes.length - worst.length }));
  return lines.join('\n');
}

/** A request's state in a step. @param {BatchModel} model @param {BatchRequest} request @param {number} step @returns {string} */
function stateText(model, request, step) {
  const state = model.stateAt(request, step);
  const one = model.step(step);
  const chunk = one?.chunks.find((item) => item.request_id === request.id);
  if (state === 'prefill' && chunk && one) {
    const again = one.again.get(request.id) ?? 0;
    const text = fill(t.did.prefill, {
      n: count(chunk.num_tokens),
      from: chunk.start,
      to: chunk.start + chunk.num_tokens - 1,
    });
    return again > 0 ? fill(t.did.again, { text, n: count(again) }) : text;
  }
  if (state === 'decode' && chunk) return fill(t.did.decode, { position: chunk.start });
  const preemption = one?.preempted.find((event) => event.request_id === request.id)?.reason;
  if (preemption) {
    return fill(preemption.code === 'swap' ? t.did.swappedNow : t.did.preemptedNow, {
      by: preemption.for_request_id === request.id ? t.itself : letterOf(preemption.for_request_id),
      needed: preemption.num_blocks_needed,
      free: preemption.num_free,
      n: count(preemption.num_lost_tokens),
    });
  }
  const blocked = one?.blocked?.request_id === request.id ? one.blocked : null;
  if (blocked && (state === 'waiting' || state === 'preempted' || state === 'swapped')) {
    return `${t.did[state]}: ${fill(t.blocked[blocked.code], { needed: blocked.num_blocks_needed ?? '', free: blocked.num_free ?? '' })}`;
  }
  return t.did[state];
}

/** The step's use of the budget, and the blocked request. @param {BatchModel} model @param {number} step @returns {string} */
export function stepText(model, step) {
  const one = model.step(step);
  if (!one) return t.noStep;
  const parts = [
    one.budget === null
      ? fill(t.spent, { n: count(one.numTokens) })
      : fill(t.spentOf, { n: count(one.numTokens), budget: count(one.budget) }),
  ];
  const decode = one.chunks.filter((chunk) => chunk.kind === 'decode').map((chunk) => letterOf(chunk.request_id));
  for (const chunk of one.chunks)
    if (chunk.kind === 'prefill')
      parts.push(fill(t.prefills, { letter: letterOf(chunk.request_id), n: count(chunk.num_tokens) }));
  if (decode.length > 0)
    parts.push(fill(decode.length === 1 ? t.decodesOne : t.decodes, { letters: decode.join(' ') }));
  for (const event of one.preempted)
    parts.push(
      fill(event.reason.code === 'swap' ? t.wasSwapped : t.wasPreempted, {
        letter: letterOf(event.request_id),
        by: event.reason.for_request_id === event.request_id ? t.itself : letterOf(event.reason.for_request_id),
      }),
    );
  if (one.blocked)
    parts.push(
      fill(t.waits, {
        letter: letterOf(one.blocked.request_id),
        why: fill(t.blocked[one.blocked.code], {
          needed: one.blocked.num_blocks_needed ?? '',
          free: one.blocked.num_free ?? '',
        }),
      }),
    );
  return parts.join(' · ');
}

/** @param {BatchModel} model @param {number} step @param {number} numBlocks @param {number} numHost @returns {string} */
export function poolText(model, step, numBlocks, numHost) {
  const one = model.step(step);
  if (!one) return t.noStep;
  const values = {
    used: count(one.used),
    cached: count(one.cached),
    n: count(numBlocks),
    host: count(one.host),
    hostAll: count(numHost),
  };
  const moved = movesText(one.moves);
  return [fill(t.poolUsed, values), numHost > 0 && fill(t.hostUsed, values), moved].filter(Boolean).join(' · ');
}

/** A row's cell: request, step, state, and the step's duration.
 * @param {BatchModel} model @param {BatchRequest} request @param {number} step @returns {string} */
export function cellText(model, request, step) {
  const one = model.step(step);
  const base = fill(t.cell, { letter: request.letter, step, what: stateText(model, request, step) });
  if (!one) return base;
  const late = latencyOf(model, request).spikes.find((spike) => spike.step === step);
  const took = fill(t.took, { time: time(one.endUs - one.startUs) });
  const gap = idleBefore(model, one);
  return [
    base,
    gap > 4 * (one.endUs - one.startUs) ? `${took}, ${fill(t.stood, { time: time(gap) })}` : took,
    late && fill(t.late, { time: time(late.us), causes: late.causes.map((cause) => causeText(cause)).join('; ') }),
  ]
    .filter(Boolean)
    .join('\n');
}

/** @param {BatchModel} model @param {number} step @param {number} numBlocks @param {number} numHost @returns {string} */
export function describeBatch(model, step, numBlocks, numHost) {
  if (model.requests.size === 0) return t.empty;
  const parts = [fill(t.describe, { n: model.requests.size, step, head: model.headStep })];
  if (model.step(step)) parts.push(`${stepText(model, step)}.`, `${poolText(model, step, numBlocks, numHost)}.`);
  let slow = null;
  for (const request of model.requests.values()) {
    const { worst, spikes } = latencyOf(model, request);
    if (worst && spikes.length > 0 && (!slow || worst.us > slow.worst.us)) slow = { request, worst };
  }
  if (slow)
    parts.push(
      fill(t.describeWorst, {
        letter: slow.request.letter,
        time: time(slow.worst.us),
        step: slow.worst.step,
        cause: slow.worst.causes.map((cause) => causeText(cause)).join('; '),
      }),
    );
  return parts.join(' ');
}

/** @param {HTMLTableElement} table @param {BatchModel} model @param {readonly BatchRequest[]} rows @param {number} step */
export function fillBatchTable(table, model, rows, step) {
  const head = t.table;
  const columns = [head.request, head.prompt, head.priority, head.state, head.first, head.median, head.worst];
  replace(
    table,
    rows.length > 0 &&
      tableParts(
        fill(head.caption, { step }),
        columns,
        rows.slice(-60).map((request) => {
          const latency = latencyOf(model, request);
          const { worst } = latency;
          const why = worst?.causes.map((cause) => causeText(cause)).join('; ');
          const times = [latency.firstUs, latency.medianUs].map((us) => (us === null ? t.none : time(us)));
          return rowOf(
            request.letter,
            clip(request.prompt, 80),
            request.priority,
            stateText(model, request, step),
            ...times,
            worst ? [time(worst.us), why].filter(Boolean).join(': ') : t.none,
          );
        }),
      ),
  );
}
