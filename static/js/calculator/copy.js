/** Copies the answer as text, CSV or JSON, or the link that opens it again. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { h, setText } from '../ui/dom.js';
import { count, fill } from '../ui/format.js';
import { toCsv } from '../ui/plot-table.js';
import { MAX_LINK } from './state.js';
import { both, dollars, exact, rate } from './units.js';
/** @import { Answer, Reply } from './types.d.ts' */
/** @typedef {'text'|'csv'|'json'|'link'} Format */

const FORMATS = /** @type {Format[]} */ (['link', 'text', 'csv', 'json']);
const SIZES = /** @type {const} */ ([
  'bytes_per_token',
  'marginal_bytes_per_token',
  'total_bytes',
  'total_bytes_blocks',
  'total_bytes_window_ignored',
  'uncompressed_bytes_per_token',
  'indexer_bytes_per_token',
]);
const FOUND = /** @type {const} */ ([
  'usable_bytes',
  'weight_bytes',
  'overhead_bytes',
  'kv_budget_bytes',
  'bytes_per_sequence',
  'bytes_per_further_sequence',
  'shared_prefix_bytes',
  'fixed_state_bytes',
  'batch_bytes',
  'kv_heads_per_gpu',
  'copies',
  'max_sequences',
  'max_sequences_without_prefix',
  'tokens',
  'longest_context',
  'tokens_per_s',
  'cost_per_million_tokens',
]);

/** Browsers reject more than a hundred changes of the URL in half a minute. */
const ADDRESS_MS = 350;

/** @param {Reply[]} replies @returns {Answer[]} */
function answersOf(replies) {
  return replies.flatMap(({ answer }) => (answer ? [answer] : []));
}

/** @param {Reply[]} replies @returns {string} as the server answers all of them at once */
function jsonOf(replies) {
  const answers = answersOf(replies);
  return `${JSON.stringify({ settings: answers[0]?.settings, machine: answers[0]?.machine, models: answers.map((answer) => answer.models[0]) }, null, 1)}\n`;
}

/** A row per model and a column per setting and figure, named as in the API. @param {Reply[]} replies @returns {string} */
function csvOf(replies) {
  const answers = answersOf(replies);
  const settings = /** @type {(keyof import('./types.d.ts').Settings)[]} */ (Object.keys(answers[0]?.settings ?? {}));
  const rows = answers.map(({ settings: asked, models: [model] }) => [
    model.name,
    model.kind,
    ...settings.map((name) => asked[name]),
    ...SIZES.map((name) => model[name]),
    model.fixed_state?.total_bytes ?? null,
    ...FOUND.map((name) => model.capacity?.[name] ?? null),
  ]);
  return toCsv({
    caption: '',
    headers: ['name', 'kind', ...settings, ...SIZES, 'fixed_state_total_bytes', ...FOUND],
    rows,
  });
}

/** The answer in sentences. @param {Reply[]} replies @param {string} link @returns {string} */
export function textOf(replies, link) {
  const parts = answersOf(replies).map(({ settings, machine, models: [model] }) => {
    const lines = [
      model.name,
      fill(t.copy.total, {
        tokens: count(settings.context),
        batch: count(settings.batch),
        dtype: settings.dtype,
        both: both(model.total_bytes),
        exact: exact(model.total_bytes),
      }),
      fill(t.copy.token, { both: both(model.bytes_per_token), exact: exact(model.bytes_per_token) }),
      ...model.layer_groups.map((group) => group.formula.text),
    ];
    const found = model.capacity;
    if (machine && found) {
      lines.push(
        fill(t.copy.fits, {
          gpus: count(settings.gpus),
          card: machine.name,
          n: count(found.max_sequences),
          longest: found.longest_context === null ? t.head.unbounded : count(found.longest_context),
        }),
      );
      if (found.tokens_per_s !== null)
        lines.push(
          fill(t.copy.speed, { n: rate(found.tokens_per_s) }) +
            (found.cost_per_million_tokens === null
              ? ''
              : fill(t.copy.cost, { cost: dollars(found.cost_per_million_tokens) })),
        );
    }
    return lines.join('\n');
  });
  return `${[...parts, link].filter(Boolean).join('\n\n')}\n`;
}

export class CopyBar {
  /** @type {number|undefined} */
  #writing;

  /** @param {() => Reply[]} replies @param {(text: string) => void} say */
  constructor(replies, say) {
    this.replies = replies;
    this.say = say;
    this.link = location.href;
    this.note = h('p', { class: 'fine-note calc-hint', role: 'status', hidden: true });
    this.buttons = FORMATS.map((format) =>
      h(
        'button',
        {
          type: 'button',
          class: 'small-button',
          data: { format },
          title: t.copy.hints[format],
          'aria-label': t.copy.hints[format],
          on: { click: () => void this.#copy(format) },
        },
        t.copy.names[format],
      ),
    );
    this.element = h(
      'div',
      { class: 'cluster calc-copy', role: 'group', 'aria-label': t.copy.label },
      h('span', { class: 'fine-note calc-hint' }, t.copy.label),
      this.buttons,
    );
  }

  /** Writes the state to the URL, or reports that it doesn't fit. @param {string} query */
  address(query) {
    const url = new URL(query, location.href);
    const fits = url.href.length <= MAX_LINK;
    this.link = fits ? url.href : '';
    clearTimeout(this.#writing);
    if (fits) this.#writing = setTimeout(() => history.replaceState(null, '', url), ADDRESS_MS);
    setText(this.note, fits ? '' : fill(t.copy.tooLong, { n: count(url.href.length), max: count(MAX_LINK) }));
    this.note.hidden = fits;
    this.buttons[0].disabled = !fits;
  }

  /** @param {Format} format */
  async #copy(format) {
    const replies = this.replies();
    const text = {
      link: () => this.link,
      text: () => textOf(replies, this.link),
      csv: () => csvOf(replies),
      json: () => jsonOf(replies),
    }[format]();
    const done = await copied(text);
    const button = this.buttons[FORMATS.indexOf(format)];
    this.say(fill(done ? t.copy.done : t.copy.failed, { what: t.copy.names[format] }));
    button.classList.toggle('is-done', done);
    setTimeout(() => button.classList.remove('is-done'), 1500);
  }
}

/** Without a secure context there is no clipboard, but a selection can be copied. @param {string} text @returns {Promise<boolean>} */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h('textarea', { class: 'visually-hidden', 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    const before = document.activeElement;
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    if (before instanceof HTMLElement) before.focus();
    return done;
  }
}
