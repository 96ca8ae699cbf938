/**
 * Frames: attention rows, norms and vectors. They aren't events; they're fetched by range and may no longer be
 * available. Every getter returns at once, a pack or null, and fetches in the background. `changes` reports arrivals,
 * and `problem` gives the reason why a frame isn't available. A step has one frame per request that it computed.
 * Without a request, it's the one that the server pushes: the chosen request's if the step computed it, else the first
 * of the batch.
 */
import { emitter } from './emitter.js';
import { decodePack } from './packs.js';
/** @import { Pack, Problem } from './types.d.ts' */
/** @import { Log } from './log.js' */

const BUDGET_BYTES = 64 * 1024 * 1024;
/** How long to wait for the push of a step that has just arrived. */
const PUSH_MS = 1500;
const MAX_FLIGHTS = 3;
const MAX_WAITING = 12;
export const MAX_COLUMNS = 512;

export class Frames {
  /** @param {Log} log @param {typeof fetch} [fetcher] */
  constructor(log, fetcher = (input, init) => fetch(input, init)) {
    this.log = log;
    this.fetcher = fetcher;
    /** Layer whose head rows the `step` packs have. */
    this.layer = 0;
    /** The chosen request; null means the first of each step's batch. @type {number|null} */
    this.request = null;
    /** By key, least recently used first. @type {Map<string, Pack>} */
    this.packs = new Map();
    this.bytes = 0;
    /** Key of any pack of a step and request, `12:0`, for whatever layer. @type {Map<string, string>} */
    this.anyLayer = new Map();
    /** @type {Map<string, Problem>} */
    this.problems = new Map();
    /** Newest first. @type {{key: string, path: string}[]} */
    this.waiting = [];
    this.pushTimer = 0;
    /** @type {Set<string>} */
    this.flights = new Set();
    this.changes = emitter();
    log.changes.on((what) => {
      if (what === 'begin') this.#drop();
    });
  }

