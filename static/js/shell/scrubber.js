/** The timeline: one tick per step, marks for rare events, the cursor. Drag anywhere. */
import { CUT_SPEED, layerAt } from '../core/phases.js';
import { SPEEDS } from '../core/timeline.js';
import { pixelRatio } from '../ui/canvas.js';
import { h, icon, PATHS, replace, setText } from '../ui/dom.js';
import { fill } from '../ui/format.js';
import { drawMark, rankOf } from './marks.js';
/** @import { Ctx, Scene } from '../core/types.d.ts' */
/** @import { Actions } from './actions.js' */

const MAX_TICK_PX = 30;
const MARKS_PX = 12;

export class Scrubber {
  /** @param {HTMLElement} root @param {Ctx} ctx @param {Actions} actions */
  constructor(root, ctx, actions) {
    this.ctx = ctx;
    this.actions = actions;
    const { timeline: text } = ctx.strings;
    root.setAttribute('role', 'group');
    root.setAttribute('aria-label', text.label);
    this.playIcon = icon(PATHS.play);
    this.play = this.#button(text.play, this.playIcon, () => actions.playPause(), 'round-button play-button');
    this.speed = h('select', { class: 'speed', 'aria-label': text.speed, on: { change: () => this.#speedChosen() } });
    this.canvas = h('canvas', { class: 'ticks', 'aria-hidden': 'true' });
    this.cursor = h('div', { class: 'cursor' });
    this.veil = h('div', { class: 'veil' });
    this.tip = h('div', { class: 'panel tick-tip', hidden: true });
    this.track = h(
      'div',
      { class: 'track', role: 'slider', tabindex: '0', 'aria-label': text.slider, 'aria-valuemin': '0' },
      this.canvas,
      h('div', { class: 'veil-box' }, this.veil),
      this.cursor,
      this.tip,
    );
    this.where = h('div', { class: 'where' });
    this.liveButton = h(
      'button',
      { type: 'button', class: 'note live-button', title: text.liveTitle, on: { click: () => actions.live() } },
      text.live,
    );
    root.append(
      h(
        'div',
        { class: 'transport' },
        this.#button(text.first, icon(PATHS.first), () => actions.first(), 'round-button first-button'),
        this.#button(text.back, icon(PATHS.back), () => actions.stepBack()),
        this.play,
        this.#button(text.forward, icon(PATHS.forward), () => actions.stepForward()),
        this.speed,
      ),
      this.track,
      h(
        'div',
        { class: 'where-box' },
        this.#button(text.previousMark, icon(PATHS.previousMark), () => actions.mark(-1), 'plain-button mark-button'),
        this.#button(text.nextMark, icon(PATHS.nextMark), () => actions.mark(1), 'plain-button mark-button'),
        this.where,
        this.liveButton,
      ),
    );
    /** Size of the track in pixels. */
    this.width = 0;
    this.height = 0;
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      this.height = entry.contentRect.height;
      ctx.ui.changes.emit('ui');
    }).observe(this.track);
    this.#listen();
    this.drawKey = '';
    this.dragging = false;
    this.speedKey = '';
    /** The slider's current text. */
    this.valueNow = -1;
    this.valueMax = -1;
    this.spoken = '';
    this.whereKey = '';
  }

  /** @param {string} label @param {Element} sign @param {() => void} action @param {string} [className] */
  #button(label, sign, action, className = 'round-button') {
    return h(
      'button',
      { type: 'button', class: className, 'aria-label': label, title: label, on: { click: action } },
      sign,
    );
  }

