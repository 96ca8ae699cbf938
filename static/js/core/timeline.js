/**
 * The cursor on the log. Position i is the world after step i; `progress` runs 0-1 on the way to i + 1. Pinned means
 * that the cursor follows the head of a live log; any seek unpins it. The timeline never commands the engine.
 */
import { emitter } from './emitter.js';
import { Keyframes } from './keyframes.js';
import { layerAt, layerOrder, phasesOf, progressOfLayer } from './phases.js';
import { apply } from './reducer.js';
/** @import { Log } from './log.js' */
/** @import { Scene } from './types.d.ts' */

export const SPEEDS = [0.25, 0.5, 1, 2, 4, 8, 16];
/** While a long log arrives, it is folded in batches, and the rest of the page is notified only this often. */
const LOADING_FOLD_MS = 30;
const LOADING_TELL_MS = 700;
/** A pinned cursor this many steps behind the head skips the motion and shows the last state. */
const OUTRUN_STEPS = 4;

export class Timeline {
  /** @param {Log} log */
  constructor(log) {
    this.log = log;
    this.keyframes = new Keyframes(log);
    this.position = 0;
    this.progress = 0;
    this.playing = false;
    this.pinned = false;
    this.speed = 1;
    this.reducedMotion = false;
    /** Milliseconds that a step has been held under reduced motion. */
    this.held = 0;
    /** Play stops at this position; null means never. @type {number|null} */
    this.stopAt = null;
    /** Steps per second while the head is faster than the motion, else 0. */
    this.outrun = 0;
    /** @type {Scene|null} */
    this.cachedScene = null;
    /** The last result of `momentWorld`.
     * @type {{before: import('./state.js').World, until: string, world: import('./state.js').World}|null} */
    this.moment = null;
    this.changes = emitter();
    /** @type {{time: number, step: number}[]} */
    this.arrivals = [];
    this.toldAt = -Infinity;
    log.changes.on((what) => (what === 'begin' ? this.#begin() : this.#grown()));
  }

  get first() {
    return this.log.baseStep;
  }

  get head() {
    return this.log.headStep;
  }

  get atHead() {
    return this.position >= this.head;
  }

  /** Whether the cursor moves by itself. */
  get moving() {
    return this.playing || (this.pinned && this.position < this.head);
  }

  #begin() {
    this.keyframes.reset();
    this.position = this.log.baseStep;
    this.progress = 0;
    this.playing = false;
    this.pinned = false;
    this.stopAt = null;
    this.outrun = 0;
    this.arrivals = [];
    this.toldAt = -Infinity;
    this.#changed('begin');
  }

  #grown() {
    const now = performance.now();
    this.arrivals.push({ time: now, step: this.head });
    while (this.arrivals.length > 2 && now - this.arrivals[0].time > 1500) this.arrivals.shift();
    if (this.log.isLoading) {
      this.keyframes.advance(LOADING_FOLD_MS);
      if (now - this.toldAt < LOADING_TELL_MS) return;
    }
    this.toldAt = now;
    this.#changed('head');
  }

  /** Steps per second that arrived recently. */
  get arrivalRate() {
    const first = this.arrivals[0];
    const last = this.arrivals[this.arrivals.length - 1];
    if (!first || last.time - first.time < 200) return 0;
    return ((last.step - first.step) * 1000) / (last.time - first.time);
  }