  #drop() {
    this.packs.clear();
    this.anyLayer.clear();
    this.problems.clear();
    this.waiting = [];
    this.bytes = 0;
  }

  /** @param {() => void} listener */
  onChange(listener) {
    return this.changes.on(listener);
  }

  /** Sets the chosen layer: from now on, `step` packs have its head rows. @param {number} layer */
  setLayer(layer) {
    this.layer = layer;
  }

  /** Sets the chosen request: from now on, its packs are pushed. @param {number|null} request */
  setRequest(request) {
    this.request = request;
  }

  /** Head-mean attention of all layers, head rows of the chosen layer, norms of the new column.
   * @param {number} step @param {number|null} [request] @returns {Pack|null} */
  step(step, request = null) {
    if (step < 1 || step > this.log.headStep || !this.#has('frames')) return null;
    const of = this.#of(step, request);
    const key = `step:${step}:${of}:${this.layer}`;
    const exact = this.#known(key);
    if (exact) return exact;
    const any = this.#known(this.anyLayer.get(`${step}:${of}`) ?? '');
    if (this.#willBePushed(step, of)) return any;
    const wanted = this.#get(key, `frames/${step}?layer=${this.layer}&columns=${MAX_COLUMNS}${asked(of)}`);
    return wanted ?? any;
  }

  /** The request of a frame: the named one, else the pushed one; null if the step isn't known.
   * @param {number} step @param {number|null|undefined} request @returns {number|null} */
  #of(step, request) {
    if (request !== null && request !== undefined) return request;
    const chunks = this.log.step(step)?.chunks ?? [];
    return (chunks.find((chunk) => chunk.request_id === this.request) ?? chunks[0])?.request_id ?? null;
  }

  /** The newest step of a live log is pushed. It is fetched only if the push doesn't arrive, or for another request.
   * @param {number} step @param {number|null} of @returns {boolean} */
  #willBePushed(step, of) {
    if (this.log.kind !== 'live' || step !== this.log.headStep || of !== this.#of(step, null)) return false;
    const left = this.log.arrivedAt + PUSH_MS - performance.now();
    if (left <= 0) return false;
    if (this.pushTimer === 0) {
      this.pushTimer = setTimeout(() => {
        this.pushTimer = 0;
        this.changes.emit('frame');
      }, left);
    }
    return true;
  }

  /** Attention rows of all query heads of one layer, not binned. @param {number} step @param {number} layer @param {number|null} [request] */
  heads(step, layer, request = null) {
    if (step < 1 || step > this.log.headStep || !this.#has('frames')) return null;
    const of = this.#of(step, request);
    return this.#get(`heads:${step}:${layer}:${of}`, `heads/${step}?layer=${layer}${asked(of)}`);
  }

  /** Norms of all entries of a request. @param {number} requestId */
  norms(requestId) {
    const span = this.log.spanOf(requestId);
    if (!span || span.firstStep > this.log.headStep || !this.#has('frames')) return null;
    return this.#get(`norms:${requestId}`, `norms/${requestId}`);
  }

  /** K and V of one entry that `request` wrote with record `writeSeq`.
   * @param {number} request @param {number} position @param {number} layer @param {number} writeSeq */
  entry(request, position, layer, writeSeq) {
    if (!this.#has('entries')) return null;
    return this.#get(
      `entry:${request}:${position}:${layer}:${writeSeq}`,
      `entry?request=${request}&position=${position}&layer=${layer}&write_seq=${writeSeq}`,
    );
  }

  /** Weights of all queries of a step in one head. @param {number} step @param {number} layer @param {number} head @param {number|null} [request] */
  triangle(step, layer, head, request = null) {
    if (!this.#has('triangle')) return null;
    const of = this.#of(step, request);
    return this.#get(
      `triangle:${step}:${layer}:${head}:${of}`,
      `triangle/${step}?layer=${layer}&head=${head}${asked(of)}`,
    );
  }

  /** q·k, scaled and weight of the step's last query against one position. @param {number} step @param {number} layer @param {number} position @param {number|null} [request] */
  scores(step, layer, position, request = null) {
    if (!this.#has('triangle')) return null;
    const of = this.#of(step, request);
    return this.#get(
      `scores:${step}:${layer}:${position}:${of}`,
      `scores/${step}?layer=${layer}&position=${position}${asked(of)}`,
    );
  }

  /**
   * Why a frame isn't available. The arguments are the getter's name and its arguments, e.g. `problem('heads', 12, 3,
   * 0)`.
   * @param {string} kind @param {...(number|null|undefined)} args @returns {Problem|null}
   */
  problem(kind, ...args) {
    const needs = kind === 'entry' ? 'entries' : kind === 'triangle' || kind === 'scores' ? 'triangle' : 'frames';
    if (!this.#has(needs)) return { code: 'not_in_recording', message: '', sinceStep: null };
    return this.problems.get(this.#keyOf(kind, args)) ?? null;
  }

  /** @param {string} kind @param {(number|null|undefined)[]} args @returns {string} */
  #keyOf(kind, args) {
    const step = Number(args[0]);
    switch (kind) {
      case 'step':
        return `step:${step}:${this.#of(step, args[1])}:${this.layer}`;
      case 'heads':
        return `heads:${step}:${args[1]}:${this.#of(step, args[2])}`;
      case 'triangle':
      case 'scores':
        return `${kind}:${step}:${args[1]}:${args[2]}:${this.#of(step, args[3])}`;
      default:
        return [kind, ...args].join(':');
    }
  }

  /** A pack pushed by the server. @param {ArrayBuffer} buffer */
  accept(buffer) {
    const pack = decodePack(buffer);
    const { kind, step, layer, request_id: request, log_id: logId } = pack.meta;
    if (kind !== 'step' || step === undefined || (logId && logId !== this.log.logId)) return;
    this.#keep(`step:${step}:${request}:${layer}`, pack);
    this.changes.emit('frame', pack);
  }

  /** @param {import('./types.d.ts').Capability} capability */
  #has(capability) {
    return this.log.header?.capabilities.includes(capability) ?? false;
  }

  /** @param {string} key @returns {Pack|null} */
  #known(key) {
    const pack = this.packs.get(key);
    if (!pack) return null;
    this.packs.delete(key);
    this.packs.set(key, pack);
    return pack;
  }

  /** @param {string} key @param {string} path @returns {Pack|null} */
  #get(key, path) {
    const pack = this.#known(key);
    if (pack || this.problems.has(key) || this.flights.has(key)) return pack;
    const at = this.waiting.findIndex((item) => item.key === key);
    if (at > 0) this.waiting.unshift(...this.waiting.splice(at, 1));
    else if (at < 0) this.waiting.unshift({ key, path });
    this.waiting.length = Math.min(this.waiting.length, MAX_WAITING);
    this.#fly();
    return null;
  }

  #fly() {
    while (this.flights.size < MAX_FLIGHTS) {
      const next = this.waiting.shift();
      if (!next) return;
      this.flights.add(next.key);
      void this.#fetch(next.key, next.path);
    }
  }

  /** @param {string} key @param {string} path */
  async #fetch(key, path) {
    const { logId, sessionId } = this.log;
    try {
      const response = await this.fetcher(`api/sessions/${encodeURIComponent(sessionId)}/${path}`);
      if (logId !== this.log.logId) return;
      if (response.ok) this.#keep(key, decodePack(await response.arrayBuffer()));
      else this.problems.set(key, await problemOf(response));
    } catch {
      this.#retryLater(key);
    } finally {
      this.flights.delete(key);
      this.#fly();
      this.changes.emit('frame');
    }
  }

  /** The server is unreachable: report it now and try again later. @param {string} key */
  #retryLater(key) {
    this.problems.set(key, { code: 'unreachable', message: '', sinceStep: null });
    setTimeout(() => {
      if (this.problems.get(key)?.code === 'unreachable') this.problems.delete(key);
    }, 5000);
  }

  /** @param {string} key @param {Pack} pack */
  #keep(key, pack) {
    const former = this.packs.get(key);
    if (former) this.bytes -= former.bytes;
    this.packs.delete(key);
    this.packs.set(key, pack);
    const { kind, step, request_id: request } = pack.meta;
    if (kind === 'step') this.anyLayer.set(`${step}:${request}`, key);
    this.bytes += pack.bytes;
    for (const [oldest, old] of this.packs) {
      if (this.bytes <= BUDGET_BYTES) break;
      this.packs.delete(oldest);
      this.bytes -= old.bytes;
    }
  }
}

/** The part of a URL that names the request. @param {number|null} request @returns {string} */
function asked(request) {
  return request === null ? '' : `&request=${request}`;
}

/** @param {Response} response @returns {Promise<Problem>} */
async function problemOf(response) {
  try {
    const body = await response.json();
    return {
      code: String(body.code ?? `http_${response.status}`),
      message: String(body.message ?? ''),
      sinceStep:
        typeof body.since_step === 'number'
          ? body.since_step
          : typeof body.details?.since_step === 'number'
            ? body.details.since_step
            : null,
    };
  } catch {
    return { code: `http_${response.status}`, message: '', sinceStep: null };
  }
}
