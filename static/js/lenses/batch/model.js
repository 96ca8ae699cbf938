/**
 * The state of every request in every step, and the work of each step: a fold of the log's own records, continued as
 * the log grows. It doesn't need a world, so it is right even if the page doesn't understand some events.
 */
import { letterOf } from '../../core/state.js';
/** @import { Log } from '../../core/log.js' */
/** @import { Chunk, RequestPreempted, BlocksSwappedOut, BlocksSwappedIn } from '../../core/events.d.ts' */
/** @typedef {'finished'|'cancelled'|'failed'} EndState */
/** @typedef {'none'|'waiting'|'prefill'|'decode'|'held'|'preempted'|'swapped'|EndState} BatchState */

/**
 * `held`: the request runs and holds its blocks, but the step's budget was used up. `states[i]` is the state in step
 * `firstStep + i`. `reached` is the most tokens ever computed; tokens below it are recomputed.
 * @typedef {{id: number, letter: string, prompt: string, promptLength: number, priority: number,
 *   fork: {parent: number, position: number}|null, addedUs: number|null, firstStep: number, endStep: number,
 *   end: EndState|null, states: BatchState[], reached: number, now: BatchState,
 *   tokenUs: number[], tokenStep: number[], numSettled: number}} BatchRequest
 */

/** `again`: recomputed tokens, by request. `measured`: the request whose miss was measured before the step.
 * @typedef {{step: number, startUs: number, endUs: number, budget: number|null, chunks: readonly Chunk[], numTokens: number,
 *   blocked: import('../../core/events.d.ts').Blocked|null, used: number, cached: number, host: number, again: Map<number, number>, measured: number|null,
 *   preempted: RequestPreempted[], swappedOut: BlocksSwappedOut[], swappedIn: BlocksSwappedIn[],
 *   moves: {evicted: number, offloaded: number, fetched: number, copied: number, forgotten: number, bytes: number}}} BatchStep */

export class BatchModel {
  /** @type {import('../../core/types.d.ts').EventRecord[]} */
  records = [];
  read = 0;
  /** Last step before the first one known. */
  base = 0;
  /** Step `base + 1 + i`, finished. @type {BatchStep[]} */
  steps = [];
  /** In order of id. @type {Map<number, BatchRequest>} */
  requests = new Map();
  /** Unfinished requests. @type {Set<BatchRequest>} */
  live = new Set();
  refCount = new Int32Array(0);
  hashed = new Uint8Array(0);
  used = 0;
  cached = 0;
  /** Host blocks in use: the swapped request, or null for a prefix. @type {Map<number, number|null>} */
  host = new Map();
  /** The step in progress. @type {BatchStep|null} */
  open = null;
  /** The request whose miss was measured since the last step. @type {number|null} */
  measured = null;
  /** Increases with every change. */
  version = 0;

  /** @param {Log} log */
  constructor(log) {
    this.log = log;
    this.#reset();
  }

