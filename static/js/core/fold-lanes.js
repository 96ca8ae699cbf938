/** The fold of dropped entries in a request, and of measurements by the lanes of a comparison and by an attacker. */
import { expect, requestOf } from './fold.js';
/** @import { World } from './state.js' */
/** @import { Request, LaneRun } from './types.d.ts' */
/** @import { Cases } from './fold.js' */

/** Cases of `reducer.js`.
 * @type {Pick<Cases, 'kv_forgotten'|'lane_measured'|'lane_errors_measured'|'needle_sought'|'probe_timed'>} */
export const laneCases = {
  kv_forgotten(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request) return;
    const { dropped } = event;
    if (request.forgotten.length === 0) request.forgotten = dropped.map((heads) => heads.map(() => new Map()));
    const alike =
      dropped.length === request.forgotten.length &&
      dropped.every((heads, layer) => heads.length === request.forgotten[layer].length);
    expect(
      world,
      alike,
      () => `request ${request.letter} dropped entries in a different set of layers and heads than before`,
    );
    dropped.forEach((heads, layer) =>
      heads.forEach((positions, head) => {
        const gone = request.forgotten[layer]?.[head];
        if (gone) for (const position of positions) forgetOne(world, request, gone, position);
      }),
    );
  },

  lane_measured(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request || !isLane(world, event.lane)) return;
    const last = request.tokens.length - 1;
    expect(
      world,
      event.position === last,
      () => `lane ${event.lane} was measured at position ${event.position}, but the last token is at ${last}`,
    );
    expect(
      world,
      event.token_id === request.tokens[last],
      () => `lane ${event.lane} was measured against a token that isn’t the reference’s`,
    );
    expect(
      world,
      event.agrees === (event.own_token_id === event.token_id),
      () =>
        `lane ${event.lane} is marked as ${event.agrees ? 'the same' : 'different'}, but its token is ${event.agrees ? 'different' : 'the same'}`,
    );
    const run = runOf(world, event.request_id);
    const count = run.counts[event.lane] ?? 0;
    const list = (run.measured[event.lane] ??= []);
    const former = list[count - 1];
    expect(
      world,
      event.lane === 0 || count < (run.counts[0] ?? 0),
      () => `lane ${event.lane} has ${count + 1} measurements, but the reference has ${run.counts[0] ?? 0}`,
    );
    expect(
      world,
      count === 0 || former.num_projections <= event.num_projections,
      () => `the number of projections of lane ${event.lane} fell`,
    );
    list[count] = event;
    world.lanes.set(run.requestId, { ...run, counts: withAt(run.counts, event.lane, count + 1, 0) });
  },

  lane_errors_measured(world, event) {
    const request = requestOf(world, event.request_id);
    if (!request || !isLane(world, event.lane)) return;
    expect(
      world,
      event.num_tokens <= request.tokens.length,
      () => `errors were measured over ${event.num_tokens} tokens, but the request has ${request.tokens.length}`,
    );
    expect(
      world,
      event.key_error.length === event.value_error.length,
      () => 'the errors of K and V have different numbers of layers',
    );
    const run = runOf(world, event.request_id);
    world.lanes.set(run.requestId, { ...run, errors: withAt(run.errors, event.lane, event, null) });
  },

  needle_sought(world, event) {
    if (!requestOf(world, event.request_id) || !isLane(world, event.lane)) return;
    const run = runOf(world, event.request_id);
    world.lanes.set(run.requestId, { ...run, needles: withAt(run.needles, event.lane, event, null) });
  },

  probe_timed(world, event) {
    if (requestOf(world, event.request_id)) world.probes = [...world.probes, event];
  },
};

/** A branch starts with the entries its parent has dropped, up to this record.
 * @param {World} world @param {Request} branch @param {Request} parent */
export function forgetAlike(world, branch, parent) {
  branch.forgotten = parent.forgotten.map((heads) =>
    heads.map((gone) => new Map([...gone].filter(([, since]) => since <= world.seq))),
  );
  branch.numDropped = branch.forgotten.flat().reduce((sum, gone) => sum + gone.size, 0);
}

/** None of a request's tokens are computed any more. @param {Request} request */
export function forgetAll(request) {
  request.numComputed = 0;
  request.forgotten = [];
  request.numDropped = 0;
}

/** Another fold of the same log may have added this record to the position already.
 * @param {World} world @param {Request} request @param {Map<number, number>} gone @param {number} position */
function forgetOne(world, request, gone, position) {
  const since = gone.get(position);
  expect(
    world,
    position >= 0 && position < request.numComputed,
    () => `position ${position} of request ${request.letter} was dropped but isn’t computed`,
  );
  expect(
    world,
    since === undefined || since >= world.seq,
    () => `position ${position} of request ${request.letter} was dropped twice`,
  );
  if (since === undefined) gone.set(position, world.seq);
  if (since === undefined || since >= world.seq) request.numDropped++;
}

/** @param {World} world @param {number} lane @returns {boolean} */
function isLane(world, lane) {
  const known = Number.isInteger(lane) && lane >= 0 && (world.numLanes === null || lane < world.numLanes);
  expect(world, known, () => `lane ${lane} was measured in a run of ${world.numLanes ?? 0} lanes`);
  return known;
}

/** @param {World} world @param {number} requestId @returns {LaneRun} */
function runOf(world, requestId) {
  return world.lanes.get(requestId) ?? { requestId, measured: [], counts: [], errors: [], needles: [] };
}

/** A copy with one value replaced; missing values are `none`.
 * @template T @param {readonly T[]} list @param {number} index @param {T} value @param {T} none @returns {T[]} */
function withAt(list, index, value, none) {
  const copy = list.slice();
  while (copy.length < index) copy.push(none);
  copy[index] = value;
  return copy;
}
