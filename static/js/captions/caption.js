/**
 * One sentence on what just happened and why, from the events and their reason codes. `captionOf` is a pure function
 * of the scene; `moving` means that there is no time to read a sentence per layer.
 */
import { layerAt, phasesOf } from '../core/phases.js';
import { strings } from '../strings/main.js';
import { duration, percent, plural } from '../ui/format.js';
import { segments } from '../ui/text.js';
import { blocksCaption, rareCaption } from './blocks.js';
import { forcedCaption, forgottenCaption, lanesCaption, sinceLaneCaption } from './lanes.js';
import { blockList, caption, join, joinLong, letter, letters, thing, token } from './parts.js';
import { blockedCaption, forkCaption, waitingForkCaption } from './serving.js';
/** @import { Scene, StepInfo, Request, Header } from '../core/types.d.ts' */
/** @import { Log } from '../core/log.js' */
/** @import { Segment } from '../ui/text.js' */
/** @import { Caption } from './parts.js' */

const texts = strings.captions;
const serving = strings.servingCaptions;
/** Maximum number of requests of a batch whose tokens are named. */
const MAX_SAMPLES = 3;

/** The current scene as a sentence. @param {Scene} scene @param {Log} log @param {boolean} moving @returns {Caption} */
export function captionOf(scene, log, moving) {
  const { step, progress } = scene;
  if (!step) return settled(scene, log);
  const phases = phasesOf(step);
  if (progress < phases.blocks[1]) return blocksCaption(scene, step) ?? workCaption(scene, step, log.header, moving);
  if (progress < phases.layers[1]) return workCaption(scene, step, log.header, moving);
  if (progress < phases.sample[1]) return sampleCaption(scene, step) ?? workCaption(scene, step, log.header, moving);
  const told = endCaption(scene, step) ?? sampleCaption(scene, step) ?? workCaption(scene, step, log.header, true);
  return join(told, lanesCaption(scene.after, log, step.step));
}

/** @param {Scene} scene @param {StepInfo} step @param {Header|null} header @param {boolean} moving @returns {Caption} */
function workCaption(scene, step, header, moving) {
  const chunk = step.chunks[0];
  const blocked = blockedCaption(scene.after, step);
  if (!chunk) return join(caption('empty', texts.empty), blocked);
  const moment = layerAt(step, scene.progress);
  if (step.chunks.length > 1) return join(batchCaption(scene, step, moving ? null : moment), blocked);
  const request = scene.after.requests.get(chunk.request_id);
  const layers = header?.model.num_layers ?? 0;
  const told =
    chunk.kind === 'prefill'
      ? prefillCaption(request, chunk, moment?.layer ?? null, layers, moving)
      : decodeCaption(scene, request, chunk.start, moment, header, moving);
  return joinLong(told, blocked);
}

/** The chunks of one flat batch, and how much of the budget they use.
 * @param {Scene} scene @param {StepInfo} step @param {import('../core/types.d.ts').LayerMoment|null} moment @returns {Caption} */
function batchCaption(scene, step, moment) {
  const t = serving.batch;
  const decodes = step.chunks.filter((chunk) => chunk.kind === 'decode').map((chunk) => chunk.request_id);
  const prefills = step.chunks.filter((chunk) => chunk.kind === 'prefill');
  const total = step.chunks.reduce((sum, chunk) => sum + chunk.num_tokens, 0);
  /** @type {Segment[]} */
  const parts = [];
  if (decodes.length > 0)
    parts.push(
      ...segments(decodes.length === 1 ? t.decode : t.decodes, {
        n: decodes.length,
        requests: letters(scene.after, decodes),
      }),
    );
  prefills.slice(0, MAX_SAMPLES).forEach((chunk) => {
    if (parts.length > 0) parts.push(', ');
    parts.push(
      ...segments(chunk.num_tokens === 1 ? t.prefillOne : t.prefill, {
        request: letter(scene.after.requests.get(chunk.request_id)),
        n: chunk.num_tokens,
      }),
    );
  });
  if (prefills.length > MAX_SAMPLES) parts.push(...segments(t.more, { n: prefills.length - MAX_SAMPLES }));
  const values = { parts, total, budget: step.budget ?? total, layer: moment?.layer ?? 0 };
  const told = caption(prefills.length > 0 ? 'prefill' : 'decode', step.budget === null ? t.plain : t, values);
  return moment ? joinLong(told, caption('batch', t.layer, values)) : told;
}