  #reset() {
    const { log } = this;
    const numBlocks = log.header?.pool.num_blocks ?? 0;
    Object.assign(this, {
      records: log.records,
      read: 0,
      base: log.baseStep,
      steps: [],
      requests: new Map(),
      live: new Set(),
      refCount: new Int32Array(numBlocks),
      hashed: new Uint8Array(numBlocks),
      used: 0,
      cached: 0,
      host: new Map(),
      open: null,
      measured: null,
    });
    this.version += 1;
    this.#resume(log.checkpoint);
  }

  /** The state before the first record. @param {any} checkpoint */
  #resume(checkpoint) {
    if (!checkpoint) return;
    for (const [block, count] of checkpoint.ref_count.entries()) {
      this.refCount[block] = count;
      this.hashed[block] = checkpoint.hash[block] === null ? 0 : 1;
      if (count > 0) this.used += 1;
      else if (this.hashed[block]) this.cached += 1;
    }
    for (const [hostId, block] of checkpoint.host ?? []) this.host.set(hostId, block.request_id);
    for (const known of checkpoint.requests) {
      if (known.state === 'finished') continue;
      const now = known.state === 'running' ? 'held' : known.state;
      this.#add({
        id: known.id,
        prompt: known.prompt,
        promptLength: known.prompt_length,
        priority: known.priority ?? 0,
        fork: known.fork ?? null,
        addedUs: null,
        now,
      }).reached = known.num_computed;
    }
  }

  /** @param {{id: number, prompt: string, promptLength: number, priority: number, fork: import('../../core/events.d.ts').ForkOrigin|null, addedUs: number|null, now: BatchState}} known */
  #add({ id, prompt, promptLength, priority, fork, addedUs, now }) {
    const firstStep = this.headStep + (this.open ? 2 : 1);
    /** @type {BatchRequest} */
    const request = {
      id,
      letter: letterOf(id),
      prompt: prompt === '' && fork ? (this.requests.get(fork.parent_id)?.prompt ?? '') : prompt,
      promptLength,
      priority,
      fork: fork && { parent: fork.parent_id, position: fork.position },
      addedUs,
      firstStep,
      endStep: Infinity,
      end: null,
      states: [],
      reached: 0,
      now,
      tokenUs: [],
      tokenStep: [],
      numSettled: 0,
    };
    this.requests.set(id, request);
    this.live.add(request);
    return request;
  }

  get headStep() {
    return this.base + this.steps.length;
  }

  /** Folds new records. @returns {boolean} whether anything had */
  advance() {
    const { log } = this;
    if (log.records !== this.records || log.records.length < this.read) this.#reset();
    if (this.read === log.records.length) return false;
    while (this.read < log.records.length) {
      const [, us, event] = log.records[this.read++];
      this.#apply(us, event);
    }
    this.version += 1;
    return true;
  }

  /** @param {number} step @returns {BatchStep|undefined} */
  step(step) {
    return this.steps[step - this.base - 1];
  }

  /** @param {BatchRequest} request @param {number} step @returns {BatchState} */
  stateAt(request, step) {
    if (step < request.firstStep) return 'none';
    if (request.end && step > request.endStep) return request.end;
    return request.states[step - request.firstStep] ?? 'none';
  }

  /** @param {number} us @param {import('../../core/types.d.ts').Event} event */
  #apply(us, event) {
    const { open } = this;
    const request = 'request_id' in event ? this.requests.get(event.request_id) : undefined;
    switch (event.type) {
      case 'request_added':
        this.#add({
          id: event.request_id,
          prompt: event.prompt,
          promptLength: event.num_prompt_tokens ?? event.token_ids.length,
          priority: event.priority ?? 0,
          fork: event.fork ?? null,
          addedUs: us,
          now: 'waiting',
        });
        break;
      case 'request_forked':
        for (const block of event.block_ids) if (block !== null) this.#count(block, 1);
        if (request) {
          request.now = 'held';
          request.reached = event.num_computed;
        }
        break;
      case 'request_reprioritised':
        if (request) request.priority = event.priority;
        break;
      case 'step_started':
        this.open = blankStep(event.step, us, this.measured);
        this.measured = null;
        break;
      case 'miss_measured':
        this.measured = event.request_id;
        break;
      case 'step_scheduled':
        this.#scheduled(event);
        break;
      case 'step_finished':
        this.#stepFinished(us);
        break;
      case 'request_started':
        if (request) request.now = 'held';
        break;
      case 'request_preempted':
        if (request) request.now = event.reason.code === 'swap' ? 'swapped' : 'preempted';
        open?.preempted.push(event);
        break;
      case 'blocks_swapped_out':
        for (const hostId of event.host_ids) this.host.set(hostId, event.request_id);
        open?.swappedOut.push(event);
        break;
      case 'blocks_swapped_in':
        for (const hostId of event.host_ids) this.host.delete(hostId);
        if (request) request.now = 'held';
        open?.swappedIn.push(event);
        break;
      case 'block_allocated':
        this.#count(event.block_id, 1);
        break;
      case 'block_shared':
        this.#count(event.block_id, 1);
        break;
      case 'block_cached':
        this.#hash(event.block_id, 1);
        break;
      case 'block_copied':
        this.#count(event.from_block_id, -1);
        this.#count(event.block_id, 1);
        if (open) this.#moved(open, 'copied', event.num_bytes);
        break;
      case 'block_offloaded':
        this.host.set(event.host_id, null);
        if (open) this.#moved(open, 'offloaded', event.num_bytes);
        break;
      case 'block_fetched':
        this.host.delete(event.host_id);
        if (open) this.#moved(open, 'fetched', event.num_bytes);
        break;
      case 'host_evicted':
        this.host.delete(event.host_id);
        if (open) this.#moved(open, 'forgotten', 0);
        break;
      case 'block_evicted':
        this.#hash(event.block_id, 0);
        if (open) this.#moved(open, 'evicted', 0);
        break;
      case 'prefix_cache_reset':
        for (const block of event.block_ids) this.#hash(block, 0);
        break;
      case 'blocks_released':
        for (const block of event.block_ids) this.#count(block, -1);
        break;
      case 'token_sampled':
        request?.tokenUs.push(us);
        request?.tokenStep.push(open?.step ?? this.headStep);
        break;
      case 'request_finished':
        if (request) this.#ended(request, event.reason.code);
        break;
      default:
        break;
    }
  }

  /** @param {BatchStep} step @param {keyof BatchStep['moves']} what @param {number} numBytes */
  #moved(step, what, numBytes) {
    step.moves[what] += 1;
    step.moves.bytes += numBytes;
  }

  /** @param {import('../../core/events.d.ts').StepScheduled} event */
  #scheduled(event) {
    const { open } = this;
    if (!open) return;
    open.chunks = event.chunks;
    open.budget = event.budget ?? null;
    open.blocked = event.blocked ?? null;
    for (const chunk of event.chunks) {
      const request = this.requests.get(chunk.request_id);
      open.numTokens += chunk.num_tokens;
      if (!request) continue;
      const end = chunk.start + chunk.num_tokens;
      const again = Math.min(end, request.reached) - chunk.start;
      if (again > 0) open.again.set(request.id, again);
      request.reached = Math.max(request.reached, end);
      request.now = chunk.kind;
    }
  }

  /** @param {number} us */
  #stepFinished(us) {
    const { open } = this;
    if (!open) return;
    open.endUs = us;
    open.used = this.used;
    open.cached = this.cached;
    open.host = this.host.size;
    this.steps.push(open);
    this.open = null;
    for (const request of this.live) {
      if (open.step < request.firstStep) continue;
      request.states.push(request.now);
      request.numSettled = request.tokenUs.length;
      if (request.end) this.live.delete(request);
      else if (request.now === 'prefill' || request.now === 'decode') request.now = 'held';
    }
  }

  /** Between two steps a request finishes at once; within a step it still took part. @param {BatchRequest} request @param {string} code */
  #ended(request, code) {
    request.end = code === 'cancelled' || code === 'failed' ? code : 'finished';
    request.endStep = this.open && this.open.step >= request.firstStep ? this.open.step : this.headStep;
    for (const [hostId, owner] of this.host) if (owner === request.id) this.host.delete(hostId);
    if (request.endStep !== this.open?.step) {
      request.numSettled = request.tokenUs.length;
      this.live.delete(request);
    }
  }

  /** @param {number} block @param {1|-1} delta */
  #count(block, delta) {
    const was = this.refCount[block];
    const is = Math.max(0, was + delta);
    this.refCount[block] = is;
    if (was === 0 && is > 0) {
      this.used += 1;
      this.cached -= this.hashed[block];
    } else if (was > 0 && is === 0) {
      this.used -= 1;
      this.cached += this.hashed[block];
    }
  }

  /** @param {number} block @param {0|1} hashed */
  #hash(block, hashed) {
    if (this.refCount[block] === 0) this.cached += hashed - this.hashed[block];
    this.hashed[block] = hashed;
  }
}

/** @param {number} step @param {number} us @param {number|null} measured @returns {BatchStep} */
function blankStep(step, us, measured) {
  return {
    step,
    startUs: us,
    endUs: us,
    budget: null,
    chunks: [],
    numTokens: 0,
    blocked: null,
    used: 0,
    cached: 0,
    host: 0,
    again: new Map(),
    measured,
    preempted: [],
    swappedOut: [],
    swappedIn: [],
    moves: { evicted: 0, offloaded: 0, fetched: 0, copied: 0, forgotten: 0, bytes: 0 },
  };
}
