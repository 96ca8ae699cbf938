/** The word hidden in the prompt, and each lane's own answer to the question for it. */
import { h, replace } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { clip } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
import { laneMark } from './lane-mark.js';
/** @import { Lanes } from './model.js' */

const t = texts.compare.needle;
const MAX_ANSWER = 160;

export class CompareNeedle {
  key = '';

  constructor() {
    this.root = h('section', { class: 'compare-needle', hidden: true });
  }

  /** @param {Lanes} lanes */
  update({ lanes }) {
    const any = lanes.find((lane) => lane.needle)?.needle;
    this.root.hidden = !any;
    const key = JSON.stringify(lanes.map((lane) => [lane.header.spec, lane.needle]));
    if (!any || key === this.key) return;
    this.key = key;
    replace(
      this.root,
      h('h2', {}, t.title),
      h('p', { class: 'fine-note compare-note' }, fill(t.word, { word: any.word })),
      h(
        'ul',
        {},
        lanes.map(({ index, header, needle }) =>
          h(
            'li',
            {},
            laneMark(index),
            h('code', {}, header.spec),
            ' ',
            needle
              ? [
                  h(
                    'strong',
                    { class: needle.found ? 'needle-found' : 'needle-lost' },
                    `${needle.found ? '✓' : '✗'} ${needle.found ? t.found : t.lost}`,
                  ),
                  h('q', { dir: 'auto' }, clip(needle.answer.trim(), MAX_ANSWER)),
                ]
              : h('span', { class: 'fine-note compare-note' }, t.pending),
          ),
        ),
      ),
    );
  }
}
