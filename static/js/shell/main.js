/** Wires the page together: stores, transport, the fixed parts of the screen, the stage, and the one loop that draws them. */
import { Frames, MAX_COLUMNS } from '../core/frames.js';
import { Log } from '../core/log.js';
import * as selectors from '../core/selectors.js';
import { Timeline } from '../core/timeline.js';
import { strings } from '../strings/main.js';
import { byId, setText } from '../ui/dom.js';
import { fill } from '../ui/format.js';
import { Palette } from '../ui/palette.js';
import { Popover } from '../ui/popover.js';
import { Ui } from '../ui/store.js';
import { Actions } from './actions.js';
import { Address } from './address.js';
import { CaptionBar } from './caption-bar.js';
import { Drawer } from './drawer.js';
import { FrameLoop } from './frame.js';
import { Inspector } from './inspector.js';
import { Keys } from './keys.js';
import { Scrubber } from './scrubber.js';
import { Stage } from './stage.js';
import { Takeover } from './takeover.js';
import { Tape } from './tape.js';
import { Banner, TopBar } from './topbar.js';
import { Transport } from './transport.js';
/** @import { Ctx } from '../core/types.d.ts' */

/** Milliseconds of a frame for folding ahead. */
const FOLD_MS = 4;
const FOLD_IDLE_MS = 24;
/** Up to this width, as in the stylesheet, the inspector covers the picture and opens on demand. */
const NARROW = '(max-width: 760px)';

class App {
  constructor() {
    const log = new Log();
    const timeline = new Timeline(log);
    const ui = new Ui();
    const frames = new Frames(log);
    this.address = new Address(ui, timeline, log);
    /** Live log whose server is unreachable. @type {string|null} */
    this.lostLog = null;
    this.address.load();
    applyLooks(ui);
    const palette = new Palette();
    const transport = new Transport(log, (buffer) => frames.accept(buffer), document.baseURI);
    /** @type {Ctx} */
    this.ctx = {
      timeline,
      ui,
      frames,
      selectors,
      strings,
      palette,
      log,
      send: (command) => transport.send(command),
      run: (speed) => this.actions.run(speed),
    };
    this.transport = transport;
    this.actions = new Actions(this.ctx, transport);
    this.popover = new Popover(byId('popover'), strings.keys.close);
    this.banner = new Banner(byId('banner'));
    this.takeover = new Takeover(this.ctx, transport, (session) => this.openSession(session));
    this.topbar = new TopBar(byId('topbar'), this.ctx, this.actions, this.popover, () => this.takeover.go());
    this.tape = new Tape(byId('tape'), this.ctx, this.popover, this.actions);
    this.stage = new Stage(byId('stage'), this.ctx, () => this.wake());
    this.inspector = new Inspector(byId('inspector'), this.ctx);
    this.caption = new CaptionBar(byId('caption'), byId('live'), this.ctx, this.popover);
    this.scrubber = new Scrubber(byId('timeline'), this.ctx, this.actions);
    this.drawer = new Drawer(byId('drawer'), this.ctx, this.actions, (session) =>
      session === null ? this.takeover.go() : this.openSession(session),
    );
    this.keys = new Keys(byId('keys'), this.ctx, this.actions, () => this.escape());
    this.loop = new FrameLoop((dt) => this.frame(dt));
    /** What the fixed parts must update. @type {Set<string>} */
    this.stale = new Set(['all']);
    this.frameArrived = false;
    this.wasFolded = false;
    /** Whether it isn't known yet what to show. @type {boolean|null} */
    this.waits = null;
    this.#wire();
  }

  wake() {
    this.loop.request();
  }

