/** The shapes of the states, drawn as in the rows. */
import { h } from '../../ui/dom.js';
import { texts } from '../shared/texts.js';

export function batchLegend() {
  const t = texts.batch.legend;
  const key = (/** @type {string} */ name, /** @type {string} */ text) =>
    h(
      'span',
      { class: 'lens-key' },
      h('span', { class: `batch-swatch batch-swatch-${name}`, 'aria-hidden': 'true' }, name === 'swapped' ? '⇅' : ''),
      text,
    );
  return h(
    'div',
    { class: 'cluster lens-legend' },
    key('waiting', t.waiting),
    key('prefill', t.prefill),
    key('decode', t.decode),
    key('held', t.held),
    key('preempted', t.preempted),
    key('swapped', t.swapped),
  );
}
