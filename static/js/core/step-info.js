/** The events of one step, grouped by what they are. */

/** @import { EventRecord } from './events.d.ts' */
/** @import { StepInfo } from './types.d.ts' */

/** @param {import('./events.d.ts').Chunk[]} chunks @returns {import('./types.d.ts').StepKind} */
export function kindOf(chunks) {
  const prefill = chunks.some((chunk) => chunk.kind === 'prefill');
  const decode = chunks.some((chunk) => chunk.kind === 'decode');
  return prefill && decode ? 'mixed' : prefill ? 'prefill' : decode ? 'decode' : 'empty';
}

/** @param {import('./log.js').Log} log @param {number} k @param {number} firstSeq @param {number} lastSeq @returns {StepInfo} */
export function groupStep(log, k, firstSeq, lastSeq) {
  /** @type {StepInfo} */
  const info = {
    step: k,
    firstSeq,
    lastSeq,
    kind: 'empty',
    chunks: [],
    lookups: [],
    shared: [],
    evicted: [],
    allocated: [],
    cached: [],
    started: [],
    preempted: [],
    forked: [],
    copied: [],
    swappedOut: [],
    swappedIn: [],
    offloaded: [],
    fetched: [],
    hostEvicted: [],
    blocked: null,
    budget: null,
    released: [],
    releasedFirst: [],
    releasedLast: [],
    written: [],
    writtenSeq: [],
    forgotten: [],
    lanes: [],
    sampled: [],
    finished: [],
    end: null,
    events: [],
  };
  let scheduled = false;
  for (let seq = firstSeq; seq <= lastSeq; seq++) {
    const event = /** @type {EventRecord} */ (log.at(seq))[2];
    info.events.push(event);
    switch (event.type) {
      case 'step_scheduled':
        info.chunks = event.chunks;
        info.blocked = event.blocked ?? null;
        info.budget = event.budget ?? null;
        scheduled = true;
        break;
      case 'prefix_looked_up':
        info.lookups.push(event);
        break;
      case 'block_shared':
        info.shared.push(event);
        break;
      case 'block_evicted':
        info.evicted.push(event);
        break;
      case 'block_allocated':
        info.allocated.push(event);
        break;
      case 'block_cached':
        info.cached.push(event);
        break;
      case 'blocks_released':
        info.released.push(event);
        (scheduled ? info.releasedLast : info.releasedFirst).push(event);
        break;
      case 'request_started':
        info.started.push(event);
        break;
      case 'request_preempted':
        info.preempted.push(event);
        break;
      case 'request_forked':
        info.forked.push(event);
        break;
      case 'block_copied':
        info.copied.push(event);
        break;
      case 'blocks_swapped_out':
        info.swappedOut.push(event);
        break;
      case 'blocks_swapped_in':
        info.swappedIn.push(event);
        break;
      case 'block_offloaded':
        info.offloaded.push(event);
        break;
      case 'block_fetched':
        info.fetched.push(event);
        break;
      case 'host_evicted':
        info.hostEvicted.push(event);
        break;
      case 'kv_written':
        info.written.push(event);
        info.writtenSeq.push(seq);
        break;
      case 'kv_forgotten':
        info.forgotten.push(event);
        break;
      case 'lane_measured':
        info.lanes.push(event);
        break;
      case 'token_sampled':
        info.sampled.push(event);
        break;
      case 'request_finished':
        info.finished.push(event);
        break;
      case 'step_finished':
        info.end = event;
        break;
      default:
        break;
    }
  }
  info.kind = kindOf(info.chunks);
  return info;
}
