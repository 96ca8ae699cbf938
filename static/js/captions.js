/**
 * One sentence on what just happened and why, made from the events and their reason codes. `captionOf` is a pure function
 * of the scene; `moving` says that nobody has time to read a sentence per layer.
 */
import { layerAt, phasesOf, within } from './phases.js';
import { strings } from './strings.js';
import { count, duration, percent, quoted, segments } from './text.js';

/** @typedef {import('./types.d.ts').Scene} Scene */
/** @typedef {import('./types.d.ts').StepInfo} StepInfo */
/** @typedef {import('./types.d.ts').Request} Request */
/** @typedef {import('./types.d.ts').Header} Header */
/** @typedef {import('./log.js').Log} Log */
/** @typedef {import('./text.js').Segment} Segment */
/** @typedef {{short: string, long: string}} Texts */
/** @typedef {Record<string, string|number|Segment|Segment[]>} Values */
/** @typedef {{short: Segment[], long: Segment[], kind: string}} Caption */

const texts = strings.captions;
const MAX_LISTED = 4;

/** @param {string} kind @param {Texts} text @param {Values} values @returns {Caption} */
function caption(kind, text, values = {}) {
  return { kind, short: segments(text.short, values), long: segments(text.long, values) };
}

/** Two captions as one. @param {Caption} first @param {Caption|null} second @returns {Caption} */
function join(first, second) {
  if (!second) return first;
  return { kind: first.kind, short: [...first.short, ' ', ...second.short], long: [...first.long, ' ', ...second.long] };
}

/** @param {Request|undefined} request @returns {Segment} */
function letter(request) {
  return request ? { text: request.letter, kind: 'thing', selection: { kind: 'request', request: request.id } } : '?';
}

/** @param {number} block @returns {Segment} */
function thing(block) {
  return { text: String(block), kind: 'thing', selection: { kind: 'block', block } };
}

/** `blocks 3, 4 and 2 more`. @param {number[]} blocks @param {boolean} [bare] @returns {Segment[]} */
function blockList(blocks, bare = false) {
  /** @type {Segment[]} */
  const list = [];
  blocks.slice(0, MAX_LISTED).forEach((block, i) => {
    if (i > 0) list.push(', ');
    list.push(thing(block));
  });
  const all = blocks.length > MAX_LISTED ? segments(texts.listMore, { list, n: blocks.length - MAX_LISTED }) : list;
  if (bare) return all;
  return blocks.length === 1 ? segments(texts.blockOne, { a: thing(blocks[0]) }) : segments(texts.blockMany, { list: all });
}

/** @param {Request|undefined} request @param {number} position @returns {Segment} */
function token(request, position) {
  if (!request) return '…';
  return { text: quoted(request.pieces[position]), kind: 'token', piece: request.pieces[position], selection: { kind: 'token', request: request.id, position } };
}

/** @param {{one: string, many: string}} text @param {number} n */
function plural(text, n) {
  return (n === 1 ? text.one : text.many).replace('{n}', count(n));
}

