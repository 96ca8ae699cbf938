/** The only user of requestAnimationFrame: one callback per frame, and only while a frame is requested. */

export class FrameLoop {
  /** @param {(dt: number) => boolean} work called with milliseconds since the last frame; returns whether to go on */
  constructor(work) {
    this.work = work;
    this.handle = 0;
    this.last = 0;
    /** Main-thread milliseconds of the last frames, for measurements. */
    this.costs = new Float32Array(600);
    this.intervals = new Float32Array(600);
    this.numFrames = 0;
    this.tick = this.tick.bind(this);
  }

  /** Requests a frame. Safe to call at any time. */
  request() {
    if (this.handle === 0) this.handle = requestAnimationFrame(this.tick);
  }

  /** @param {number} now */
  tick(now) {
    this.handle = 0;
    const start = performance.now();
    const dt = this.last === 0 ? 16 : now - this.last;
    const more = this.work(Math.min(dt, 100));
    const index = this.numFrames++ % this.costs.length;
    this.costs[index] = performance.now() - start;
    this.intervals[index] = dt;
    if (more) {
      this.last = now;
      this.request();
    } else {
      this.last = this.handle === 0 ? 0 : now;
    }
  }
}
