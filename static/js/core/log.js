/** The log: immutable records by seq, and the range of each step. Records are never changed or removed. */
import { emitter } from './emitter.js';
import { groupStep, kindOf } from './step-info.js';
/** @import { EventRecord, Event } from './events.d.ts' */
/** @import { Header, StepInfo } from './types.d.ts' */

/** @typedef {{step: number, kind: 'eviction'|'hit'|'finish'|'reset'|'window'|'copy'|'preemption'|'fork'|'forgotten'|'differs'}} Mark */

/**
 * `firstTokenStep` is 0 until the first token is sampled. `runs` are the ranges of steps that computed the request,
 * first and last of each.
 * @typedef {{firstStep: number, lastStep: number, firstTokenStep: number, runs: [number, number][]}} Span
 */

const CACHED_STEPS = 64;

export class Log {
  constructor() {
    /** @type {Header|null} */
    this.header = null;
    /** @type {string|null} */
    this.logId = null;
    this.sessionId = '';
    /** @type {'live'|'recording'} */
    this.kind = 'recording';
    /** Seq of `records[0]`. */
    this.firstSeq = 0;
    /** Folded world just before `firstSeq`, as JSON. @type {any} */
    this.checkpoint = null;
    /** Last seq on the server at hello, the end of the history to load. */
    this.headSeq = -1;
    /** @type {EventRecord[]} */
    this.records = [];
    /** Last step finished before `firstSeq`. */
    this.baseStep = 0;
    /** Seq of `step_started` of step baseStep + 1 + i. @type {number[]} */
    this.starts = [];
    /** Seq of `step_finished` of step baseStep + 1 + i. @type {number[]} */
    this.ends = [];
    /** A missing record; the transport then asks again. @type {{expected: number, got: number}|null} */
    this.gap = null;
    /** Kind of step baseStep + 1 + i, of those started. @type {import('./types.d.ts').StepKind[]} */
    this.kinds = [];
    /** Rare events in order of step. @type {Mark[]} */
    this.marks = [];
    /** Steps that computed each request. @type {Map<number, Span>} */
    this.spans = new Map();
    /** Measured misses by request. @type {Map<number, {seq: number, event: import('./events.d.ts').MissMeasured}>} */
    this.misses = new Map();
    /** Request and lane of lanes that would have generated another token. @type {Set<string>} */
    this.differing = new Set();
    /** Position of the last token that each request sampled. @type {Map<number, number>} */
    this.lastSampled = new Map();
    /** Requests that have finished. @type {Set<number>} */
    this.finished = new Set();
    /** Whether the host tier has ever held anything. */
    this.usesHost = false;
    /** When the last step arrived, by this page's clock. */
    this.arrivedAt = 0;
    this.changes = emitter();
    /** @type {Map<number, StepInfo>} */
    this.infos = new Map();
  }

  /** In the session of one lane: the session of the whole comparison. @returns {string} */
  get comparisonId() {
    return this.sessionId.replace(/\.\d+$/, '');
  }

  /** Starts a log; the previous one is discarded.
   * @param {{header: Header, logId: string, sessionId: string, kind: 'live'|'recording', firstSeq: number, headSeq?: number, checkpoint: any}} hello */
  begin({ header, logId, sessionId, kind, firstSeq, headSeq = -1, checkpoint }) {
    this.header = header;
    this.logId = logId;
    this.sessionId = sessionId;
    this.kind = kind;
    this.firstSeq = firstSeq;
    this.headSeq = headSeq;
    this.checkpoint = checkpoint;
    this.records = [];
    this.baseStep = checkpoint ? checkpoint.step : 0;
    this.starts = [];
    this.ends = [];
    this.kinds = [];
    this.marks = [];
    this.spans.clear();
    this.misses.clear();
    this.differing.clear();
    this.lastSampled.clear();
    this.finished.clear();
    this.usesHost = (checkpoint?.host?.length ?? 0) > 0;
    this.gap = null;
    this.infos.clear();
    this.changes.emit('begin');
  }

  /** Seq of the last record, or firstSeq - 1. */
  get lastSeq() {
    return this.firstSeq + this.records.length - 1;
  }

  /** Whether records that existed when the log was opened are still arriving. */
  get isLoading() {
    return this.lastSeq < this.headSeq;
  }

  /** Last finished step. */
  get headStep() {
    return this.baseStep + this.ends.length;
  }

  /** Whether the engine is in the middle of a step. */
  get stepOpen() {
    return this.starts.length > this.ends.length;
  }

  /** Adds records, skips known ones, and stops at a gap. @param {EventRecord[]} records @returns {number} how many were added */
  append(records) {
    let added = 0;
    for (const record of records) {
      const expected = this.firstSeq + this.records.length;
      if (record[0] < expected) continue;
      if (record[0] > expected) {
        this.gap = { expected, got: record[0] };
        break;
      }
      this.records.push(record);
      added++;
      this.#index(record[0], record[2]);
    }
    if (added > 0) {
      this.gap = null;
      this.changes.emit('append');
    }
    return added;
  }

