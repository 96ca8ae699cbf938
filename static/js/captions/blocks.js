/** Sentences about blocks (lookups, hits, evictions by policy, allocations), and the choice of those a step shows. */
import { phasesOf, within } from '../core/phases.js';
import { strings } from '../strings/main.js';
import { plural } from '../ui/format.js';
import { segments } from '../ui/text.js';
import { blockList, caption, join, joinLong, letter, letters, thing, token } from './parts.js';
import { copyCaption, fetchCaption, offloadCaption, preemptionCaption, swapInCaption } from './serving.js';
/** @import { Scene, StepInfo } from '../core/types.d.ts' */
/** @import { PrefixLookedUp } from '../core/events.d.ts' */
/** @import { Caption } from './parts.js' */

const texts = strings.captions;
const serving = strings.servingCaptions;

/** What happens to blocks before the step computes: at most two sentences, the most important first.
 * @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
export function blocksCaption(scene, step) {
  const early = within(phasesOf(step).blocks, scene.progress) < 0.5;
  const lookup = lookupCaption(scene, step);
  const hits = lookup?.kind === 'hit';
  const told = [
    rareCaption(scene, step),
    hits ? lookup : null,
    step.evicted.length > 0 ? evictionCaption(scene, step) : null,
    hits ? null : lookup,
    allocationCaption(scene, step),
  ].filter((one) => one !== null);
  if (told.length === 0) return null;
  // After a hit, the allocation of further blocks isn't worth a sentence.
  const only = hits && step.evicted.length === 0 && told[0] === lookup;
  return early || only ? told[0] : (told[1] ?? told[0]);
}

/** What one request does to another: the most telling of all. @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
export function rareCaption(scene, step) {
  return preemptionCaption(scene, step) ?? copyCaption(scene, step) ?? swapInCaption(scene, step);
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function lookupCaption(scene, step) {
  const lookup = step.lookups.find((event) => event.num_hit_tokens > 0) ?? step.lookups[0];
  if (!lookup) return null;
  const request = scene.after.requests.get(lookup.request_id);
  const hit = lookup.num_hit_tokens;
  const why = whyNotMore(scene, lookup);
  if (hit === 0) return why;
  const { hit_block_ids: blocks } = lookup;
  const values = {
    request: letter(request),
    hit,
    count: lookup.num_tokens,
    blocks: blockList(blocks),
    hold: blocks.length === 1 ? texts.hold.one : texts.hold.many,
    host: lookup.num_host_tokens ?? 0,
  };
  const again =
    step.started.some((event) => event.request_id === lookup.request_id) && (request?.numPreemptions ?? 0) > 0;
  const text = blocks.length === 0 ? serving.hitHost : again ? serving.hitAgain : texts.hit;
  let told = caption('hit', text, values);
  const fetched = fetchCaption(step, lookup.request_id);
  if (fetched) told = join(told, fetched);
  if (lookup.reason.code === 'last_token') return join(told, why);
  return lookup.reason.code === 'hit' ? told : joinLong(told, why);
}

/** Why a lookup found no more than it did. @param {Scene} scene @param {PrefixLookedUp} lookup @returns {Caption|null} */
function whyNotMore(scene, lookup) {
  const { code, position, step, keys } = lookup.reason;
  if (code === 'hit') return null;
  const { blockSize } = scene.after;
  const at = position ?? 0;
  const values = {
    request: letter(scene.after.requests.get(lookup.request_id)),
    hit: lookup.num_hit_tokens,
    count: lookup.num_tokens,
    position: at,
    step: step ?? 0,
    size: blockSize,
    keys: (keys ?? []).map((key) => /** @type {Record<string, string>} */ (serving.keys)[key] ?? key).join(', '),
  };
  if (code === 'differs' || code === 'less_than_block') {
    const pair = twoTexts(scene, lookup.request_id, at);
    const t = serving.miss[code];
    return caption('miss', pair ? t.texts : t, pair ? { ...values, ...pair } : values);
  }
  if (code in serving.miss)
    return caption('miss', serving.miss[/** @type {keyof typeof serving.miss} */ (code)], values);
  return caption('miss', texts.miss[/** @type {keyof typeof texts.miss} */ (code)], values);
}

/** The token of a prompt at the position where it parts from another request, and that one's, when it is known here.
 * @param {Scene} scene @param {number} requestId @param {number} position */
function twoTexts(scene, requestId, position) {
  const own = scene.after.requests.get(requestId);
  if (!own || position >= own.tokens.length) return null;
  for (const other of scene.after.requests.values()) {
    if (other === own || position >= other.tokens.length || other.tokens[position] === own.tokens[position]) continue;
    if (other.salt !== own.salt || other.tokens.some((id, i) => i < position && id !== own.tokens[i])) continue;
    return { own: token(own, position), other: token(other, position), former: letter(other) };
  }
  return null;
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption} */
function evictionCaption(scene, step) {
  const { evicted } = step;
  const [first] = evicted;
  const { policy } = first.reason;
  const kept = offloadCaption(step);
  const takers = [...new Set([...step.allocated, ...step.copied].map((event) => event.request_id))];
  if (evicted.length > 1) {
    const list = blockList(
      evicted.map((event) => event.block_id),
      true,
    );
    const needed = step.allocated.length + step.copied.length;
    const { many } = texts.evicted;
    const text = { short: many.short, long: takers.length > 1 ? serving.evicted.many : many.long };
    const order = serving.evicted.order[policy ?? 'lru'];
    return join(
      caption('evicted', text, {
        n: evicted.length,
        list,
        request: letters(scene.after, takers),
        need: plural(texts.need, needed),
        order,
      }),
      kept,
    );
  }
  const others =
    first.reason.alternatives.length > 0
      ? segments(texts.evicted.others, { list: blockList(first.reason.alternatives) })
      : texts.evicted.alone;
  const text = policy === 'lru' || policy === undefined ? texts.evicted : serving.evicted[policy];
  return join(
    caption('evicted', text, {
      block: thing(first.block_id),
      since: first.reason.free_since_step,
      free: first.reason.num_free,
      others,
      cached: first.reason.cached_since_step ?? 0,
      hits: first.reason.num_hits ?? 0,
    }),
    kept,
  );
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function allocationCaption(scene, step) {
  const [first] = step.allocated;
  if (!first) return null;
  const takers = [...new Set(step.allocated.map((event) => event.request_id))];
  const blocks = blockList(step.allocated.map((event) => event.block_id));
  if (takers.length > 1)
    return caption('allocated', serving.allocated.many, {
      requests: letters(scene.after, takers),
      blocks,
      n: step.allocated.length,
    });
  const { code, num_tokens: tokens, num_blocks_held: held } = first.reason;
  const values = {
    request: letter(scene.after.requests.get(first.request_id)),
    blocks,
    tokens,
    held: plural(texts.need, held),
  };
  if (code === 'fetch' || code === 'swap_in') return caption('allocated', serving.allocated[code], values);
  if (code === 'prompt' && held === 0)
    return caption('allocated', { short: texts.allocated.prompt.short, long: texts.allocated.prompt.first }, values);
  return caption('allocated', texts.allocated[code], values);
}
