/** Sentences on dropped entries, and on what the lanes of a comparison predict for the same token. */
import { lagging } from '../core/lane-figures.js';
import { strings } from '../strings/main.js';
import { duration, plural, small } from '../ui/format.js';
import { clip, quoted } from '../ui/text.js';
import { blockList, caption, join, letter, token } from './parts.js';
/** @import { World, StepInfo } from '../core/types.d.ts' */
/** @import { Log } from '../core/log.js' */
/** @import { LaneMeasured } from '../core/events.d.ts' */
/** @import { Caption } from './parts.js' */

const texts = strings.compareCaptions;
const MAX_ANSWER = 60;

/** @param {Log} log @param {number} lane @returns {string} */
function nameOf(log, lane) {
  return log.header?.lanes?.[lane]?.spec ?? String(lane);
}

/** What the lanes measured in a step, or after it before the next one starts.
 * @param {World} world @param {Log} log @param {number} step @returns {LaneMeasured[]} */
function lanesOf(world, log, step) {
  const range = log.stepRange(step);
  const found = [];
  for (let seq = range ? range[0] : Infinity; seq <= world.seq; seq++) {
    const event = log.at(seq)?.[2];
    if (event?.type === 'lane_measured') found.push(event);
  }
  return found;
}

/** Lanes that would generate another token; if there are none, the largest difference of a lane.
 * @param {World} world @param {Log} log @param {number} step @returns {Caption|null} */
export function lanesCaption(world, log, step) {
  const others =
    (log.header?.lanes?.length ?? 0) > 1 ? lanesOf(world, log, step).filter((event) => event.lane > 0) : [];
  const run = others.length > 0 ? world.lanes.get(others[0].request_id) : undefined;
  if (!run || lagging(run)) return null;
  const request = world.requests.get(others[0].request_id);
  const taken = token(request, others[0].position);
  const differing = others.filter((event) => !event.agrees);
  const far = others.reduce((most, event) => (event.kl > most.kl ? event : most));
  if (differing.length === 0) {
    const exact = others.every((event) => log.header?.lanes?.[event.lane]?.exact);
    const diff = Math.max(...others.map((event) => event.max_abs_diff));
    return caption('lanes', exact ? texts.exact : texts.agree, {
      taken,
      lane: nameOf(log, far.lane),
      kl: small(far.kl),
      diff: small(diff),
    });
  }
  const [first, ...more] = differing.sort((a, b) => b.kl - a.kl);
  const told = caption('lanes', texts.differs, {
    lane: nameOf(log, first.lane),
    token: { text: quoted(first.own_piece), kind: 'token', piece: first.own_piece },
    taken,
    kl: small(first.kl),
  });
  return more.length === 0
    ? told
    : join(
        told,
        caption('lanes', texts.differs.more, { lanes: more.map((event) => nameOf(log, event.lane)).join(', ') }),
      );
}

/** The reference's token, taken whatever the lane predicts.
 * @param {World} world @param {import('../core/events.d.ts').TokenSampled} sampled @returns {Caption} */
export function forcedCaption(world, sampled) {
  return caption('forced', texts.forced, { token: token(world.requests.get(sampled.request_id), sampled.position) });
}

/** Entries that a policy dropped in the step, or a lane without a cache.
 * @param {World} world @param {StepInfo} step @returns {Caption|null} */
export function forgottenCaption(world, step) {
  const [first] = step.forgotten;
  const thrown = step.releasedLast.find((event) => event.reason.code === 'no_cache');
  if (!first) return thrown ? caption('no_cache', texts.noCache, { blocks: thrown.block_ids.length }) : null;
  const t = texts.forgotten;
  const alike = first.dropped.length === 1 && first.dropped[0].length === 1;
  const total = first.dropped.flat().reduce((sum, positions) => sum + positions.length, 0);
  const told = caption('forgotten', alike ? t.tokens : t.entries, {
    policy: first.policy,
    n: plural(alike ? t.nTokens : t.nEntries, total),
    request: letter(world.requests.get(first.request_id)),
  });
  const freed = step.releasedLast.find((event) => event.reason.code === 'forgotten');
  return freed ? join(told, caption('forgotten', t.freed, { blocks: blockList(freed.block_ids) })) : told;
}

/** All lanes that have answered, in one sentence.
 * @param {World} world @param {Log} log @param {import('../core/events.d.ts').NeedleSought|import('../core/events.d.ts').ProbeTimed} event @returns {Caption} */
export function sinceLaneCaption(world, log, event) {
  if (event.type === 'probe_timed')
    return caption('probe', texts.probe, { time: duration(event.first_token_us / 1000) });
  const told = (world.lanes.get(event.request_id)?.needles ?? []).filter((needle) => needle !== null);
  const lost = told.filter((needle) => !needle.found).map((needle) => nameOf(log, needle.lane));
  if (told.length > 1)
    return caption('needle', lost.length === 0 ? texts.allFound : texts.someLost, {
      word: event.word,
      n: told.length,
      found: told.length - lost.length,
      lanes: lost.join(', '),
    });
  return caption('needle', event.found ? texts.found : texts.lost, {
    lane: nameOf(log, event.lane),
    word: event.word,
    answer: `“${clip(event.answer.trim().replace(/\s+/g, ' '), MAX_ANSWER)}”`,
  });
}
