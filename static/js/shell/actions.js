/**
 * User actions, from any input. At the head, play and step command the engine. Before it, they only move this window's
 * cursor and don't affect the engine.
 */
import { SPEEDS } from '../core/timeline.js';
import { LENSES, THEMES, VIEWS } from '../ui/store.js';
/** @import { Ctx } from '../core/types.d.ts' */
/** @import { Transport } from './transport.js' */

/** New tokens of a branch at the end of an answer. */
const BRANCH_TOKENS = 16;

export class Actions {
  /** @param {Ctx} ctx @param {Transport} transport */
  constructor(ctx, transport) {
    this.ctx = ctx;
    this.transport = transport;
    /** The engine runs without a speed limit. */
    this.fullSpeed = false;
    /** The engine was playing when this window paused; it continues when playback reaches the head. */
    this.resumeAtHead = false;
    /** @type {(error: Error) => void} */
    this.onError = () => undefined;
    ctx.timeline.changes.on((what) => {
      if (what === 'end') this.#reachedHead();
      else if (what === 'seek' || what === 'begin') this.resumeAtHead = false;
    });
  }

  /** Whether an engine accepts commands from this window. */
  get engineListens() {
    return this.transport.state === 'open' && (this.ctx.log.header?.capabilities.includes('commands') ?? false);
  }

  get enginePlays() {
    return this.engineListens && (this.transport.status?.play.playing ?? false);
  }

  /** Whether any request is waiting or running at the head. */
  get hasWork() {
    const { keyframes, head } = this.ctx.timeline;
    return keyframes.at(head).unfinished.length > 0;
  }

  /** Whether the play button shows a pause. */
  get isPlaying() {
    return this.ctx.timeline.playing || (this.ctx.timeline.pinned && this.enginePlays);
  }

  /** @param {import('../core/types.d.ts').Command} command */
  async command(command) {
    try {
      return await this.transport.send(command);
    } catch (error) {
      this.onError(/** @type {Error} */ (error));
      return null;
    }
  }

  /**
   * Branches off a request: its tokens before `position`, then this one; null samples again. The branch is shown, at
   * the head.
   * @param {import('../core/types.d.ts').Request} request @param {number} position @param {number|null} tokenId
   */
  async fork(request, position, tokenId) {
    const used = position - request.promptLength + 1;
    const more = used >= request.maxNewTokens ? { max_new_tokens: used + BRANCH_TOKENS } : {};
    const stood = !this.hasWork;
    const result = await this.command({
      command: 'fork',
      request_id: request.id,
      position,
      token_id: tokenId,
      ...more,
    });
    if (result === null) return;
    this.ctx.ui.clear();
    this.ctx.ui.set({ requestId: result.request_id });
    this.ctx.timeline.pin();
    if (stood && !this.enginePlays) this.playEngine();
  }

  /** Playback has reached the head; from here on, a live log is followed. */
  #reachedHead() {
    const { timeline, log } = this.ctx;
    if (log.kind !== 'live') return;
    timeline.pin(false);
    if (this.resumeAtHead && this.engineListens && this.hasWork) this.playEngine();
    this.resumeAtHead = false;
  }

  playPause() {
    const { timeline } = this.ctx;
    if (timeline.pinned && this.enginePlays) {
      this.resumeAtHead = true;
      void this.command({ command: 'pause' });
      timeline.pause();
    } else if (timeline.moving) {
      timeline.pause();
    } else if (!timeline.atHead || timeline.progress > 0) {
      timeline.play();
    } else if (this.engineListens) {
      this.playEngine();
    } else if (timeline.head > timeline.first) {
      timeline.seek(timeline.first);
      timeline.play();
    }
  }

  /** Runs the engine at this window's speed; the cursor follows. */
  playEngine() {
    if (!this.hasWork) {
      this.ctx.ui.set({ drawerOpen: true });
      return;
    }
    this.ctx.timeline.pin(false);
    this.#sendRate();
    void this.command({ command: 'play' });
  }

  /** A scenario has started: the engine runs at this window's speed until its work ends. */
  playScenario() {
    this.#sendRate();
    void this.command({ command: 'play' });
  }

  /**
   * A view has started a run: the engine runs at this window's speed, which becomes `speed` if one is given (null: no
   * limit). The caller reports failures.
   * @param {number|null} [speed]
   */
  async run(speed) {
    if (speed !== undefined) this.#take(speed);
    await this.ctx.send(this.#rate());
    await this.ctx.send({ command: 'play' });
  }

  /** @param {boolean} [instant] no motion: the key is held down */
  stepForward(instant = false) {
    const { timeline, ui } = this.ctx;
    if (timeline.stepForward(instant) || !this.engineListens) return;
    if (!this.hasWork) {
      ui.set({ drawerOpen: true });
      return;
    }
    timeline.pin(false);
    if (!instant || !this.stepAsked) {
      this.stepAsked = true;
      void this.command({ command: 'step', count: 1 }).finally(() => {
        this.stepAsked = false;
      });
    }
  }

  stepBack() {
    this.ctx.timeline.stepBack();
  }

  /** @param {1|-1} direction */
  stepLayer(direction) {
    const layer = this.ctx.timeline.stepLayer(direction);
    if (layer !== null) this.ctx.ui.set({ layer });
  }

  first() {
    this.ctx.timeline.pause();
    this.ctx.timeline.seek(this.ctx.timeline.first);
  }

  /** Moves to the head and follows it. */
  live() {
    const { timeline, log } = this.ctx;
    if (log.kind === 'live') timeline.pin();
    else timeline.seek(timeline.head);
  }

  /** @param {1|-1} direction */
  mark(direction) {
    this.ctx.timeline.pause();
    this.ctx.timeline.seekMark(direction);
  }

  /** @param {number|null} speed null: the engine as fast as it can */
  setSpeed(speed) {
    this.#take(speed);
    if (this.engineListens) this.#sendRate();
  }

  /** @param {number|null} speed */
  #take(speed) {
    this.fullSpeed = speed === null;
    this.ctx.timeline.setSpeed(speed ?? SPEEDS[SPEEDS.length - 1]);
  }

  #sendRate() {
    void this.command(this.#rate());
  }

  /** @returns {import('../core/types.d.ts').Command} */
  #rate() {
    return { command: 'set_rate', steps_per_second: this.fullSpeed ? null : this.ctx.timeline.speed };
  }

  /** @param {number} delta */
  layer(delta) {
    const { ui, log } = this.ctx;
    const last = (log.header?.model.num_layers ?? 1) - 1;
    ui.set({ layer: Math.min(Math.max(ui.layer + delta, 0), last) });
  }

  /** Through the heads, and from the first back to the mean. @param {number} delta */
  head(delta) {
    const { ui, log } = this.ctx;
    const last = (log.header?.model.num_query_heads ?? 1) - 1;
    const next = (ui.head ?? -1) + delta;
    ui.set({ head: next < 0 ? null : Math.min(next, last) });
  }

  /** @param {number} index */
  lens(index) {
    const lens = LENSES[index];
    if (lens) this.ctx.ui.set({ lens });
  }

  nextView() {
    const { ui } = this.ctx;
    ui.set({ view: VIEWS[(VIEWS.indexOf(ui.view) + 1) % VIEWS.length] });
  }

  nextTheme() {
    const { ui } = this.ctx;
    ui.set({ theme: THEMES[(THEMES.indexOf(ui.theme) + 1) % THEMES.length] });
  }

  fullscreen() {
    if (document.fullscreenElement) void document.exitFullscreen();
    else void document.documentElement.requestFullscreen?.().catch(() => undefined);
  }
}