/** @param {Request|undefined} request @param {import('../core/types.d.ts').Chunk} chunk @param {number|null} layer @param {number} layers @param {boolean} moving */
function prefillCaption(request, chunk, layer, layers, moving) {
  const total = request?.promptLength ?? chunk.num_tokens;
  const again =
    request !== undefined && (request.numPreemptions > 0 || chunk.start + chunk.num_tokens > request.promptLength);
  if (again && (moving || layer === null))
    return caption('prefill', serving.again, { request: letter(request), count: chunk.num_tokens });
  const values = {
    count: chunk.num_tokens,
    layer: layer ?? 0,
    layers,
    from: chunk.start,
    to: chunk.start + chunk.num_tokens - 1,
    total,
  };
  if (!moving && layer !== null) return caption('prefill', texts.prefill, values);
  const isPart = chunk.start > (request?.numHitTokens ?? 0) || chunk.start + chunk.num_tokens < total;
  return caption('prefill', isPart ? texts.prefill.chunk : texts.prefill.all, values);
}

/** @param {Scene} scene @param {Request|undefined} request @param {number} position @param {import('../core/types.d.ts').LayerMoment|null} moment @param {Header|null} header @param {boolean} moving */
function decodeCaption(scene, request, position, moment, header, moving) {
  const size = scene.after.blockSize;
  const values = {
    token: token(request, position),
    count: position + 1,
    layer: moment?.layer ?? 0,
    block: thing(request?.table[Math.floor(position / size)] ?? -1),
    slot: position % size,
  };
  if (moving || !moment) return caption('decode', texts.decode.all, values);
  const window = header?.model.layers[moment.layer]?.window ?? null;
  if (moment.stage === 'write') return caption('decode', texts.decode.write, values);
  if (window !== null && window < position + 1)
    return caption('decode', texts.decode.window, { ...values, count: window });
  return caption('decode', texts.decode.read, values);
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function sampleCaption(scene, step) {
  const sampled = step.sampled[0];
  if (!sampled && step.chunks.length > 1) return null;
  if (!sampled) {
    const chunk = step.chunks[0];
    const request = scene.after.requests.get(chunk?.request_id ?? -1);
    if (!chunk || chunk.kind !== 'prefill' || !request) return null;
    const computed = chunk.start + chunk.num_tokens;
    if (computed > request.promptLength || request.numPreemptions > 0)
      return caption('chunk', serving.again.done, { computed, total: request.tokens.length });
    return caption('chunk', texts.chunkDone, { computed, total: request.promptLength });
  }
  if (step.chunks.length > 1) return samplesCaption(scene, step);
  const request = scene.after.requests.get(sampled.request_id);
  const probability = sampled.candidates.find((candidate) => candidate.token_id === sampled.token_id)?.probability;
  const ends = step.finished.some((event) => event.request_id === sampled.request_id);
  if (sampled.reason.code === 'forced') return forcedCaption(scene.after, sampled);
  const text = ends ? texts.sampled.last : texts.sampled[sampled.reason.code];
  return caption('sampled', text, {
    token: token(request, sampled.position),
    percent: probability === undefined ? '?' : percent(probability),
  });
}

/** The next token of each request of a batch. @param {Scene} scene @param {StepInfo} step @returns {Caption} */
function samplesCaption(scene, step) {
  /** @type {Segment[]} */
  const list = [];
  step.sampled.slice(0, MAX_SAMPLES).forEach((event, i) => {
    const request = scene.after.requests.get(event.request_id);
    if (i > 0) list.push(', ');
    list.push(...segments(serving.samples.one, { request: letter(request), token: token(request, event.position) }));
  });
  const more = step.sampled.length - MAX_SAMPLES;
  return caption('sampled', step.sampled.length === 1 ? serving.samples.single : serving.samples, {
    list: more > 0 ? segments(texts.listMore, { list, n: more }) : list,
    n: step.sampled.length,
  });
}

/** @param {Scene} scene @param {StepInfo} step @returns {Caption|null} */
function endCaption(scene, step) {
  if (step.finished.length > 1) return endsCaption(scene, step);
  const fork = step.forked[0];
  if (fork && step.finished.length === 0) return forkCaption(scene.after, fork);
  const windowed = step.released.find((event) => event.reason.code === 'window');
  if (step.finished.length === 0) {
    const forgotten = forgottenCaption(scene.after, step);
    if (!windowed) return forgotten;
    return caption('window', texts.window, {
      blocks: blockList(windowed.block_ids),
      start: windowed.reason.window_start ?? 0,
    });
  }
  const [finished] = step.finished;
  const release = step.releasedLast.find(
    (event) =>
      event.request_id === finished.request_id && event.reason.code !== 'window' && event.reason.code !== 'forgotten',
  );
  return join(finishCaption(scene, finished), release ? releaseCaption(release) : null);
}

/** Several requests finish in one step. @param {Scene} scene @param {StepInfo} step @returns {Caption} */
function endsCaption(scene, step) {
  const ids = step.finished.map((event) => event.request_id);
  const releases = step.releasedLast.filter((event) => ids.includes(event.request_id));
  const kept = releases.reduce((sum, event) => sum + event.appended.length, 0);
  const blanked = releases.reduce((sum, event) => sum + event.prepended.length, 0);
  return caption('finished', serving.ends, {
    requests: letters(scene.after, ids),
    kept: plural(texts.nBlocks, kept),
    blanked: plural(texts.nBlank, blanked),
  });
}

/** @param {Scene} scene @param {import('../core/events.d.ts').RequestFinished} finished */
function finishCaption(scene, finished) {
  const request = scene.after.requests.get(finished.request_id);
  const text = texts.finished[finished.reason.code];
  return caption(
    'finished',
    { short: text, long: text },
    {
      request: letter(request),
      token: token(request, (request?.tokens.length ?? 1) - 1),
      max: plural(texts.nTokens, request?.maxNewTokens ?? 0),
    },
  );
}

/** @param {import('../core/events.d.ts').BlocksReleased} release */
function releaseCaption(release) {
  const kept = release.appended.length;
  const blanked = release.prepended.length;
  const others = release.block_ids.length - kept - blanked;
  const whose = others > 0 ? plural(texts.someShared, others) : texts.allBlocks;
  const values = { kept: plural(texts.nBlocks, kept), blanked: plural(texts.nBlank, blanked), whose };
  if (kept === 0 && blanked === 0) return caption('released', texts.released.shared, values);
  if (kept === 0) return caption('released', texts.released.blank, values);
  return caption('released', blanked === 0 ? texts.released.cached : texts.released, values);
}

/** At rest: the result of the last step, or what has happened since. @param {Scene} scene @param {Log} log @returns {Caption} */
function settled(scene, log) {
  const step = log.step(scene.position);
  const since = sinceCaption(scene, log, step ? step.lastSeq + 1 : log.firstSeq);
  if (since) return since;
  if (!step) return caption('nothing', texts.nothing);
  return join(leftCaption(scene, step, log), lanesCaption(scene.after, log, step.step));
}

/** The result of a finished step. @param {Scene} scene @param {StepInfo} step @param {Log} log @returns {Caption} */
function leftCaption(scene, step, log) {
  const work = workCaption({ ...scene, step, progress: 0 }, step, log.header, true);
  const done = endCaption(scene, step) ?? (step.chunks.length > 1 ? null : sampleCaption(scene, step));
  const rare = rareCaption(scene, step);
  if (rare) return joinLong(rare, step.chunks.length > 1 ? batchCaption(scene, step, null) : (done ?? work));
  return done
    ? joinLong(done, step.chunks.length > 1 ? work : blockedCaption(scene.after, step))
    : step.chunks.length > 1
      ? joinLong(work, sampleCaption(scene, step))
      : work;
}

/** Between two steps: a request joined, the prefix cache was cleared, or a miss was measured.
 * @param {Scene} scene @param {Log} log @param {number} from @returns {Caption|null} */
function sinceCaption(scene, log, from) {
  for (let seq = scene.after.seq; seq >= from; seq--) {
    const event = log.at(seq)?.[2];
    switch (event?.type) {
      case 'miss_measured':
        return caption('measured', texts.measured, {
          request: letter(scene.after.requests.get(event.request_id)),
          count: event.num_tokens,
          hit: duration(event.hit_first_token_us / 1000),
          miss: duration(event.first_token_us / 1000),
        });
      case 'needle_sought':
      case 'probe_timed':
        return sinceLaneCaption(scene.after, log, event);
      case 'prefix_cache_reset':
        return caption('reset', texts.reset, { n: event.block_ids.length });
      case 'request_forked':
        return forkCaption(scene.after, event);
      case 'request_reprioritised':
        return caption('reprioritised', serving.reprioritised, {
          request: letter(scene.after.requests.get(event.request_id)),
          priority: event.priority,
        });
      case 'request_added': {
        const request = scene.after.requests.get(event.request_id);
        if (event.fork) return waitingForkCaption(scene.after, event);
        return caption('waiting', scene.position === 0 ? texts.waiting : texts.added, {
          request: letter(request),
          count: event.token_ids.length,
        });
      }
      case 'request_finished':
        return finishCaption(scene, event);
      default:
        break;
    }
  }
  return null;
}
