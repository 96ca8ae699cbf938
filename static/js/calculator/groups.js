/** The groups of layers as a table: cached tokens, bytes of one more token, and total bytes. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, replace } from '../ui/dom.js';
import { binary, count, decimal, fill } from '../ui/format.js';
import { headOf } from '../ui/table.js';
import { typeText } from './formula.js';
import { exact } from './units.js';
/** @import { Answer } from './types.d.ts' */

const SIZES = /** @type {const} */ ([
  'bytes_per_token',
  'marginal_bytes_per_token',
  'total_bytes',
  'total_bytes_blocks',
]);

export class GroupsTable {
  constructor() {
    this.body = h('tbody');
    this.caption = h('caption', { class: 'strong calc-sub' });
    this.element = h(
      'section',
      { class: 'calc-groups' },
      h(
        'div',
        { class: 'calc-scroll', tabindex: '0', role: 'region', 'aria-label': t.groups.title },
        h(
          'table',
          { class: 'figures-table calc-table' },
          this.caption,
          headOf([t.groups.group, t.groups.kept, ...SIZES.map((name) => t.groups.sizes[name])]),
          this.body,
        ),
      ),
    );
  }

  /** @param {Answer} answer */
  update({ settings, models: [model] }) {
    this.caption.textContent = fill(t.groups.caption, {
      context: count(settings.context),
      batch: count(settings.batch),
      size: count(settings.block_size),
    });
    const rows = model.layer_groups.map((group) =>
      row(
        fill(t.groups.name, {
          layers: count(group.layers),
          type: typeText(group),
          heads:
            group.type === 'mla_latent'
              ? ''
              : fill(group.kv_heads === 1 ? t.groups.head : t.groups.heads, { n: count(group.kv_heads) }),
        }),
        count(group.kept_tokens),
        SIZES.map((name) => group[name]),
      ),
    );
    replace(
      this.body,
      rows,
      row(
        t.groups.all,
        '',
        SIZES.map((name) => model[name]),
        'calc-total',
      ),
    );
    const state = model.fixed_state;
    if (state)
      this.body.append(
        row(
          fill(t.groups.state, {
            layers: count(state.layers),
            type: t.groups.states[/** @type {keyof typeof t.groups.states} */ (state.type)] ?? state.type,
          }),
          '',
          [null, null, state.total_bytes, null],
          'calc-apart',
        ),
      );
  }
}

/** @param {string} name @param {string} kept @param {(number|null)[]} sizes @param {string} [className] */
function row(name, kept, sizes, className) {
  return h(
    'tr',
    { class: className },
    h('th', { scope: 'row' }, name),
    h('td', {}, kept),
    sizes.map((size) =>
      h(
        'td',
        {},
        size !== null && [
          h('span', {}, binary(size)),
          size >= 1000 && h('span', { class: 'fine-note calc-exact' }, decimal(size)),
          size >= 1000 && h('span', { class: 'fine-note calc-exact' }, exact(size)),
        ],
      ),
    ),
  );
}
