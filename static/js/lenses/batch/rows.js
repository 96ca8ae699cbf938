/** The text and buttons of each row of the batch lens: the prompt, cancel, priority, and its times. */
import { letterOf } from '../../core/state.js';
import { h, icon, PATHS, setAttribute, setText } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { clip } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
import { latencyOf } from './latency.js';
import { restText, time } from './text.js';
/** @import { Ctx } from '../../core/types.d.ts' */
/** @import { BatchModel, BatchRequest } from './model.js' */
/** @import { BatchSpace } from './space.js' */

const t = texts.batch;
const PLUS = 'M7 3h2v4h4v2H9v4H7V9H3V7h4z';

/** @typedef {{root: HTMLElement, name: HTMLButtonElement, note: HTMLElement, controls: HTMLElement, less: HTMLButtonElement, priority: HTMLElement, more: HTMLButtonElement, cancel: HTMLButtonElement,
 *   first: HTMLElement, rest: HTMLElement, key: string}} Row */

export class BatchRows {
  /** @param {HTMLElement} root @param {Ctx} ctx @param {(id: number) => void} onSelect @param {(message: string) => void} onProblem */
  constructor(root, ctx, onSelect, onProblem) {
    this.root = root;
    this.ctx = ctx;
    this.onSelect = onSelect;
    this.onProblem = onProblem;
    /** @type {Map<number, Row>} */
    this.rows = new Map();
  }

  /** @param {BatchModel} model @param {readonly BatchRequest[]} requests @param {BatchSpace} space @param {boolean} listens an engine takes commands */
  update(model, requests, space, listens) {
    const keep = new Set(requests.map((request) => request.id));
    for (const [id, row] of this.rows) {
      if (keep.has(id)) continue;
      row.root.remove();
      this.rows.delete(id);
    }
    this.root.style.height = `${requests.length * space.rowHeight}px`;
    requests.forEach((request, index) => {
      let row = this.rows.get(request.id);
      if (!row) {
        this.rows.set(request.id, (row = this.#row(request)));
        this.root.append(row.root);
      }
      this.#fill(row, model, request, index, space, listens);
    });
  }

  /** @param {BatchRequest} request @returns {Row} */
  #row(request) {
    const { id, letter } = request;
    const button = (/** @type {string} */ path, /** @type {string} */ label, /** @type {() => void} */ click) =>
      h(
        'button',
        {
          type: 'button',
          class: 'batch-button',
          'aria-label': fill(label, { letter }),
          title: fill(label, { letter }),
          on: { click },
        },
        icon(path),
      );
    const priority = h('span', { class: 'batch-priority' });
    const prompt = request.prompt.replace(/\s+/g, ' ').trim();
    const row = {
      name: h(
        'button',
        { type: 'button', class: 'clip batch-name', title: clip(prompt, 400), on: { click: () => this.onSelect(id) } },
        h('span', { class: 'visually-hidden' }, fill(t.request, { letter })),
        h('span', { dir: 'auto' }, prompt === '' ? fill(t.noPrompt, { n: request.promptLength }) : clip(prompt, 120)),
      ),
      note: h(
        'span',
        { class: 'clip batch-note' },
        request.fork ? fill(t.branch, { letter: letterOf(request.fork.parent), position: request.fork.position }) : '',
      ),
      less: button(
        PATHS.dash,
        t.sooner,
        () => void this.#send({ command: 'set_priority', request_id: id, priority: request.priority - 1 }),
      ),
      priority,
      more: button(
        PLUS,
        t.later,
        () => void this.#send({ command: 'set_priority', request_id: id, priority: request.priority + 1 }),
      ),
      cancel: button(PATHS.cross, t.cancel, () => void this.#send({ command: 'cancel', request_id: id })),
      first: h('span', { class: 'clip batch-first' }),
      rest: h('span', { class: 'clip batch-rest' }),
      key: '',
    };
    const controls = h('span', { class: 'batch-controls' }, row.less, priority, row.more, row.cancel);
    const root = h(
      'div',
      { class: 'small-note batch-row' },
      h('div', { class: 'batch-label' }, row.name, row.note, controls),
      row.first,
      row.rest,
    );
    return { ...row, root, controls };
  }

  /** @param {Row} row @param {BatchModel} model @param {BatchRequest} request @param {number} index @param {BatchSpace} space @param {boolean} listens */
  #fill(row, model, request, index, space, listens) {
    const { pinned } = this.ctx.ui.selection;
    const selected = pinned !== null && 'request' in pinned && pinned.request === request.id;
    const key = `${index}:${space.rowHeight}:${space.width}:${listens}:${request.end}:${request.priority}:${request.numSettled}:${selected}:${model.log.header?.scheduler.order}`;
    if (key === row.key) return;
    row.key = key;
    const { style } = row.root;
    style.top = `${index * space.rowHeight}px`;
    style.height = `${space.rowHeight}px`;
    for (const [name, value] of Object.entries(placesOf(space))) style.setProperty(name, value);
    row.root.classList.toggle('batch-row-two', space.wide && space.rowHeight >= space.em * 3.9);
    setAttribute(row.name, 'aria-pressed', String(selected));
    row.controls.hidden = !listens || request.end !== null;
    setText(row.priority, fill(t.priorityShort, { n: request.priority }).replace('-', '−'));
    row.priority.title =
      model.log.header?.scheduler.order === 'priority' ? fill(t.priorityHint, { n: request.priority }) : t.priorityIdle;
    const latency = latencyOf(model, request);
    const first =
      latency.firstUs === null
        ? request.end
          ? t.none
          : request.numSettled > 0
            ? t.unknown
            : t.notYet
        : time(latency.firstUs);
    setText(row.first, space.wide ? first : fill(t.firstShort, { time: first }));
    setText(row.rest, restText(latency));
  }

  /** @param {import('../../core/types.d.ts').Command} command */
  async #send(command) {
    try {
      await this.ctx.send(command);
      this.onProblem('');
    } catch (error) {
      this.onProblem(/** @type {Error} */ (error).message);
    }
  }
}

/** @param {BatchSpace} space @returns {Record<string, string>} custom properties of a row */
export function placesOf(space) {
  const px = (/** @type {number} */ value) => `${Math.round(value)}px`;
  const badge = space.em * 1.8 + (space.wide ? 16 : 8);
  return {
    '--label-left': px(space.wide ? badge : space.x + badge),
    '--label-width': px(space.wide ? space.label - badge : space.width - 2 * space.x - badge),
    '--first-left': px(space.latency ? space.latency.x : space.x),
    '--first-width': px(space.latency ? space.latency.firstWidth : space.em * 10),
    '--rest-left': px(space.latency ? space.latency.restX : space.x + space.em * 10.5),
    '--rest-width': px(space.latency ? space.latency.restWidth : space.width - 2 * space.x - space.em * 10.5),
    '--label-height': px(space.wide ? space.rowHeight : space.labelHeight),
    '--bar-bottom': px(space.barTop + space.barHeight),
  };
}
