/**
 * From the recording to the live model. A chip offers the live model once it is ready. The page switches by itself
 * only at the end of a step, after enough of the recording, and never during user input.
 */

/** @import { Ctx, Scene, Status } from '../core/types.d.ts' */
/** @import { Transport } from './transport.js' */

/** User input this recent counts as ongoing. */
const HAND_MS = 10000;
/** Steps of the recording to show first: its prefill and some decode steps. */
const MIN_STEPS = 4;

export class Takeover {
  /** @param {Ctx} ctx @param {Transport} transport @param {(session: string|null) => void} openSession */
  constructor(ctx, transport, openSession) {
    this.ctx = ctx;
    this.transport = transport;
    this.openSession = openSession;
    /** @type {string|null} */
    this.liveSession = null;
    /** Only a page that was opened without a session switches by itself. */
    this.automatic = false;
    /** Whether the link names a moment. Read this before the URL is written. */
    this.linked = new URLSearchParams(location.search).has('step');
    this.touchedAt = -Infinity;
    this.started = false;
    /** The cursor at the last check; a step has ended when it differs. */
    this.position = -1;
    /** The next check. */
    this.timer = 0;
    for (const type of ['pointerdown', 'pointermove', 'wheel', 'keydown', 'touchstart']) {
      addEventListener(
        type,
        () => {
          this.touchedAt = performance.now();
        },
        { passive: true, capture: true },
      );
    }
  }

  /** @param {string} kind */
  begun(kind) {
    if (!this.started) {
      this.started = true;
      this.automatic = kind === 'recording' && this.transport.session === null && !this.linked;
    } else if (kind === 'live' || this.transport.session !== null) {
      this.automatic = false;
    }
  }

  /** @param {Status} status */
  offered(status) {
    this.liveSession = status.model.state === 'ready' ? status.model.live_session_id : null;
    if (this.liveSession !== null) this.#lookAgain();
  }

  /** Without frames nothing triggers a check, so schedule one. */
  #lookAgain() {
    clearTimeout(this.timer);
    if (!this.automatic || !this.canOffer) return;
    this.timer = setTimeout(() => {
      this.tick(this.ctx.timeline.scene());
      this.#lookAgain();
    }, 500);
  }

  /** Whether there is a live model to switch to. */
  get canOffer() {
    return this.liveSession !== null && this.ctx.log.kind === 'recording';
  }

  /** @param {Scene} scene */
  tick(scene) {
    const ended = scene.step === null || scene.position !== this.position;
    this.position = scene.position;
    if (!this.automatic || !this.canOffer || !ended) return;
    const { timeline, ui } = this.ctx;
    const seen = scene.position - timeline.first;
    if (seen < Math.min(MIN_STEPS, timeline.head - timeline.first)) return;
    if (ui.selection.pinned !== null || ui.drawerOpen) return;
    if (performance.now() - this.touchedAt < HAND_MS) return;
    this.go();
  }

  go() {
    if (this.liveSession === null) return;
    this.automatic = false;
    this.openSession(this.liveSession);
  }
}
