/**
 * The token tape: tokens of the shown request, with the newest always visible. Only the chips that fit are elements;
 * they are laid out from right to left.
 */
import { phasesOf, within } from '../core/phases.js';
import { shownRequest } from '../core/selectors.js';
import { h, icon, PATHS, replace, setText } from '../ui/dom.js';
import { fill, percent } from '../ui/format.js';
import { sameSelection } from '../ui/store.js';
import { quoted } from '../ui/text.js';
import { MAX_CHARS, tokenText } from '../ui/token.js';
/** @import { Ctx, Scene, Request } from '../core/types.d.ts' */
/** @import { Popover } from '../ui/popover.js' */

const MIN_CHIP_PX = 24;
const CHIP_PADDING_PX = 14;
/** A narrower part of the prompt has no label. */
const MIN_LABEL_PX = 80;
const NUM_SWITCHES = 8;

export class Tape {
  /** @param {HTMLElement} root @param {Ctx} ctx @param {Popover} popover @param {import('./actions.js').Actions} actions */
  constructor(root, ctx, popover, actions) {
    this.root = root;
    this.ctx = ctx;
    this.popover = popover;
    this.actions = actions;
    const { tape } = ctx.strings;
    this.title = h('span', { class: 'strong tape-title' });
    this.counts = h('span', { class: 'tape-counts' });
    this.switches = h('span', { class: 'tape-switches', role: 'group', 'aria-label': ctx.strings.tape.follow });
    this.nowLabel = h('span', { class: 'tape-now' });
    this.promptGroup = h('div', { class: 'column tape-group tape-prompt' });
    this.madeGroup = h('div', { class: 'column tape-group tape-made' });
    this.promptChips = h('div', { class: 'tape-chips' });
    this.madeChips = h('div', { class: 'tape-chips' });
    this.promptGroup.append(
      this.promptChips,
      h('span', { class: 'fine-note tape-bracket' }, h('span', {}, tape.prompt)),
    );
    this.madeGroup.append(this.madeChips, h('span', { class: 'fine-note tape-bracket' }, h('span', {}, tape.made)));
    this.strip = h(
      'div',
      {
        class: 'tape-strip',
        role: 'listbox',
        tabindex: '0',
        'aria-orientation': 'horizontal',
        on: {
          wheel: (/** @type {WheelEvent} */ event) => this.#wheel(event),
          keydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
        },
      },
      this.promptGroup,
      this.madeGroup,
    );
    this.older = this.#arrow(tape.older, PATHS.left, () => this.#scroll(-this.page));
    this.newer = this.#arrow(tape.newer, PATHS.right, () => this.#stick());
    root.append(
      h('div', { class: 'note tape-head' }, this.title, this.counts, this.switches, this.nowLabel),
      h('div', { class: 'tape-row' }, this.older, this.strip, this.newer),
    );
    this.#listen();
    /** Width of the strip and of one character, in pixels. */
    this.width = 0;
    this.charPx = 8.4;
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      this.charPx = parseFloat(getComputedStyle(this.promptChips).fontSize) * 0.6;
      ctx.ui.changes.emit('ui');
    }).observe(this.strip);
    /** Index after the last visible token; null follows the newest. @type {number|null} */
    this.end = null;
    this.page = 10;
    this.key = '';
    this.request = /** @type {Request|null} */ (null);
    this.numKnown = 0;
    /** Chips by position. @type {Map<number, HTMLElement>} */
    this.chips = new Map();
    this.requestId = -1;
    this.logId = '';
    this.active = -1;
    /** @type {HTMLElement|null} */
    this.marked = null;
    /** The chip that is dropping onto the tape. @type {HTMLElement|undefined} */
    this.dropping = undefined;
  }

  /** @param {string} label @param {string} path @param {() => void} action */
  #arrow(label, path, action) {
    return h(
      'button',
      { class: 'tape-arrow', type: 'button', 'aria-label': label, title: label, on: { click: action } },
      icon(path),
    );
  }

  #listen() {
    const { ui } = this.ctx;
    const at = (/** @type {Event} */ event) => {
      const chip = /** @type {HTMLElement} */ (event.target).closest('[data-position]');
      return chip instanceof HTMLElement ? Number(chip.dataset.position) : -1;
    };
    this.strip.addEventListener('pointerover', (event) => {
      const position = at(event);
      if (event.pointerType === 'mouse')
        ui.hover(position >= 0 && this.request ? { kind: 'token', request: this.request.id, position } : null);
    });
    this.strip.addEventListener('pointerleave', () => ui.hover(null));
    this.strip.addEventListener('click', (event) => {
      const position = at(event);
      if (position >= 0) this.choose(position);
    });
    let from = 0;
    this.strip.addEventListener(
      'touchstart',
      (event) => {
        from = event.touches[0].clientX;
      },
      { passive: true },
    );
    this.strip.addEventListener(
      'touchmove',
      (event) => {
        const steps = Math.trunc((from - event.touches[0].clientX) / 34);
        if (steps === 0) return;
        from = event.touches[0].clientX;
        this.#scroll(steps);
      },
      { passive: true },
    );
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    const delta = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.deltaY;
    if (delta === 0 || this.numKnown === 0) return;
    event.preventDefault();
    this.#scroll(Math.sign(delta) * Math.max(1, Math.round(Math.abs(delta) / 40)));
  }

  /** @param {number} delta */
  #scroll(delta) {
    const end = Math.min((this.end ?? this.numKnown) + delta, this.numKnown);
    this.end = end >= this.numKnown ? null : Math.max(end, Math.min(this.page, this.numKnown));
    this.ctx.ui.changes.emit('ui');
  }

  #stick() {
    this.end = null;
    this.ctx.ui.changes.emit('ui');
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey || !this.request) return;
    const last = this.numKnown - 1;
    const here = this.active < 0 ? last : this.active;
    const next = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last }[event.code];
    if (next !== undefined) {
      this.active = Math.min(Math.max(next, 0), last);
      const end = this.end ?? this.numKnown;
      if (this.active >= end) this.end = this.active + 1 >= this.numKnown ? null : this.active + 1;
      else if (this.active < end - this.page + 1) this.end = Math.min(this.active + this.page - 1, this.numKnown);
      this.ctx.ui.hover({ kind: 'token', request: this.request.id, position: this.active });
    } else if ((event.code === 'Enter' || event.code === 'Space') && this.active >= 0) this.choose(this.active);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Pins a token and shows its candidates. @param {number} position */
  choose(position) {
    const { request } = this;
    if (!request) return;
    const selection = /** @type {const} */ ({ kind: 'token', request: request.id, position });
    const same = sameSelection(this.ctx.ui.selection.pinned, selection);
    const chosen = this.ctx.ui.requestId;
    this.ctx.ui.pin(selection);
    if (chosen === null) this.ctx.ui.set({ requestId: null });
    if (same) this.popover.close();
    else this.#showCandidates(request, position);
  }

  /** @param {Request} request @param {number} position */
  #showCandidates(request, position) {
    const { tape } = this.ctx.strings;
    const chip = this.chips.get(position);
    if (!chip) return;
    if (position < request.promptLength) {
      this.popover.close();
      return;
    }
    const candidates = request.candidates.get(position);
    const sampled = this.ctx.log.sampleOf(request.id, position);
    const note = !candidates
      ? tape.candidatesNone
      : sampled?.reason.code === 'forced'
        ? fill(tape.candidatesForced, { letter: request.letter, position })
        : sampled?.reason.code === 'sampled'
          ? fill(tape.candidatesSampled, { letter: request.letter, position, n: sampled.reason.num_considered })
          : fill(tape.candidatesGreedy, { letter: request.letter, position });
    const most = Math.max(...(candidates ?? []).map((candidate) => candidate.probability), 1e-9);
    const { engineListens } = this.actions;
    const branch = (/** @type {number|null} */ tokenId, /** @type {string} */ text, /** @type {string} */ label) =>
      engineListens &&
      h(
        'button',
        {
          type: 'button',
          class: 'small-button candidate-branch',
          'aria-label': label,
          title: label,
          on: {
            click: () => {
              this.popover.close();
              void this.actions.fork(request, position, tokenId);
            },
          },
        },
        text,
      );
    const rows = (candidates ?? []).map((candidate) => {
      const chosen = candidate.token_id === request.tokens[position];
      return h(
        'li',
        { class: chosen ? 'candidate candidate-chosen' : 'candidate' },
        h('span', { class: 'candidate-token' }, tokenText(candidate.piece)),
        h(
          'span',
          { class: 'candidate-bar' },
          h('span', { style: { '--share': (candidate.probability / most).toFixed(4) } }),
        ),
        h('span', { class: 'candidate-share' }, percent(candidate.probability)),
        chosen
          ? h('span', { class: 'candidate-mark' }, tape.chosen)
          : branch(candidate.token_id, tape.branch, fill(tape.branchLabel, { token: quoted(candidate.piece) })),
      );
    });
    this.popover.show(
      chip,
      tape.candidates,
      h('p', { class: 'popover-note' }, note),
      rows.length > 0 && h('ol', { class: engineListens ? 'candidates candidates-branch' : 'candidates' }, rows),
      engineListens &&
        h(
          'div',
          { class: 'column candidate-more' },
          branch(null, tape.branchDraw, tape.branchDraw),
          h('p', { class: 'popover-note' }, fill(tape.branchNote, { position })),
        ),
    );
  }

  /** @param {Scene} scene */
  update(scene) {
    const { ui, log } = this.ctx;
    const request = shownRequest(scene, ui);
    if ((request?.id ?? -1) !== this.requestId || log.logId !== this.logId) {
      this.requestId = request?.id ?? -1;
      this.logId = log.logId ?? '';
      this.end = null;
      this.active = -1;
      this.chips.clear();
    }
    this.request = request;
    const shown = request ? this.#numShown(scene, request) : 0;
    this.numKnown = shown;
    const { width } = this;
    const work = this.#atWork(scene, request);
    const stored = request ? this.#numStored(scene, request) : 0;
    const key = `${request?.id}:${request?.state}:${shown}:${this.end}:${width}:${work.from}-${work.to}:${stored}:${scene.after.requests.size}:${ui.requestId}`;
    if (key !== this.key) {
      this.key = key;
      this.#head(scene, request, shown, stored);
      this.#chips(request, shown, work, stored, width);
    }
    this.#drop(scene, request, shown);
    this.#select(request);
  }

  /** The sampled token is on the tape from the moment it drops. @param {Scene} scene @param {Request} request */
  #numShown(scene, request) {
    if (!scene.step) return request.tokens.length;
    const before = scene.before.requests.get(request.id)?.tokens.length ?? request.tokens.length;
    return scene.progress >= phasesOf(scene.step).sample[0] ? request.tokens.length : before;
  }

  /** @param {Scene} scene @param {Request} request */
  #numStored(scene, request) {
    if (!scene.step) return request.numComputed;
    const hit = scene.step.lookups.some((lookup) => lookup.request_id === request.id) ? request.numHitTokens : 0;
    const before = Math.max(scene.before.requests.get(request.id)?.numComputed ?? 0, hit);
    return scene.progress >= phasesOf(scene.step).layers[1] ? request.numComputed : before;
  }

  /** @param {Scene} scene @param {Request|null} request @returns {{from: number, to: number, decode: boolean}} */
  #atWork(scene, request) {
    const chunk = scene.step?.chunks.find((item) => item.request_id === request?.id);
    if (!chunk || !scene.step || scene.progress >= phasesOf(scene.step).sample[1])
      return { from: -1, to: -1, decode: false };
    return { from: chunk.start, to: chunk.start + chunk.num_tokens, decode: chunk.kind === 'decode' };
  }

  /** @param {Scene} scene @param {Request|null} request @param {number} shown @param {number} stored */
  #head(scene, request, shown, stored) {
    const { tape } = this.ctx.strings;
    if (!request) {
      setText(this.title, tape.none);
      setText(this.counts, '');
      replace(this.switches);
      this.strip.setAttribute('aria-label', tape.none);
      return;
    }
    setText(this.title, fill(tape.request, { letter: request.letter }));
    this.strip.setAttribute('aria-label', fill(tape.label, { letter: request.letter }));
    const made = shown - request.promptLength;
    const parts = [
      request.numHitTokens > 0
        ? fill(tape.countHit, { prompt: request.promptLength, hit: request.numHitTokens })
        : fill(tape.count, { prompt: request.promptLength }),
    ];
    if (made > 0) parts.push(fill(tape.generated, { n: made }));
    if (request.state === 'waiting') parts.push(tape.waiting);
    else if (request.state === 'finished' && !scene.step && request.finish)
      parts.push(fill(tape.ended[request.finish.code], { max: request.maxNewTokens }));
    else if (stored < shown && made > 0) parts.push(request.state === 'finished' ? tape.never : tape.pending);
    setText(this.counts, parts.join(', '));
    this.#switches(scene, request);
  }

  /** @param {Scene} scene @param {Request} shown */
  #switches(scene, shown) {
    const { ui, strings } = this.ctx;
    const all = [...scene.before.requests.values()];
    if (all.length < 2) {
      replace(this.switches);
      return;
    }
    const listed = all.slice(-NUM_SWITCHES);
    const isAway = !listed.some((request) => request.id === shown.id);
    if (isAway)
      listed.splice(0, 1, /** @type {Request} */ (all.find((request) => request.id === shown.id) ?? listed[0]));
    const numHidden = all.length - listed.length;
    replace(
      this.switches,
      numHidden > 0 ? h('span', { class: 'tape-more' }, fill(strings.tape.more, { n: numHidden })) : null,
      listed.map((request) =>
        h(
          'button',
          {
            type: 'button',
            class: 'note tape-switch',
            'aria-pressed': String(request.id === shown.id),
            'aria-label': fill(strings.tape.request, { letter: request.letter }),
            title: request.prompt.slice(0, 80),
            on: { click: () => ui.set({ requestId: ui.requestId === request.id ? null : request.id }) },
          },
          request.letter,
        ),
      ),
    );
  }

  /** @param {Request|null} request @param {number} shown @param {{from: number, to: number, decode: boolean}} work @param {number} stored @param {number} width */
  #chips(request, shown, work, stored, width) {
    const { promptChips, madeChips } = this;
    if (!request) {
      promptChips.replaceChildren();
      madeChips.replaceChildren();
      this.promptGroup.hidden = this.madeGroup.hidden = true;
      this.nowLabel.textContent = '';
      this.older.disabled = this.newer.disabled = true;
      return;
    }
    const end = Math.min(this.end ?? shown, shown);
    const room = Math.ceil(width / MIN_CHIP_PX) + 1;
    const start = Math.max(0, end - room);
    /** @type {Map<number, HTMLElement>} */
    const next = new Map();
    /** @type {HTMLElement[]} */
    const prompt = [];
    /** @type {HTMLElement[]} */
    const made = [];
    for (let position = start; position < end; position++) {
      const chip = this.chips.get(position) ?? this.#chip(request, position);
      const isWork = position >= work.from && position < work.to;
      const looks = `chip${position < request.promptLength ? '' : ' chip-made'}${position >= stored && !isWork ? ' chip-pending' : ''}${isWork ? (work.decode ? ' chip-now' : ' chip-work') : ''}`;
      if (chip.className !== looks) chip.className = looks;
      const label = /** @type {HTMLElement} */ (chip.lastElementChild);
      setText(label, position % 5 === 0 || position === end - 1 ? String(position) : '');
      label.classList.toggle('chip-tenth', position % 10 === 0 || position === end - 1);
      next.set(position, chip);
      (position < request.promptLength ? prompt : made).push(chip);
    }
    this.chips = next;
    arrange(promptChips, this.#joined(request, prompt));
    arrange(madeChips, this.#joined(request, made));
    this.promptGroup.hidden = prompt.length === 0;
    this.madeGroup.hidden = made.length === 0;
    this.nowLabel.textContent = this.end === null && work.decode ? this.ctx.strings.tape.now : '';
    const { visible, promptRoom, madeRoom } = this.#estimate(request, start, end, width);
    this.promptGroup.classList.toggle('tape-short', promptRoom < MIN_LABEL_PX);
    this.madeGroup.classList.toggle('tape-short', madeRoom < MIN_LABEL_PX);
    this.page = Math.max(4, visible);
    this.older.disabled = start === 0 && visible >= end;
    this.newer.disabled = this.end === null;
  }

  /** The number of visible chips and the width of the prompt's, computed without a browser layout.
   * @param {Request} request @param {number} start @param {number} end @param {number} width */
  #estimate(request, start, end, width) {
    let used = 0;
    let visible = 0;
    let made = 0;
    for (let position = end - 1; position >= start && used <= width; position--) {
      used += this.#chipWidth(request, position);
      if (used <= width) visible++;
      if (position >= request.promptLength) made = used;
    }
    return { visible, promptRoom: Math.min(used, width) - made, madeRoom: made };
  }

  /** @param {Request} request @param {number} position */
  #chipWidth(request, position) {
    const piece = request.pieces[position];
    const text = (piece.kind === 'bytes' ? piece.hex : piece.text) ?? '';
    return Math.max(MIN_CHIP_PX, Math.min(text.length, MAX_CHARS) * this.charPx + CHIP_PADDING_PX) + 2;
  }

  /** @param {Request} request @param {number} position */
  #chip(request, position) {
    const piece = request.pieces[position];
    return h(
      'span',
      { class: 'chip', role: 'option', id: `token-${position}`, 'aria-selected': 'false', data: { position } },
      h('span', { class: 'chip-box' }, tokenText(piece)),
      h('span', { class: 'fine-note chip-position', 'aria-hidden': 'true' }),
    );
  }

  /** Tokens that form one character share a bracket with the character.
   * @param {Request} request @param {HTMLElement[]} chips @returns {HTMLElement[]} */
  #joined(request, chips) {
    /** @type {HTMLElement[]} */
    const out = [];
    for (const chip of chips) {
      out.push(chip);
      const piece = request.pieces[Number(chip.dataset.position)];
      const joins = piece?.joins ?? 0;
      if (piece?.kind !== 'bytes' || joins < 1) continue;
      const group = out.splice(Math.max(0, out.length - joins));
      out.push(h('span', { class: 'chip-join' }, group, h('span', { class: 'chip-char' }, h('bdi', {}, piece.text))));
    }
    return out;
  }

  /** @param {Scene} scene @param {Request|null} request @param {number} shown */
  #drop(scene, request, shown) {
    const newest =
      scene.step && request && scene.before.requests.get(request.id)?.tokens.length !== shown
        ? this.chips.get(shown - 1)
        : undefined;
    if (this.dropping && this.dropping !== newest) this.dropping.style.removeProperty('--drop');
    this.dropping = newest;
    if (!newest || !scene.step || this.ctx.timeline.reducedMotion) return;
    const at = within(phasesOf(scene.step).sample, scene.progress);
    newest.style.setProperty('--drop', (1 - Math.min(1, at * 1.6)).toFixed(3));
  }

  /** @param {Request|null} request */
  #select(request) {
    const { shown } = this.ctx.ui;
    const position = shown && 'position' in shown && shown.request === request?.id ? shown.position : -1;
    const chip = this.chips.get(position) ?? null;
    if (chip === this.marked) return;
    this.marked?.classList.remove('chip-selected');
    this.marked?.setAttribute('aria-selected', 'false');
    chip?.classList.add('chip-selected');
    chip?.setAttribute('aria-selected', 'true');
    if (chip) this.strip.setAttribute('aria-activedescendant', chip.id);
    else this.strip.removeAttribute('aria-activedescendant');
    this.marked = chip;
  }
}

/** Makes `children` the children of `parent` with as few moves as possible. @param {HTMLElement} parent @param {HTMLElement[]} children */
function arrange(parent, children) {
  const keep = new Set(children);
  for (const child of [...parent.children]) if (!keep.has(/** @type {HTMLElement} */ (child))) child.remove();
  let at = parent.firstElementChild;
  for (const child of children) {
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
  }
}
