/** The URL of this state: session, step, position within it, and the contents of `ui`. Written once things settle. */

/** @import { Ui } from '../ui/store.js' */
/** @import { Timeline } from '../core/timeline.js' */
/** @import { Log } from '../core/log.js' */

/** Browsers reject URLs that are written too often. */
const WAIT_MS = 400;
/** Id of the live session that every page without its own session joins. */
const SHARED_SESSION = 'live';

export class Address {
  /** @param {Ui} ui @param {Timeline} timeline @param {Log} log */
  constructor(ui, timeline, log) {
    this.ui = ui;
    this.timeline = timeline;
    this.log = log;
    /** Session that the link names, or null for the server's default. @type {string|null} */
    this.session = null;
    /** The position in the link, until that part of the log has arrived. @type {{step: number, progress: number}|null} */
    this.wanted = null;
    /** Head of the log when it was opened; without a link, the cursor starts there. */
    this.openedAt = -1;
    this.timer = 0;
    /** @type {string|null} */
    this.logId = null;
    /** The cursor isn't at its starting position yet. */
    this.opening = false;
  }

  load() {
    const query = new URLSearchParams(location.search);
    this.session = query.get('session');
    const step = query.get('step');
    if (step !== null && /^\d{1,9}$/.test(step)) {
      const at = Number(query.get('at') ?? 0);
      this.wanted = { step: Number(step), progress: at > 0 && at < 1 ? at : 0 };
    }
    this.ui.load(query, matchMedia('(max-width: 760px)').matches);
  }

  /** Another session was chosen, so the link's position doesn't apply. @param {string|null} session null: the default one */
  forget(session) {
    this.wanted = null;
    this.session = session;
  }

  /** @param {{kind: string, head_seq: number}} hello */
  begun(hello) {
    if (this.logId === this.log.logId) return;
    this.logId = this.log.logId;
    this.openedAt = hello.head_seq;
    this.opening = true;
  }

  /** Moves the cursor to the link's position, or to the start for this kind of log, once those records have arrived. */
  settle() {
    const { log, timeline, wanted } = this;
    if (!this.opening) return;
    if (wanted) {
      const here = timeline.head > wanted.step || (timeline.head === wanted.step && wanted.progress === 0);
      if (!here && log.lastSeq < this.openedAt) return;
      this.opening = false;
      this.wanted = null;
      timeline.seek(wanted.step, wanted.progress);
    } else if (log.kind === 'live') {
      if (log.lastSeq < this.openedAt) return;
      this.opening = false;
      const ended = log.header?.lane ? log.marks.find((mark) => mark.kind === 'finish') : undefined;
      if (ended)
        timeline.seek(Math.max(timeline.first, ended.step - 1), 0); // while a lane still holds its entries, the reason to open it
      else timeline.pin();
    } else if (timeline.head > timeline.first) {
      this.opening = false;
      timeline.play();
    } else if (log.lastSeq >= this.openedAt) {
      this.opening = false;
    }
  }

  save() {
    if (this.timer !== 0) return;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.#write();
    }, WAIT_MS);
  }

  #write() {
    const { ui, timeline, log } = this;
    if (this.opening || this.logId === null) return;
    const query = new URLSearchParams(location.search);
    ui.save(query);
    const still = !timeline.moving && !timeline.pinned;
    if (still) {
      query.set('step', String(timeline.position));
      if (timeline.progress > 0) query.set('at', timeline.progress.toFixed(4));
      else query.delete('at');
    } else {
      query.delete('step');
      query.delete('at');
    }
    if (still || (this.session !== null && log.sessionId !== SHARED_SESSION)) {
      if (log.sessionId) query.set('session', log.sessionId);
    } else {
      query.delete('session');
    }
    const text = query.toString();
    const address = `${location.pathname}${text ? `?${text.replaceAll('%3A', ':')}` : ''}`;
    if (address === `${location.pathname}${location.search}`) return;
    try {
      history.replaceState(null, '', address);
    } catch {
      this.save();
    }
  }
}
