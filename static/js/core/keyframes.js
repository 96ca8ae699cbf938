/**
 * Worlds at chosen positions, so that every position is near one. A front folds once through the whole log and leaves
 * a clone every `spacing` steps. When the clones exceed their budget, every second one is dropped and the spacing
 * doubles. A returned world never changes.
 */
import { fromCheckpoint } from './checkpoint.js';
import { apply } from './reducer.js';
import { storedTokens } from './selectors.js';
import { World } from './state.js';
/** @import { Log } from './log.js' */

const BUDGET_BYTES = 64 * 1024 * 1024;
const FIRST_SPACING = 8;
const NUM_RECENT = 6;
/** Approximate number of records per step, for the spacing in a log that is already long. */
const RECORDS_PER_STEP = 5;

export class Keyframes {
  /** @param {Log} log */
  constructor(log) {
    this.log = log;
    this.spacing = FIRST_SPACING;
    this.bytes = 0;
    /** @type {{step: number, world: World, bytes: number}[]} */
    this.frames = [{ step: 0, world: new World(0, 1), bytes: 0 }];
    /** Worlds requested last, most recent first. @type {{step: number, world: World}[]} */
    this.recent = [];
    /** @type {World} */
    this.front = new World(0, 1);
    /** Tokens stored at the end of each step from baseStep on, over running requests. @type {number[]} */
    this.storedTokens = [];
    /** Blocks in use at the end of each step from baseStep on. @type {number[]} */
    this.usedBlocks = [];
    /** First step with a wrong digest or a contradiction.
     * @type {{step: number, expected: string, computed: string, broken: string|null}|null} */
    this.wrong = null;
  }

  /** Starts again for a new log. */
  reset() {
    const { header, checkpoint, baseStep } = this.log;
    this.bytes = 0;
    this.recent = [];
    this.storedTokens = [];
    this.usedBlocks = [];
    this.wrong = null;
    const world = checkpoint
      ? fromCheckpoint(checkpoint)
      : new World(header?.pool.num_blocks ?? 0, header?.pool.block_size ?? 1);
    world.numLanes = header ? (header.lanes?.length ?? 0) : null;
    world.seq = this.log.firstSeq - 1;
    const numSteps = (this.log.headSeq - this.log.firstSeq) / RECORDS_PER_STEP;
    this.spacing = Math.max(FIRST_SPACING, Math.ceil((numSteps * world.cloneBytes) / BUDGET_BYTES));
    this.frames = [{ step: baseStep, world: world.clone(), bytes: 0 }];
    this.front = world;
    this.#note(world);
  }

  /** Seq at which complete positions end; records of an unfinished step aren't folded. */
  get #end() {
    return this.log.stepOpen ? this.log.starts[this.log.starts.length - 1] : this.log.lastSeq + 1;
  }

  /** Whether the front has folded every complete step. */
  get done() {
    return this.front.seq + 1 >= this.#end;
  }

  /** Folds ahead for at most `budgetMs`. @param {number} budgetMs @returns {boolean} whether all is folded */
  advance(budgetMs) {
    const end = this.#end;
    const { front, log } = this;
    const stop = performance.now() + budgetMs;
    let sinceCheck = 0;
    while (front.seq + 1 < end) {
      const record = /** @type {import('./events.d.ts').EventRecord} */ (log.at(front.seq + 1));
      if (record[2].type === 'step_started') this.#maybeKeep(front);
      apply(front, record);
      if (record[2].type === 'step_finished') this.#note(front);
      if (++sinceCheck >= 32) {
        sinceCheck = 0;
        if (performance.now() >= stop) break;
      }
    }
    return front.seq + 1 >= end;
  }

  /** @param {World} world */
  #note(world) {
    let stored = 0;
    for (const id of world.unfinished) {
      const request = world.requests.get(id);
      if (request) stored += storedTokens(request);
    }
    const index = world.step - this.log.baseStep;
    this.storedTokens[index] = stored;
    this.usedBlocks[index] = world.numBlocks - world.free.length;
    if (!this.wrong && (world.broken !== null || (world.check && !world.check.ok))) {
      this.wrong = {
        step: world.step,
        expected: world.check?.expected ?? '',
        computed: world.check?.computed ?? '',
        broken: world.broken,
      };
    }
  }

  /** @param {World} world */
  #maybeKeep(world) {
    const last = this.frames[this.frames.length - 1];
    if (world.step - last.step < this.spacing) return;
    const bytes = world.cloneBytes;
    this.frames.push({ step: world.step, world: world.clone(), bytes });
    this.bytes += bytes;
    if (this.bytes <= BUDGET_BYTES) return;
    this.spacing *= 2;
    this.frames = this.frames.filter((_, index) => index % 2 === 0);
    this.bytes = this.frames.reduce((sum, frame) => sum + frame.bytes, 0);
  }

  /** The world at a position. Don't change it. @param {number} step @returns {World} */
  at(step) {
    const end = this.log.endOf(step);
    const known = this.recent.find((entry) => entry.step === step && entry.world.seq + 1 === end);
    if (known) return known.world;
    const world = this.#nearest(step, end).clone();
    for (let seq = world.seq + 1; seq < end; seq++) {
      apply(world, /** @type {import('./events.d.ts').EventRecord} */ (this.log.at(seq)));
    }
    this.recent = [{ step, world }, ...this.recent.filter((entry) => entry.step !== step)].slice(0, NUM_RECENT);
    return world;
  }

  /** @param {number} step @param {number} end @returns {World} */
  #nearest(step, end) {
    let low = 0;
    let high = this.frames.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.frames[middle].step <= step) low = middle;
      else high = middle - 1;
    }
    let best = this.frames[low].world;
    for (const { world } of this.recent) if (world.seq > best.seq && world.seq < end) best = world;
    if (this.front.seq > best.seq && this.front.seq < end) best = this.front;
    return best;
  }
}