  #listen() {
    const { track } = this;
    track.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return;
      track.setPointerCapture(event.pointerId);
      this.dragging = true;
      this.#seek(event.clientX);
    });
    track.addEventListener('pointermove', (event) => {
      if (this.dragging) this.#seek(event.clientX);
      else this.#hint(event.clientX);
    });
    const end = () => {
      this.dragging = false;
    };
    track.addEventListener('pointerup', end);
    track.addEventListener('pointercancel', end);
    track.addEventListener('pointerleave', () => {
      this.tip.hidden = true;
    });
    track.addEventListener('keydown', (event) => this.#key(event));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const { timeline } = this.ctx;
    const far = Math.max(10, Math.round((timeline.head - timeline.first) / 20));
    const { position } = timeline;
    const to = {
      ArrowLeft: position - (timeline.progress > 0 ? 0 : 1),
      ArrowDown: position - 1,
      ArrowRight: position + 1,
      ArrowUp: position + 1,
      PageDown: position - far,
      PageUp: position + far,
      Home: timeline.first,
      End: timeline.head,
    }[event.code];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    timeline.pause();
    timeline.seek(to);
  }

  /** @param {number} clientX @returns {number} steps from the first position, whole and part */
  #at(clientX) {
    const box = this.track.getBoundingClientRect();
    return (clientX - box.left) / this.tick;
  }

  /** Pixels per step. */
  get tick() {
    const steps = Math.max(1, this.ctx.timeline.head - this.ctx.timeline.first);
    return Math.min(MAX_TICK_PX, Math.max(1, this.width) / steps);
  }

  /** @param {number} clientX */
  #seek(clientX) {
    const { timeline } = this.ctx;
    if (timeline.playing) timeline.pause();
    timeline.seek(
      timeline.first + Math.min(Math.max(0, Math.round(this.#at(clientX))), timeline.head - timeline.first),
    );
  }

  /** @param {number} clientX */
  #hint(clientX) {
    const { timeline, log, strings } = this.ctx;
    const step = timeline.first + Math.floor(this.#at(clientX)) + 1;
    this.tip.hidden = step > timeline.head;
    if (this.tip.hidden) return;
    const text = strings.timeline;
    const marks = log.marks.filter((mark) => mark.step === step).map((mark) => text.marks[mark.kind]);
    setText(this.tip, [fill(text.tip, { step, kind: text.tick[log.kindAt(step)] }), ...marks].join(', '));
    const box = this.track.getBoundingClientRect();
    this.tip.style.left = `${Math.min(Math.max(clientX - box.left, 60), box.width - 60)}px`;
  }

  #speedChosen() {
    const { value } = this.speed;
    this.actions.setSpeed(value === 'max' ? null : Number(value));
  }

  #speeds() {
    const { strings, timeline } = this.ctx;
    const listens = this.actions.engineListens;
    const key = `${listens}`;
    if (key !== this.speedKey) {
      this.speedKey = key;
      const options = SPEEDS.map((speed) => h('option', { value: speed }, fill(strings.timeline.times, { n: speed })));
      replace(this.speed, options, listens && h('option', { value: 'max' }, strings.timeline.max));
    }
    const value = this.actions.fullSpeed && listens ? 'max' : String(timeline.speed);
    if (this.speed.value !== value) this.speed.value = value;
  }

  /** @param {Scene} scene */
  update(scene) {
    const { ctx, actions } = this;
    const { timeline, strings, log } = ctx;
    const text = strings.timeline;
    const playing = actions.isPlaying;
    this.playIcon.firstElementChild?.setAttribute('d', playing ? PATHS.pause : PATHS.play);
    this.play.setAttribute('aria-label', playing ? text.pause : text.play);
    this.play.title = playing ? text.pause : text.play;
    this.#speeds();
    this.liveButton.hidden = log.kind !== 'live';
    this.liveButton.setAttribute('aria-pressed', String(timeline.pinned));
    this.#draw();
    this.progress(scene);
  }

  /** The cheap part of every frame. @param {Scene} scene */
  progress(scene) {
    const { timeline, strings } = this.ctx;
    const { first, head } = timeline;
    const at = scene.position - first + scene.progress;
    const shift = `translateX(${(at * this.tick).toFixed(1)}px)`;
    this.cursor.style.transform = shift;
    this.veil.style.transform = shift;
    const cut = timeline.moving && timeline.speed >= CUT_SPEED;
    const layer = cut ? undefined : layerAt(scene.step, scene.progress)?.layer;
    const step = scene.step ? scene.step.step : scene.position;
    const key = `${step}:${layer}:${head}:${timeline.outrun}`;
    if (key === this.whereKey) return;
    this.whereKey = key;
    const text = strings.timeline;
    const value =
      timeline.outrun > 0
        ? fill(strings.caption.outrun, {
            rate: timeline.outrun < 10 ? timeline.outrun.toFixed(1) : Math.round(timeline.outrun),
          })
        : layer !== undefined
          ? fill(text.valueLayer, { step, layer })
          : fill(text.of, { step, head });
    setText(this.where, value);
    if (this.valueNow !== step) {
      this.valueNow = step;
      this.track.setAttribute('aria-valuenow', String(step));
    }
    if (this.valueMax !== head) {
      this.valueMax = head;
      this.track.setAttribute('aria-valuemax', String(head));
      this.track.setAttribute('aria-valuemin', String(first));
    }
    const spoken = fill(text.value, { step, head });
    if (this.spoken !== spoken) {
      this.spoken = spoken;
      this.track.setAttribute('aria-valuetext', spoken);
    }
  }

  /** Ticks and marks, redrawn only if there are more of them or they look different. */
  #draw() {
    const { timeline, log, palette } = this.ctx;
    const { width, height } = this;
    const count = timeline.head - timeline.first;
    const key = `${log.logId}:${count}:${log.marks.length}:${width}x${height}:${palette.version}`;
    if (key === this.drawKey || width === 0) return;
    this.drawKey = key;
    const ratio = pixelRatio();
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const g = this.canvas.getContext('2d');
    if (!g) return;
    g.scale(ratio, ratio);
    this.#ticks(g, height, count);
    this.#marks(g);
  }

  /** @param {CanvasRenderingContext2D} g @param {number} height @param {number} count */
  #ticks(g, height, count) {
    const { timeline, log, palette } = this.ctx;
    const { tick } = this;
    const base = height - 2;
    const tall = base - MARKS_PX;
    const low = tall * 0.62;
    const gap = tick > 4 ? 1 : 0;
    const per = Math.max(1, Math.ceil(1 / tick));
    for (let i = 0; i < count; i += per) {
      let prefill = false;
      let some = false;
      for (let j = i; j < Math.min(i + per, count); j++) {
        const kind = log.kindAt(timeline.first + j + 1);
        prefill ||= kind === 'prefill' || kind === 'mixed';
        some ||= kind !== 'empty';
      }
      const tallness = prefill ? tall : some ? low : 3;
      g.fillStyle = palette.css(prefill ? 'tick-prefill' : 'tick');
      g.fillRect(i * tick, base - tallness, Math.max(tick * per - gap, 0.75), tallness);
    }
  }

  /** @param {CanvasRenderingContext2D} g */
  #marks(g) {
    const { timeline, log, palette } = this.ctx;
    const { tick } = this;
    let last = '';
    // Rarer marks are drawn over common ones.
    for (const mark of [...log.marks].sort((a, b) => rankOf(a.kind) - rankOf(b.kind))) {
      if (mark.step > timeline.head) continue;
      const x = Math.round((mark.step - timeline.first - 0.5) * tick);
      const key = `${x}:${mark.kind}`;
      if (key === last) continue;
      last = key;
      drawMark(g, palette, mark.kind, x);
    }
  }
}
