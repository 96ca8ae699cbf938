/** Each lane in a figure and two lines: its cost compared with the reference, and its effect on the text. */
import { h, replace, setText } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { leadsOf } from './lane-lead.js';
import { laneMark } from './lane-mark.js';
import { badgeOf, harmOf } from './text.js';
/** @import { Lanes } from './model.js' */
/** @typedef {{value: HTMLElement, unit: HTMLElement, detail: HTMLElement, badge: HTMLElement, harm: HTMLElement, needle: HTMLElement, first: HTMLButtonElement}} Cells */

const t = texts.compare.summary;

export class CompareSummary {
  key = '';
  /** @type {Cells[]} */
  cells = [];
  /** First difference of each lane, for the buttons. @type {(number|null)[]} */
  firsts = [];

  /** @param {(lane: number, index: number) => void} onFirst called to show a first difference */
  constructor(onFirst) {
    this.onFirst = onFirst;
    this.root = h('ul', { class: 'compare-summary', 'aria-label': t.label });
  }

  /** @param {Lanes} lanes */
  update(lanes) {
    if (lanes.key !== this.key) this.#build(lanes);
    this.key = lanes.key;
    const leads = leadsOf(lanes.lanes);
    lanes.lanes.forEach((lane, i) => {
      const { value, unit, detail, badge, harm, needle, first } = this.cells[i];
      const { kind, text } = badgeOf(lane);
      setText(value, leads[i].value);
      setText(unit, leads[i].unit);
      setText(detail, leads[i].detail);
      setText(badge, text);
      const name = `lane-badge lane-badge-${kind}`;
      if (badge.className !== name) badge.className = name;
      setText(harm, harmOf(lane));
      this.#needle(needle, lane);
      const at = kind === 'lossy' ? (lane.figures?.first_divergence ?? null) : null;
      this.firsts[i] = at;
      first.hidden = at === null;
      setText(first, at === null ? '' : fill(t.first, { n: at }));
    });
  }

  /** @param {HTMLElement} element @param {import('./model.js').Lane} lane */
  #needle(element, { needle }) {
    element.hidden = !needle;
    if (!needle) return;
    setText(element, needle.found ? t.found : t.lost);
    const name = needle.found ? 'needle-found' : 'needle-lost';
    if (element.className !== name) element.className = name;
  }

  /** @param {Lanes} lanes */
  #build({ lanes }) {
    this.root.style.setProperty('--lanes', String(lanes.length));
    this.firsts = lanes.map(() => null);
    this.cells = lanes.map(({ header }, i) => ({
      value: h('span', { class: 'summary-value' }),
      unit: h('span', { class: 'summary-unit' }),
      detail: h('div', { class: 'summary-detail' }),
      badge: h('span', { class: 'lane-badge' }),
      harm: h('span', {}),
      needle: h('span', { hidden: true }),
      first: h('button', {
        type: 'button',
        class: 'plain-button summary-first',
        hidden: true,
        title: fill(t.firstHint, { lane: header.spec }),
        on: { click: () => this.#show(i) },
      }),
    }));
    replace(
      this.root,
      lanes.map((lane, i) => {
        const { value, unit, detail, badge, harm, needle, first } = this.cells[i];
        return h(
          'li',
          {
            class: lane.index > 0 && !lane.header.exact ? 'summary-lane summary-lossy' : 'summary-lane',
            data: { lane: i },
          },
          h(
            'div',
            { class: 'clip summary-name', title: lane.header.about },
            laneMark(lane.index),
            h('strong', {}, lane.title),
            h('code', { class: 'small-note' }, lane.header.spec),
          ),
          h('div', { class: 'summary-cost' }, value, ' ', unit),
          detail,
          h('div', { class: 'summary-harm' }, needle, badge, ' ', harm, ' ', first),
        );
      }),
    );
  }

  /** @param {number} lane */
  #show(lane) {
    const at = this.firsts[lane];
    if (at !== null) this.onFirst(lane, at);
  }
}
