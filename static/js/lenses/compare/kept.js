/** The share of entries that each forgetting lane keeps, with a link to its own log, where every dropped entry is visible. */
import { h, replace, setText } from '../../ui/dom.js';
import { fill, percent } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { laneMark } from './lane-mark.js';
/** @import { Lanes } from './model.js' */

const t = texts.compare.kept;

export class CompareKept {
  key = '';
  /** @type {{lane: number, text: HTMLElement, bar: HTMLElement}[]} */
  rows = [];

  constructor() {
    this.list = h('ul', {});
    this.root = h('section', { class: 'compare-kept', hidden: true }, h('h2', {}, t.title), this.list);
  }

  /** @param {Lanes} lanes @param {string} sessionId */
  update({ lanes }, sessionId) {
    const forgetting = lanes.filter((lane) => lane.figures && lane.figures.kept_share < 1);
    this.root.hidden = forgetting.length === 0;
    const key = `${sessionId}/${forgetting.map((lane) => lane.header.spec).join()}`;
    if (key !== this.key) this.#build(forgetting, sessionId);
    this.key = key;
    for (const { lane, text, bar } of this.rows) {
      const share = lanes[lane].figures?.kept_share ?? 1;
      setText(text, fill(t.one, { lane: lanes[lane].header.spec, percent: percent(share) }));
      bar.style.setProperty('--kept', `${(share * 100).toFixed(1)}%`);
    }
  }

  /** @param {readonly import('./model.js').Lane[]} lanes @param {string} sessionId */
  #build(lanes, sessionId) {
    this.rows = lanes.map((lane) => ({
      lane: lane.index,
      text: h('span', {}),
      bar: h('span', { class: 'kept-bar', 'aria-hidden': 'true' }),
    }));
    replace(
      this.list,
      this.rows.map(({ lane, text, bar }) =>
        h(
          'li',
          {},
          laneMark(lane),
          bar,
          text,
          ' ',
          h('a', { href: `?session=${encodeURIComponent(`${sessionId}.${lane}`)}&lens=cache` }, t.link),
        ),
      ),
    );
  }
}