  /** @param {string} what */
  #mark(what) {
    this.stale.add(what);
    this.loop.request();
  }

  #wire() {
    const { timeline, ui, frames, log } = this.ctx;
    timeline.changes.on((what) => {
      if (what !== 'progress') {
        this.#mark(what);
        if (what === 'position' || what === 'begin' || what === 'head') this.stage.dirty.add('world');
      }
      this.loop.request();
    });
    ui.changes.on((what) => {
      if (what === 'theme') this.#looksChanged();
      this.stage.dirty.add('ui');
      this.#mark('ui');
      if (ui.lens !== this.stage.name) void this.stage.show(ui.lens);
      if (ui.layer !== frames.layer || ui.requestId !== frames.request) this.#wishChanged();
      byId('blank').hidden = !ui.blank;
    });
    frames.onChange(() => {
      this.frameArrived = true;
      this.stage.dirty.add('frame');
      this.#mark('frame');
    });
    log.changes.on((what) => {
      if (what === 'begin') this.#begun();
    });
    this.transport.changes.on((what, value) => this.#transportChanged(what, value));
    this.actions.onError = (error) =>
      this.banner.show(error.message, [{ label: strings.banner.dismiss, run: () => this.banner.hide() }]);
    this.keys.onToggle = (open) => this.topbar.help.setAttribute('aria-expanded', String(open));
    this.topbar.help.addEventListener('click', () => this.keys.toggle());
    for (const query of ['(prefers-color-scheme: light)', '(prefers-reduced-motion: reduce)']) {
      matchMedia(query).addEventListener('change', () => this.#looksChanged());
    }
    matchMedia(NARROW).addEventListener('change', ({ matches }) => {
      if (matches) ui.set({ inspectorOpen: false });
    });
    byId('blank').addEventListener('click', () => ui.set({ blank: false }));
    addEventListener('resize', () => this.#mark('size'));
    document.addEventListener('visibilitychange', () => this.wake());
  }

  #looksChanged() {
    const { palette, timeline } = this.ctx;
    applyLooks(this.ctx.ui);
    timeline.reducedMotion = this.ctx.ui.reducedMotion;
    palette.refresh();
    this.stage.dirty.add('theme');
    this.stage.dirty.add('size');
    this.#mark('theme');
  }

  /** Another layer or request was chosen, so its frames are needed. */
  #wishChanged() {
    const { ui, frames } = this.ctx;
    frames.setLayer(ui.layer);
    frames.setRequest(ui.requestId);
    this.stage.dirty.add('frame');
    this.transport.subscribe(ui.layer, MAX_COLUMNS, ui.requestId);
  }

  /** A log starts: layers and requests of the previous one don't apply. */
  #begun() {
    const { log, ui, frames } = this.ctx;
    const last = (log.header?.model.num_layers ?? 1) - 1;
    if (ui.layer > last) ui.set({ layer: last });
    frames.setLayer(ui.layer);
    frames.setRequest(ui.requestId);
    if (log.header?.source === 'workload' && !new URLSearchParams(location.search).has('lens'))
      ui.set({ lens: 'pages' });
    this.stage.dirty.add('world');
  }

  /** @param {string} what @param {any} value */
  #transportChanged(what, value) {
    const { banner } = this;
    if (what === 'closed') void this.#closed();
    if (what === 'state' && value === 'open') banner.hide(strings.banner.lost, strings.banner.refused);
    if (what === 'hello') this.#hello(value);
    if (what === 'status') this.#status(value);
    if (what === 'error') this.#refused(value);
    this.#mark('status');
  }

  /** The connection is lost: the server is unreachable, or it serves the page but rejects the websocket. */
  async #closed() {
    const { transport, banner } = this;
    const again = [{ label: strings.banner.retry, run: () => transport.retry() }];
    if (transport.everOpen) {
      this.lostLog = this.ctx.log.kind === 'live' ? this.ctx.log.logId : null;
      this.caption.showHint = false;
      banner.show(strings.banner.lost, again);
      return;
    }
    const serves = await fetch('api/status').then(
      (response) => response.ok,
      () => false,
    );
    if (transport.state === 'lost') banner.show(serves ? strings.banner.refused : strings.banner.lost, again);
  }

  /** @param {{kind: string, head_seq: number, session_id: string}} hello */
  #hello(hello) {
    const { ui } = this.ctx;
    this.address.begun(hello);
    if (this.lostLog && this.lostLog !== this.ctx.log.logId)
      this.banner.show(strings.banner.restarted, [{ label: strings.banner.dismiss, run: () => this.banner.hide() }]);
    this.lostLog = null;
    this.transport.subscribe(ui.layer, MAX_COLUMNS, ui.requestId);
    this.caption.showHint = hello.kind === 'live';
    this.takeover.begun(hello.kind);
    const { header } = this.ctx.log;
    if (header && selectors.hasNoModel(header) && (ui.lens === 'cache' || ui.lens === 'attention'))
      ui.set({ lens: 'pages' });
    if (document.documentElement.dataset.ready !== 'yes') {
      document.documentElement.dataset.ready = 'yes';
      byId('boot').classList.remove('boot-failed');
    }
  }

  /** @param {import('../core/types.d.ts').Status} status */
  #status(status) {
    this.takeover.offered(status);
    if (status.model.state === 'failed')
      this.banner.show(fill(strings.banner.failedModel, { message: status.model.message ?? '' }), [
        { label: strings.banner.dismiss, run: () => this.banner.hide() },
      ]);
  }

  /** @param {import('./transport.js').CommandError} error */
  #refused(error) {
    if (/session/.test(error.code) && this.transport.session !== null) {
      this.openSession(null);
      this.banner.show(strings.banner.unknownSession, [
        { label: strings.banner.dismiss, run: () => this.banner.hide() },
      ]);
      return;
    }
    this.banner.show(error.message, [{ label: strings.banner.dismiss, run: () => this.banner.hide() }]);
  }

  /** @param {string|null} session */
  openSession(session) {
    const { ui } = this.ctx;
    ui.clear();
    ui.set({ requestId: null, drawerOpen: false });
    this.address.forget(session);
    this.transport.connect(session);
  }

  escape() {
    const { ui } = this.ctx;
    if (this.popover.close()) return;
    if (this.keys.isOpen) this.keys.toggle(false);
    else if (ui.drawerOpen) ui.set({ drawerOpen: false });
    else if (ui.blank) ui.set({ blank: false });
    else ui.clear();
  }

  start() {
    byId('app').hidden = false;
    this.ctx.timeline.reducedMotion = this.ctx.ui.reducedMotion;
    void this.stage.show(this.ctx.ui.lens);
    this.transport.connect(this.address.session);
    this.wake();
  }

  /** @param {number} dt @returns {boolean} */
  frame(dt) {
    const { timeline } = this.ctx;
    const moving = timeline.tick(dt) && !document.hidden;
    const folded = this.ctx.log.isLoading || timeline.keyframes.advance(moving ? FOLD_MS : FOLD_IDLE_MS);
    if (folded !== this.wasFolded) {
      this.wasFolded = folded;
      this.stale.add('fold');
    }
    this.address.settle();
    const scene = timeline.scene();
    this.#await(scene);
    this.stage.draw(scene);
    const again = this.#shell(scene, moving);
    this.takeover.tick(scene);
    return moving || !folded || again || this.stale.size > 0;
  }

  /**
   * Until a log and its first request have arrived, or there are known to be none, the picture is replaced by a line
   * of text, because an empty cache would look like a fact.
   * @param {import('../core/types.d.ts').Scene} scene
   */
  #await(scene) {
    const { log } = this.ctx;
    const model = this.transport.status?.model.state;
    const waits =
      log.logId === null ? model !== 'failed' && model !== 'none' : log.isLoading && scene.after.requests.size === 0;
    if (waits !== this.waits) {
      this.waits = waits;
      byId('app').dataset.waits = waits ? 'yes' : 'no';
      this.stale.add('waits');
    }
    const boot = byId('boot');
    if (boot.classList.contains('boot-failed')) return;
    if (waits) setText(boot, strings.stage.loading);
    boot.hidden = !waits || this.transport.state === 'lost';
  }

  /** The fixed parts of the screen. Most frames change only the progress.
   * @param {import('../core/types.d.ts').Scene} scene @param {boolean} moving @returns {boolean} */
  #shell(scene, moving) {
    const { stale, transport } = this;
    const changed = stale.size > 0;
    this.stale = new Set();
    const arrived = this.frameArrived;
    this.frameArrived = false;
    if (changed) {
      this.topbar.update(scene, transport.status, transport.state, this.takeover.canOffer);
      this.scrubber.update(scene);
      this.drawer.update(transport.status);
      if (!moving && !this.waits) this.stage.describe(scene);
      this.address.save();
    } else {
      this.scrubber.progress(scene);
    }
    if (!this.waits) {
      this.tape.update(scene);
      this.caption.update(scene, this.ctx.timeline.moving);
    }
    return this.inspector.update(scene, arrived, moving);
  }
}

/** @param {Ui} ui */
function applyLooks(ui) {
  const light = ui.theme === 'light' || (ui.theme === 'system' && matchMedia('(prefers-color-scheme: light)').matches);
  const { dataset } = document.documentElement;
  dataset.theme = light ? 'light' : 'dark';
  dataset.projector = ui.projector ? 'on' : 'off';
  ui.reducedMotion = matchMedia('(prefers-reduced-motion: reduce)').matches;
}

document.title = strings.pageTitle;
const app = new App();
app.start();
/** The stores, for tests and measurements. Don't change them from outside. */
Object.defineProperty(window, 'kvviz', { value: app });