  /** @param {string} what */
  #changed(what) {
    this.cachedScene = null;
    this.changes.emit(what);
  }

  /** @returns {Scene} */
  scene() {
    const { position, progress } = this;
    let scene = this.cachedScene;
    if (!scene) {
      const before = this.keyframes.at(position);
      const step = progress > 0 ? this.log.step(position + 1) : null;
      const after = step ? this.keyframes.at(position + 1) : before;
      scene = { before, after, step, progress: step ? progress : 0, position };
      this.cachedScene = scene;
    }
    return scene;
  }

  /**
   * The world as of the cursor: within a step, nothing is written before the sweep through the layers, and nothing is
   * released before its phase.
   * @returns {import('./state.js').World}
   */
  momentWorld() {
    const { step, progress, before, after } = this.scene();
    if (!step) return before;
    const { layers, release } = phasesOf(step);
    const until =
      progress < layers[0]
        ? 'kv_written'
        : step.forgotten.length > 0 && step.chunks.length === 1 && progress < release[0]
          ? 'kv_forgotten'
          : step.finished.length > 0 && progress < release[0]
            ? 'request_finished'
            : null;
    if (until === null) return after;
    if (this.moment?.before === before && this.moment.until === until) return this.moment.world;
    const world = before.clone();
    for (let seq = step.firstSeq; seq <= step.lastSeq; seq++) {
      const record = this.log.at(seq);
      if (!record || record[2].type === until) break;
      apply(world, record);
    }
    this.moment = { before, until, world };
    return world;
  }

  /** Sets the cursor. Progress within a scene doesn't create a new scene. @param {number} position @param {number} progress */
  #set(position, progress) {
    const step = position + Math.floor(progress);
    const clamped = Math.min(Math.max(step, this.first), this.head);
    const rest = clamped >= this.head ? 0 : step < this.first ? 0 : progress - Math.floor(progress);
    if (clamped === this.position && rest === this.progress) return;
    const sameWay = clamped === this.position && rest > 0 === this.progress > 0;
    this.position = clamped;
    this.progress = rest;
    if (sameWay && this.cachedScene) {
      this.cachedScene.progress = rest;
      this.changes.emit('progress');
    } else {
      this.#changed('position');
    }
  }

  /** Jumps to a position and unpins. @param {number} position @param {number} [progress] */
  seek(position, progress = 0) {
    this.stopAt = null;
    this.outrun = 0;
    this.#unpin();
    this.#set(position, progress);
    this.changes.emit('seek');
  }

  #unpin() {
    if (!this.pinned) return;
    this.pinned = false;
    this.changes.emit('pin');
  }

  /** Follows the head. @param {boolean} [jump] go there at once */
  pin(jump = true) {
    this.stopAt = null;
    this.playing = false;
    if (jump) this.#set(this.head, 0);
    if (!this.pinned) {
      this.pinned = true;
      this.changes.emit('pin');
    }
    this.changes.emit('play');
  }

  play() {
    this.stopAt = null;
    if (this.playing || this.position >= this.head) return;
    this.playing = true;
    this.changes.emit('play');
  }

  pause() {
    this.stopAt = null;
    this.#unpinIfMoving();
    if (!this.playing) return;
    this.playing = false;
    this.changes.emit('play');
  }

  #unpinIfMoving() {
    if (this.position < this.head) this.#unpin();
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.speed = speed;
    this.changes.emit('speed');
  }

  /** One step forward, with motion unless `instant`. @param {boolean} [instant] @returns {boolean} false at the head */
  stepForward(instant = false) {
    if (this.progress > 0) this.#set(this.position + 1, 0);
    if (this.position >= this.head) return false;
    if (instant) {
      this.playing = false;
      this.stopAt = null;
      this.#set(this.position + 1, 0);
    } else {
      this.stopAt = this.position + 1;
      this.playing = true;
    }
    this.changes.emit('play');
    return true;
  }

  stepBack() {
    this.playing = false;
    this.stopAt = null;
    this.#unpin();
    this.#set(this.progress > 0 ? this.position : this.position - 1, 0);
    this.changes.emit('play');
  }

  /** Moves to the next layer in the step and pauses there. @param {1|-1} direction @returns {number|null} the layer */
  stepLayer(direction) {
    this.playing = false;
    this.stopAt = null;
    this.#unpin();
    if (this.progress === 0 && direction < 0) {
      if (this.position <= this.first) return null;
      const last = this.log.step(this.position);
      if (last) this.#set(this.position - 1, progressOfLayer(last, layerOrder(last).length - 1));
    } else {
      const step = this.log.step(this.position + 1);
      if (!step) return null;
      const order = layerOrder(step);
      const moment = this.progress > 0 ? layerAt(step, this.progress) : null;
      const [from, to] = phasesOf(step).layers;
      const index = moment
        ? moment.index + direction
        : this.progress < from || this.progress === 0
          ? direction > 0
            ? 0
            : -1
          : this.progress >= to && direction < 0
            ? order.length - 1
            : order.length;
      if (index < 0) this.#set(this.position, 0);
      else if (index >= order.length) this.#set(this.position + 1, 0);
      else this.#set(this.position, progressOfLayer(step, index));
    }
    this.changes.emit('play');
    const step = this.progress > 0 ? this.log.step(this.position + 1) : null;
    return layerAt(step, this.progress)?.layer ?? null;
  }

  /** Moves to the next or previous rare event. The cursor stops just before its step, so that the step can be played.
   * @param {1|-1} direction */
  seekMark(direction) {
    const here = this.position;
    const marks = this.log.marks.filter((mark) => mark.step <= this.head);
    const mark =
      direction > 0 ? marks.find(({ step }) => step - 1 > here) : marks.findLast(({ step }) => step - 1 < here);
    if (mark) this.seek(mark.step - 1, 0);
    return mark ?? null;
  }

  /** Under reduced motion, a step is held for as long as its motion would last, then replaced at once.
   * @param {number} left @param {number} position @returns {number} */
  #hold(left, position) {
    const step = this.log.step(position + 1);
    const duration = step ? phasesOf(step).duration : 0;
    this.held += left;
    if (this.held < duration && this.stopAt === null) return 0;
    this.held = 0;
    return duration;
  }

  /** Advances by `dt` milliseconds. @param {number} dt @returns {boolean} whether there is more to do */
  tick(dt) {
    if (!this.moving) return false;
    const lag = this.head - this.position;
    if (this.pinned && lag >= OUTRUN_STEPS) {
      this.outrun = Math.max(this.arrivalRate, 1);
      this.#set(this.head, 0);
      return false;
    }
    if (lag <= 1 && this.outrun > 0 && this.arrivalRate < 2 * this.speed) this.outrun = 0;
    let left = dt * this.speed * (this.pinned && lag > 1 ? 1 + 0.6 * (lag - 1) : 1);
    let { position, progress } = this;
    if (this.reducedMotion) left = this.#hold(left, position);
    while (left > 0) {
      const step = position < this.head ? this.log.step(position + 1) : null;
      if (!step) break;
      const { duration } = phasesOf(step);
      const need = (1 - progress) * duration;
      if (left < need) {
        progress += left / duration;
        break;
      }
      left -= need;
      progress = 0;
      position++;
      if (this.stopAt !== null && position >= this.stopAt) break;
    }
    this.#set(position, progress);
    const stopped = this.stopAt !== null && this.position >= this.stopAt;
    if (this.playing && (stopped || this.position >= this.head)) {
      this.playing = false;
      this.stopAt = null;
      this.changes.emit(stopped ? 'play' : 'end');
    }
    return this.moving;
  }
}