  /** @param {number} seq @param {Event} event */
  #index(seq, event) {
    switch (event.type) {
      case 'step_started':
        this.starts.push(seq);
        this.kinds.push('empty');
        break;
      case 'step_finished':
        this.ends.push(seq);
        this.arrivedAt = performance.now();
        break;
      case 'step_scheduled':
        this.kinds[this.kinds.length - 1] = kindOf(event.chunks);
        for (const chunk of event.chunks) this.#work(chunk.request_id);
        break;
      case 'token_sampled': {
        const span = this.spans.get(event.request_id);
        this.lastSampled.set(event.request_id, event.position);
        if (span && span.firstTokenStep === 0) span.firstTokenStep = this.baseStep + this.starts.length;
        break;
      }
      case 'miss_measured':
        this.misses.set(event.request_id, { seq, event });
        break;
      case 'block_evicted':
        this.#mark('eviction');
        break;
      case 'block_copied':
        this.#mark('copy');
        break;
      case 'request_preempted':
        this.#mark('preemption');
        break;
      case 'request_forked':
        this.#mark('fork');
        break;
      case 'blocks_swapped_out':
      case 'block_offloaded':
        this.usesHost = true;
        break;
      case 'prefix_looked_up':
        if (event.num_hit_tokens > 0) this.#mark('hit');
        break;
      case 'request_finished':
        this.finished.add(event.request_id);
        this.#mark('finish');
        break;
      case 'prefix_cache_reset':
        if ((event.reason ?? 'reset') === 'reset') this.#mark('reset');
        break;
      case 'blocks_released':
        if (event.reason.code === 'window' || event.reason.code === 'forgotten') this.#mark(event.reason.code);
        break;
      case 'lane_measured':
        if (!event.agrees) this.#differs(event);
        break;
      default:
        break;
    }
  }

  /** The first difference of each lane is a mark of its own. @param {import('./events.d.ts').LaneMeasured} event */
  #differs(event) {
    const key = `${event.request_id}.${event.lane}`;
    if (this.differing.has(key)) return;
    this.differing.add(key);
    this.#mark('differs');
  }

  /** @param {number} requestId */
  #work(requestId) {
    const step = this.baseStep + this.starts.length;
    const span = this.spans.get(requestId);
    if (!span) {
      this.spans.set(requestId, { firstStep: step, lastStep: step, firstTokenStep: 0, runs: [[step, step]] });
      return;
    }
    const last = span.runs[span.runs.length - 1];
    if (step > last[1] + 1) span.runs.push([step, step]);
    else last[1] = step;
    span.lastStep = step;
  }

  /** The last step up to `step` that computed a request, 0 for none. @param {number} requestId @param {number} step @returns {number} */
  lastWork(requestId, step) {
    const runs = this.spans.get(requestId)?.runs ?? [];
    for (let i = runs.length - 1; i >= 0; i--) {
      if (runs[i][0] <= step) return Math.min(runs[i][1], step);
    }
    return 0;
  }

  /** @param {number} requestId @returns {Span|null} */
  spanOf(requestId) {
    return this.spans.get(requestId) ?? null;
  }

  /** Why a token was chosen. @param {number} requestId @param {number} position @returns {import('./events.d.ts').TokenSampled|null} */
  sampleOf(requestId, position) {
    const span = this.spans.get(requestId);
    if (!span || span.firstTokenStep === 0) return null;
    for (let step = span.firstTokenStep; step <= span.lastStep; step++) {
      const range = this.stepRange(step);
      if (!range) return null;
      for (let seq = range[1]; seq >= range[0]; seq--) {
        const event = this.at(seq)?.[2];
        if (event?.type === 'token_sampled' && event.request_id === requestId && event.position === position)
          return event;
      }
    }
    return null;
  }

  /** @param {number} step @returns {import('./types.d.ts').StepKind} */
  kindAt(step) {
    return this.kinds[step - this.baseStep - 1] ?? 'empty';
  }

  /** Microseconds that a finished step took. @param {number} step @returns {number} */
  stepUs(step) {
    return this.stepEnd(step)?.step_us ?? 0;
  }

  /** @param {Mark['kind']} kind */
  #mark(kind) {
    const step = this.baseStep + this.starts.length;
    for (let i = this.marks.length - 1; i >= 0 && this.marks[i].step === step; i--) {
      if (this.marks[i].kind === kind) return;
    }
    this.marks.push({ step, kind });
  }

  /** @param {number} seq @returns {EventRecord|undefined} */
  at(seq) {
    return this.records[seq - this.firstSeq];
  }

  /** First seq after position `step`: where step + 1 starts, or the end. @param {number} step */
  endOf(step) {
    const index = step - this.baseStep;
    return index < this.starts.length ? this.starts[index] : this.lastSeq + 1;
  }

  /** Seqs of step `k`, first and last inclusive, or null while it isn't complete. @param {number} k @returns {[number, number]|null} */
  stepRange(k) {
    const index = k - this.baseStep - 1;
    if (index < 0 || index >= this.ends.length) return null;
    return [this.starts[index], this.ends[index]];
  }

  /** The step of a record: the one that contains it, or the last one finished before it. @param {number} seq @returns {number} */
  stepOf(seq) {
    let low = 0;
    let high = this.starts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.starts[middle] <= seq) low = middle + 1;
      else high = middle;
    }
    return this.baseStep + low;
  }

  /** `step_finished` of step `k`. @param {number} k @returns {import('./events.d.ts').StepFinished|null} */
  stepEnd(k) {
    const range = this.stepRange(k);
    const event = range && this.at(range[1])?.[2];
    return event && event.type === 'step_finished' ? event : null;
  }

  /** The events of step `k`, grouped, or null while it isn't complete. @param {number} k @returns {StepInfo|null} */
  step(k) {
    const cached = this.infos.get(k);
    if (cached) return cached;
    const range = this.stepRange(k);
    if (!range) return null;
    const info = groupStep(this, k, range[0], range[1]);
    if (this.infos.size >= CACHED_STEPS) {
      const oldest = this.infos.keys().next().value;
      if (oldest !== undefined) this.infos.delete(oldest);
    }
    this.infos.set(k, info);
    return info;
  }
}
