/**
 * The websocket: one cursor on a log. It reconnects with `after` set to the last known record, so nothing is lost or
 * repeated. Commands get an `ack` or an `error`. A long history is fetched over HTTP, which browsers read several
 * times faster than a websocket; records that arrive on the socket meanwhile wait.
 */
import { emitter } from '../core/emitter.js';
import { strings } from '../strings/main.js';
/** @import { Log } from '../core/log.js' */
/** @import { Command, Status } from '../core/types.d.ts' */

const FIRST_WAIT_MS = 400;
const MAX_WAIT_MS = 8000;
/** Longer than the server's longest silence; after that, the connection is dead. */
const SILENCE_MS = 45000;

export class CommandError extends Error {
  /** @param {string} code @param {string} message @param {Record<string, any>} details */
  constructor(code, message, details) {
    super(message);
    this.name = 'CommandError';
    this.code = code;
    this.details = details;
  }
}

export class Transport {
  /** @param {Log} log @param {(buffer: ArrayBuffer) => void} onPack @param {string} base address of the page */
  constructor(log, onPack, base) {
    this.log = log;
    this.onPack = onPack;
    this.base = base;
    /** Session to request; null is the server's default. @type {string|null} */
    this.session = null;
    /** @type {'connecting'|'open'|'lost'} */
    this.state = 'connecting';
    /** @type {Status|null} */
    this.status = null;
    /** @type {WebSocket|null} */
    this.socket = null;
    this.wait = FIRST_WAIT_MS;
    /** Whether a session has ever answered. */
    this.everOpen = false;
    this.timer = 0;
    this.watchdog = 0;
    this.nextId = 1;
    /** Records that arrived while a history was being fetched; null if none is. @type {import('../core/events.d.ts').EventRecord[]|null} */
    this.waiting = null;
    /** Whether histories can be fetched over HTTP. */
    this.mayFetch = true;
    /** @type {Map<number, {resolve: (value: any) => void, reject: (reason: Error) => void}>} */
    this.pending = new Map();
    this.changes = emitter();
  }

  /** @param {string|null} [session] */
  connect(session = this.session) {
    const other = session !== this.session;
    this.session = session;
    clearTimeout(this.timer);
    this.#close();
    const url = new URL('ws', this.base);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    url.search = '';
    url.hash = '';
    if (this.mayFetch) url.searchParams.set('fetch', '1');
    const wanted = session ?? (this.log.sessionId || null);
    if (session !== null) url.searchParams.set('session', session);
    if (!other && this.log.logId && wanted === this.log.sessionId) {
      url.searchParams.set('session', this.log.sessionId);
      url.searchParams.set('after', String(this.log.lastSeq));
      url.searchParams.set('log', this.log.logId);
    }
    const socket = new WebSocket(url);
    socket.binaryType = 'arraybuffer';
    this.waiting = null;
    this.socket = socket;
    socket.onmessage = (message) => this.#receive(socket, message.data);
    socket.onclose = (event) => this.#closed(socket, event);
    this.#setState(this.state === 'lost' ? 'lost' : 'connecting');
  }

