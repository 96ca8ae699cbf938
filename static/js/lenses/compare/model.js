/** The lanes of a world with their measurements so far. Pure. */
import { figuresOf, lagging } from '../../core/lane-figures.js';
/** @import { Header, World, Request, LaneRun, LaneHeader } from '../../core/types.d.ts' */
/** @import { LaneMeasured } from '../../core/events.d.ts' */
/** @import { LaneFigures } from '../../core/lane-figures.js' */

/** One lane. The first `count` of `measured` belong to the state; `title` distinguishes lanes of the same kind.
 * @typedef {object} Lane
 * @property {number} index @property {LaneHeader} header @property {string} title @property {readonly LaneMeasured[]} measured @property {number} count
 * @property {LaneFigures|null} figures
 * @property {import('../../core/events.d.ts').LaneErrorsMeasured|null} errors @property {import('../../core/events.d.ts').NeedleSought|null} needle */

/** `count` of `planned` tokens are measured in all lanes; a lane that has stopped has fewer.
 * @typedef {{lanes: readonly Lane[], request: Request|null, run: LaneRun|null, count: number, planned: number, key: string}} Lanes */

/** @param {Header} header @param {World} world @param {LaneRun|null} run @param {number|null} last position of its last token, when it is known
 * @returns {Lanes} */
export function lanesAt(header, world, run, last) {
  const request = (run && world.requests.get(run.requestId)) ?? null;
  const all = run?.counts[0] ?? 0;
  const upTo = run && !request?.finish && lagging(run) ? all - 1 : all;
  const lanes = (header.lanes ?? []).map((lane, index) => {
    const measured = run?.measured[index] ?? [];
    const count = Math.min(run?.counts[index] ?? 0, upTo);
    return {
      index,
      header: lane,
      title: lane.title,
      measured,
      count,
      figures: figuresOf(measured, count),
      errors: run?.errors[index] ?? null,
      needle: run?.needles[index] ?? null,
    };
  });
  const planned =
    last !== null && request ? last + 1 - request.promptLength : Math.max(upTo, request?.maxNewTokens ?? 0);
  return {
    lanes,
    request,
    run,
    count: upTo,
    planned,
    key: `${header.title}:${run?.requestId}:${lanes.map((lane) => lane.header.spec).join()}`,
  };
}

/** Lanes that change the output. @param {Lanes} lanes @returns {Lane[]} */
export function lossyLanes({ lanes }) {
  return lanes.filter((lane) => !lane.header.exact && lane.index > 0);
}

/** @type {WeakMap<readonly LaneMeasured[], Map<string, number[]>>} */
const knownSeries = new WeakMap();

/** One measurement of all tokens of a lane so far. The returned list may grow with the next call, so read it at once.
 * @param {Lane} lane @param {string} name of the measure @param {(one: LaneMeasured) => number} value @param {number} [from] @returns {readonly number[]} */
export function series(lane, name, value, from = 0) {
  let known = knownSeries.get(lane.measured);
  if (!known) knownSeries.set(lane.measured, (known = new Map()));
  let list = known.get(name);
  if (!list) known.set(name, (list = []));
  for (let i = from + list.length; i < lane.count; i++) list.push(value(lane.measured[i]));
  const length = Math.max(0, lane.count - from);
  return list.length === length ? list : list.slice(0, length);
}

/** The next larger round number. @param {number} value @returns {number} */
export function niceTop(value) {
  if (!(value > 0)) return 0;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 1.2, 1.5, 2, 3, 4, 6, 8, 10].find((step) => step * unit >= value) ?? 10) * unit;
}
