/** The caption with its two large figures and the counter, and the polite live region. */
import { captionOf } from '../captions/caption.js';
import { closedForms, keepsNothing } from '../core/lane-figures.js';
import { layerAt, phasesOf } from '../core/phases.js';
import { shownRequest, stepTimes, storedTokens, workCounts } from '../core/selectors.js';
import { h, replace, setText } from '../ui/dom.js';
import { bytes, count, duration, fill } from '../ui/format.js';
import { plain, segments } from '../ui/text.js';
import { sentence } from './segments.js';
/** @import { Ctx, Scene } from '../core/types.d.ts' */
/** @import { Popover } from '../ui/popover.js' */

/** At most one line goes to the live region in this time during playback. */
const SAY_MS = 2000;

export class CaptionBar {
  /** @param {HTMLElement} root @param {HTMLElement} live @param {Ctx} ctx @param {Popover} popover */
  constructor(root, live, ctx, popover) {
    this.ctx = ctx;
    this.live = live;
    this.popover = popover;
    const { caption } = ctx.strings;
    this.text = h('p', { class: 'caption-text' });
    this.hint = h('p', { class: 'caption-hint' });
    this.prefill = figure();
    this.token = figure();
    this.cache = figure('figure-cache');
    this.work = figure('figure-work');
    this.workWith = h('span', {});
    this.workWithout = h('span', {});
    this.work.value.append(this.workWith, h('span', { class: 'counter-dot' }, ' · '), this.workWithout);
    setText(this.work.label, caption.counterTitle);
    root.append(
      h('div', { class: 'caption-words' }, this.text, this.hint),
      h('div', { class: 'figures' }, this.prefill.root, this.token.root, this.cache.root, this.work.root),
    );
    this.key = '';
    /** What the text was built for. */
    this.moment = '';
    this.figureKey = '';
    this.said = '';
    this.saidAt = 0;
    this.sayTimer = 0;
    this.showHint = false;
    this.hintKind = '';
    this.hint.hidden = true;
  }

  /** @param {Scene} scene @param {boolean} moving */
  update(scene, moving) {
    const { ui, log } = this.ctx;
    const moment = `${log.logId}:${scene.position}:${scene.after.seq}:${momentOf(scene, moving)}:${ui.longCaption}`;
    if (moment !== this.moment) {
      this.moment = moment;
      this.#text(scene, moving);
    }
    this.#hint(scene, moving);
    this.#figures(scene);
  }