  #close() {
    const { socket } = this;
    this.socket = null;
    this.waiting = null;
    if (!socket) return;
    socket.onmessage = null;
    socket.onclose = null;
    socket.close();
    this.#rejectAll();
  }

  #rejectAll() {
    for (const { reject } of this.pending.values()) reject(new CommandError('lost', strings.commandLost, {}));
    this.pending.clear();
  }

  /** @param {WebSocket} socket @param {CloseEvent} event */
  #closed(socket, event) {
    if (socket !== this.socket) return;
    this.socket = null;
    this.waiting = null;
    clearTimeout(this.watchdog);
    this.#rejectAll();
    this.#setState('lost');
    this.changes.emit('closed', { code: event.code, reason: event.reason });
    this.timer = setTimeout(() => this.connect(), this.wait * (0.75 + Math.random() / 2));
    this.wait = Math.min(this.wait * 1.8, MAX_WAIT_MS);
  }

  /** Reconnects at once. */
  retry() {
    this.wait = FIRST_WAIT_MS;
    this.connect();
  }

  /** @param {'connecting'|'open'|'lost'} state */
  #setState(state) {
    if (state === this.state) return;
    this.state = state;
    this.changes.emit('state', state);
  }

  /** @param {WebSocket} socket @param {string|ArrayBuffer} data */
  #receive(socket, data) {
    if (socket !== this.socket) return;
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => socket.close(), SILENCE_MS);
    if (typeof data !== 'string') {
      this.onPack(data);
      return;
    }
    const message = JSON.parse(data);
    switch (message.type) {
      case 'hello':
        this.#hello(message);
        break;
      case 'records':
        this.#records(message.records);
        break;
      case 'status':
        this.status = message;
        this.changes.emit('status', message);
        break;
      case 'ack':
        this.pending.get(message.id)?.resolve(message.result);
        this.pending.delete(message.id);
        break;
      case 'error':
        this.#error(message);
        break;
      default:
        break;
    }
  }

  /** @param {any} hello */
  #hello(hello) {
    this.wait = FIRST_WAIT_MS;
    if (this.session === 'new') this.session = hello.session_id;
    const same = hello.log_id === this.log.logId && this.log.lastSeq + 1 >= hello.first_seq;
    if (!same) {
      this.log.begin({
        header: hello.header,
        logId: hello.log_id,
        sessionId: hello.session_id,
        kind: hello.kind,
        firstSeq: hello.first_seq ?? 0,
        headSeq: hello.head_seq ?? -1,
        checkpoint: hello.checkpoint ?? null,
      });
    }
    this.log.headSeq = hello.head_seq ?? -1;
    this.everOpen = true;
    this.#setState('open');
    this.changes.emit('hello', hello);
    this.waiting = null;
    if (hello.fetch) void this.#fetchHistory(hello);
  }

  /** Records up to the head named in `hello`, response by response; the next one is fetched while one is folded.
   * @param {{session_id: string, log_id: string, head_seq: number}} hello */
  async #fetchHistory(hello) {
    const { log } = this;
    /** @type {import('../core/events.d.ts').EventRecord[]} */
    const waiting = [];
    this.waiting = waiting;
    /** @param {number} after @returns {Promise<import('../core/events.d.ts').EventRecord[]>} */
    const ask = async (after) => {
      const query = new URLSearchParams({ log: hello.log_id, after: String(after) });
      const response = await fetch(`api/sessions/${encodeURIComponent(hello.session_id)}/records?${query}`);
      if (!response.ok) throw new Error(`${response.status}`);
      return response.json();
    };
    try {
      let answer = ask(log.lastSeq);
      while (log.lastSeq < hello.head_seq) {
        const records = await answer;
        if (this.waiting !== waiting) return;
        if (records.length === 0) throw new Error('The server sent no records.');
        const last = records[records.length - 1][0];
        if (last < hello.head_seq) {
          answer = ask(last);
          answer.catch(() => undefined);
        }
        log.append(records);
      }
    } catch {
      if (this.waiting !== waiting) return;
      this.mayFetch = false;
      this.connect();
      return;
    }
    this.waiting = null;
    this.#records(waiting);
  }

  /** @param {import('../core/events.d.ts').EventRecord[]} records */
  #records(records) {
    if (this.waiting) {
      for (const record of records) this.waiting.push(record);
      return;
    }
    this.log.append(records);
    if (this.log.gap) this.connect();
  }

  /** @param {any} message */
  #error(message) {
    const error = new CommandError(message.code, message.message, message.details ?? {});
    const waiting = message.id === null || message.id === undefined ? undefined : this.pending.get(message.id);
    if (waiting) {
      this.pending.delete(message.id);
      waiting.reject(error);
    } else {
      this.changes.emit('error', error);
    }
  }

  /** Sends a command to the engine.
   * @param {Command} command @returns {Promise<any>} the result of the `ack`; rejects with a `CommandError` */
  send(command) {
    const { socket } = this;
    if (!socket || socket.readyState !== WebSocket.OPEN) {
      return Promise.reject(new CommandError('lost', strings.commandLost, {}));
    }
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      socket.send(JSON.stringify({ id, ...command }));
    });
  }

  /** What the server pushes after each step.
   * @param {number} layer @param {number} columns @param {number|null} request null: the first of the batch */
  subscribe(layer, columns, request) {
    this.send({ command: 'subscribe', layer, columns, request, frames: true }).catch(() => undefined);
  }
}