/** What is on screen, in a sentence. @param {Scene} scene @param {Log} log @param {boolean} moving @returns {Caption} */
export function captionOf(scene, log, moving) {
  const { step, progress } = scene;
  if (!step) return settled(scene, log);
  const phases = phasesOf(step);
  if (progress < phases.blocks[1]) return blocksCaption(scene, step) ?? workCaption(scene, step, log.header, moving);
  if (progress < phases.layers[1]) return workCaption(scene, step, log.header, moving);
  if (progress < phases.sample[1]) return sampleCaption(scene, step) ?? workCaption(scene, step, log.header, moving);
  return endCaption(scene, step) ?? sampleCaption(scene, step) ?? workCaption(scene, step, log.header, true);
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function blocksCaption(scene, step) {
  const hit = hitCaption(scene, step);
  const hits = step.shared.length > 0;
  const early = within(phasesOf(step).blocks, scene.progress) < 0.5;
  if (hit && hits && (early || step.evicted.length === 0)) return hit;
  if (step.evicted.length > 0) return evictionCaption(scene, step);
  if (hit && early) return hit;
  return allocationCaption(scene, step);
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function hitCaption(scene, step) {
  const lookup = step.lookups[0];
  if (!lookup) return null;
  const request = scene.after.requests.get(lookup.request_id);
  const values = { request: letter(request), hit: lookup.num_hit_tokens, count: lookup.num_tokens, position: lookup.reason.position ?? 0 };
  const { code } = lookup.reason;
  if (lookup.num_hit_tokens > 0) {
    const hit = caption('hit', texts.hit, { ...values, blocks: blockList(lookup.hit_block_ids) });
    if (code === 'last_token') return join(hit, caption('hit', texts.miss.last_token, values));
    return hit;
  }
  return code === 'hit' ? null : caption('miss', texts.miss[code], values);
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption} */
function evictionCaption(scene, step) {
  const { evicted, allocated } = step;
  const [first] = evicted;
  if (evicted.length > 1) {
    const request = scene.after.requests.get(allocated[0]?.request_id ?? -1);
    const list = blockList(evicted.map((event) => event.block_id), true);
    return caption('evicted', texts.evicted.many, { n: evicted.length, list, request: letter(request), need: plural(texts.need, allocated.length) });
  }
  const others = first.reason.alternatives.length > 0 ? segments(texts.evicted.others, { list: blockList(first.reason.alternatives) }) : texts.evicted.alone;
  return caption('evicted', texts.evicted, { block: thing(first.block_id), since: first.reason.free_since_step, free: first.reason.num_free, others });
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function allocationCaption(scene, step) {
  const [first] = step.allocated;
  if (!first) return null;
  const request = scene.after.requests.get(first.request_id);
  const { code, num_tokens: tokens, num_blocks_held: held } = first.reason;
  const values = { request: letter(request), blocks: blockList(step.allocated.map((event) => event.block_id)), tokens, held };
  if (code === 'prompt' && held === 0) return caption('allocated', { short: texts.allocated.prompt.short, long: texts.allocated.prompt.first }, values);
  return caption('allocated', texts.allocated[code], values);
}

/** @param {Scene} scene @param {StepInfo} step @param {Header|null} header @param {boolean} moving @returns {Caption} */
function workCaption(scene, step, header, moving) {
  const chunk = step.chunks[0];
  if (!chunk) return caption('empty', texts.empty);
  const request = scene.after.requests.get(chunk.request_id);
  const moment = layerAt(step, scene.progress);
  const layers = header?.model.num_layers ?? 0;
  if (chunk.kind === 'prefill') return prefillCaption(request, chunk, moment?.layer ?? null, layers, moving);
  return decodeCaption(scene, request, chunk.start, moment, header, moving);
}

/** @param {Request|undefined} request @param {import('./types.d.ts').Chunk} chunk @param {number|null} layer @param {number} layers @param {boolean} moving */
function prefillCaption(request, chunk, layer, layers, moving) {
  const total = request?.promptLength ?? chunk.num_tokens;
  const values = { count: chunk.num_tokens, layer: layer ?? 0, layers, from: chunk.start, to: chunk.start + chunk.num_tokens - 1, total };
  if (!moving && layer !== null) return caption('prefill', texts.prefill, values);
  const isPart = chunk.start > (request?.numHitTokens ?? 0) || chunk.start + chunk.num_tokens < total;
  return caption('prefill', isPart ? texts.prefill.chunk : texts.prefill.all, values);
}

/** @param {Scene} scene @param {Request|undefined} request @param {number} position @param {import('./types.d.ts').LayerMoment|null} moment @param {Header|null} header @param {boolean} moving */
function decodeCaption(scene, request, position, moment, header, moving) {
  const size = scene.after.blockSize;
  const values = { token: token(request, position), count: position + 1, layer: moment?.layer ?? 0, block: thing(request?.table[Math.floor(position / size)] ?? -1), slot: position % size };
  if (moving || !moment) return caption('decode', texts.decode.all, values);
  const window = header?.model.layers[moment.layer]?.window ?? null;
  if (moment.stage === 'write') return caption('decode', texts.decode.write, values);
  if (window !== null && window < position + 1) return caption('decode', texts.decode.window, { ...values, count: window });
  return caption('decode', texts.decode.read, values);
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function sampleCaption(scene, step) {
  const sampled = step.sampled[0];
  if (!sampled) {
    const chunk = step.chunks[0];
    const request = scene.after.requests.get(chunk?.request_id ?? -1);
    if (!chunk || chunk.kind !== 'prefill' || !request) return null;
    return caption('chunk', texts.chunkDone, { computed: chunk.start + chunk.num_tokens, total: request.promptLength });
  }
  const request = scene.after.requests.get(sampled.request_id);
  const probability = sampled.candidates.find((candidate) => candidate.token_id === sampled.token_id)?.probability;
  const ends = step.finished.some((event) => event.request_id === sampled.request_id);
  const text = ends ? texts.sampled.last : texts.sampled[sampled.reason.code];
  return caption('sampled', text, { token: token(request, sampled.position), percent: probability === undefined ? '?' : percent(probability) });
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function endCaption(scene, step) {
  const windowed = step.released.find((event) => event.reason.code === 'window');
  if (step.finished.length === 0) {
    if (!windowed) return null;
    return caption('window', texts.window, { blocks: blockList(windowed.block_ids), start: windowed.reason.window_start ?? 0 });
  }
  const [finished] = step.finished;
  const release = step.released.find((event) => event.request_id === finished.request_id && event.reason.code !== 'window');
  return join(finishCaption(scene, finished), release ? releaseCaption(release) : null);
}

/** @param {Scene} scene @param {import('./events.d.ts').RequestFinished} finished */
function finishCaption(scene, finished) {
  const request = scene.after.requests.get(finished.request_id);
  const text = texts.finished[finished.reason.code];
  return caption('finished', { short: text, long: text }, { request: letter(request), token: token(request, (request?.tokens.length ?? 1) - 1), max: request?.maxNewTokens ?? 0 });
}

/** @param {import('./events.d.ts').BlocksReleased} release */
function releaseCaption(release) {
  const kept = release.appended.length;
  const blanked = release.prepended.length;
  const values = { kept: plural(texts.nBlocks, kept), blanked: plural(texts.nBlank, blanked) };
  if (kept === 0 && blanked === 0) return caption('released', texts.released.shared, values);
  if (kept === 0) return caption('released', texts.released.blank, values);
  return caption('released', blanked === 0 ? texts.released.cached : texts.released, values);
}

/** A settled position says what the step before it left, or what has happened since. @param {Scene} scene @param {Log} log @returns {Caption} */
function settled(scene, log) {
  const step = log.step(scene.position);
  const since = sinceCaption(scene, log, step ? step.lastSeq + 1 : log.firstSeq);
  if (since) return since;
  if (!step) return caption('nothing', texts.nothing);
  return endCaption(scene, step) ?? sampleCaption(scene, step) ?? workCaption({ ...scene, step, progress: 0 }, step, log.header, true);
}

/** Between two steps: a request joined, the prefix cache was emptied, a miss was measured. @param {Scene} scene @param {Log} log @param {number} from @returns {Caption|null} */
function sinceCaption(scene, log, from) {
  for (let seq = scene.after.seq; seq >= from; seq--) {
    const event = log.at(seq)?.[2];
    switch (event?.type) {
      case 'miss_measured': return caption('measured', texts.measured, {
        request: letter(scene.after.requests.get(event.request_id)), count: event.num_tokens,
        hit: duration(event.hit_first_token_us / 1000), miss: duration(event.first_token_us / 1000),
      });
      case 'prefix_cache_reset': return caption('reset', texts.reset, { n: event.block_ids.length });
      case 'request_added': {
        const request = scene.after.requests.get(event.request_id);
        return caption('waiting', scene.position === 0 ? texts.waiting : texts.added, { request: letter(request), count: event.token_ids.length });
      }
      case 'request_finished': return finishCaption(scene, event);
      default: break;
    }
  }
  return null;
}