  /** @param {Scene} scene @param {boolean} moving */
  #text(scene, moving) {
    const { ui, log } = this.ctx;
    const { short, long } = captionOf(scene, log, moving);
    const parts = ui.longCaption ? long : short;
    const text = plain(parts);
    if (text !== this.key) {
      this.key = text;
      replace(
        this.text,
        sentence(parts, ui, (anchor, term) =>
          this.popover.show(anchor, anchor.textContent ?? '', h('p', { class: 'popover-note' }, term)),
        ),
      );
      this.#say(plain(short), moving);
    }
  }

  /** What the user can do now: before the first step of a live log, and when there is nothing left to compute.
   * @param {Scene} scene @param {boolean} moving */
  #hint(scene, moving) {
    const { timeline, strings, ui } = this.ctx;
    const { caption, keys } = strings;
    const atEnd =
      scene.position > timeline.first && scene.position === timeline.head && scene.after.unfinished.length === 0;
    const kind =
      !this.showHint || moving || scene.step ? '' : scene.position === timeline.first ? 'start' : atEnd ? 'end' : '';
    if (kind === this.hintKind) return;
    this.hintKind = kind;
    this.hint.hidden = kind === '';
    if (kind === '') return;
    const key = (/** @type {string} */ name) =>
      /** @type {import('../ui/text.js').Segment} */ ({ text: name, kind: 'key' });
    const touch = matchMedia('(hover: none)').matches;
    const text =
      kind === 'start' ? (touch ? caption.hintTouch : caption.hint) : touch ? caption.hintEndTouch : caption.hintEnd;
    replace(
      this.hint,
      sentence(
        segments(text, { Space: key(keys.names.Space), Right: key(keys.names.ArrowRight), Key: key('D') }),
        ui,
        () => undefined,
      ),
    );
  }

  /** @param {Scene} scene */
  #figures(scene) {
    const { log, ui, strings } = this.ctx;
    const { caption } = strings;
    const shown = shownRequest(scene, ui);
    const request = shown ? (this.ctx.timeline.momentWorld().requests.get(shown.id) ?? shown) : null;
    const position = scene.step ? scene.step.step : scene.position;
    const key = `${log.logId}:${request?.id}:${position}:${request?.numComputed}:${request?.state}`;
    if (key === this.figureKey) return;
    this.figureKey = key;
    const times = request ? stepTimes(log, request, position) : null;
    const hit = request?.numHitTokens ?? 0;
    setText(this.prefill.value, times?.prefillMs ? duration(times.prefillMs) : caption.none);
    setText(
      this.prefill.label,
      hit > 0
        ? fill(caption.figurePrefillHit, { n: times?.prefillTokens ?? 0, hit })
        : fill(caption.figurePrefill, { n: request ? request.promptLength : caption.none }),
    );
    setText(this.token.value, times?.tokenMs ? duration(times.tokenMs) : caption.none);
    setText(this.token.label, caption.figureToken);
    this.#work(request);
    setText(this.cache.value, bytes((request ? storedTokens(request) : 0) * (log.header?.pool.bytes_per_token ?? 0)));
    setText(this.cache.label, fill(caption.figureCache, { letter: request?.letter ?? '' }));
  }

  /** The measured count first, then the alternative: without a cache or, in a lane without one, with a cache.
   * @param {import('../core/types.d.ts').Request|null} request */
  #work(request) {
    const { log, strings } = this.ctx;
    const { caption } = strings;
    if (log.header?.lane && keepsNothing(log.header.lane)) {
      const { cached } = closedForms(
        request?.promptLength ?? 0,
        request ? request.tokens.length - request.promptLength : 0,
      );
      setText(this.workWith, fill(caption.counterNone, { n: count(request?.numWritten ?? 0) }));
      setText(this.workWithout, fill(caption.counterOne, { n: count(cached) }));
      return;
    }
    const work = request ? workCounts(request) : { withCache: 0, without: 0 };
    setText(this.workWith, fill(caption.counterWith, { n: count(work.withCache) }));
    setText(this.workWithout, fill(caption.counterWithout, { n: count(work.without) }));
  }

  /** @param {string} text @param {boolean} moving */
  #say(text, moving) {
    this.said = text;
    if (this.sayTimer !== 0) return;
    const wait = moving ? Math.max(0, this.saidAt + SAY_MS - performance.now()) : 150;
    this.sayTimer = setTimeout(() => {
      this.sayTimer = 0;
      this.saidAt = performance.now();
      setText(this.live, this.said);
    }, wait);
  }
}

/** The part of a step that a sentence is about; a single layer only if there is time to read it.
 * @param {Scene} scene @param {boolean} moving @returns {string} */
function momentOf(scene, moving) {
  const { step, progress } = scene;
  if (!step) return 'settled';
  const { blocks, layers, sample } = phasesOf(step);
  if (progress < blocks[1]) return `blocks${progress < blocks[1] / 2 ? 1 : 2}`;
  if (progress >= sample[1]) return 'end';
  if (progress >= layers[1]) return 'sample';
  const moment = moving ? null : layerAt(step, progress);
  return moment ? `${moment.layer}${moment.stage}` : 'layers';
}

/** @param {string} [className] */
function figure(className = '') {
  const value = h('span', { class: 'figure-value' });
  const label = h('span', { class: 'note figure-label' });
  return { root: h('div', { class: `column figure ${className}` }, value, label), value, label };
}
