/** The form that starts a comparison: presets, or lanes chosen one by one. The engine provides the menus. */
import { h, replace } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { LanePicker } from './lane-picker.js';
import { MAX_LANES, presetsOf, referenceOf } from './presets.js';
/** @import { Ctx, LaneChoice } from '../../core/types.d.ts' */

const t = texts.compare.setup;
const MAX_TOKENS = 512;

export class CompareSetup {
  /** @type {LanePicker[]} */
  pickers = [];
  /** What the form was built from. */
  key = '';
  busy = false;

  /** @param {Ctx} ctx @param {() => void} onStart */
  constructor(ctx, onStart) {
    this.ctx = ctx;
    this.onStart = onStart;
    this.prompt = h('textarea', { id: 'compare-prompt', rows: '3', spellcheck: 'false', dir: 'auto' });
    this.prompt.value = t.promptDefault;
    this.tokens = h('input', {
      type: 'number',
      id: 'compare-tokens',
      min: 2,
      max: MAX_TOKENS,
      step: 1,
      required: true,
      inputmode: 'numeric',
    });
    this.tokens.value = '48';
    this.lanes = h('div', { class: 'lane-pickers' });
    this.add = h('button', { type: 'button', class: 'secondary', on: { click: () => this.#add() } }, t.add);
    this.message = h('p', { class: 'form-message form-error', role: 'status' });
    this.root = h('div', { class: 'fields compare-setup' });
  }

  update() {
    const { header } = this.ctx.log;
    const choices = header?.lane_choices ?? [];
    const listens = header?.capabilities.includes('commands') ?? false;
    const key = `${header?.lane?.index}/${listens}/${JSON.stringify(choices.map((choice) => choice.name))}`;
    if (key === this.key) return;
    this.key = key;
    if (header?.lane) this.#isLane(header.lane);
    else if (listens && choices.length > 0) this.#build(choices);
    else this.#nothing(listens);
  }

  /** The log of one lane has nothing to compare; the comparison's log has. @param {import('../../core/types.d.ts').LaneHeader} lane */
  #isLane(lane) {
    replace(
      this.root,
      h('p', { class: 'lens-empty-title' }, fill(t.isLane, { index: lane.index, spec: lane.spec })),
      h('p', {}, t.isLaneLong),
      h(
        'a',
        { class: 'primary', href: `?session=${encodeURIComponent(this.ctx.log.comparisonId)}&lens=compare` },
        t.toComparison,
      ),
    );
  }

  /** @param {boolean} listens */
  #nothing(listens) {
    const { ui } = this.ctx;
    replace(
      this.root,
      h('p', { class: 'lens-empty-title' }, t.noEngine),
      h('p', {}, listens ? t.noChoices : t.noEngineLong),
      h('button', { type: 'button', class: 'primary', on: { click: () => ui.set({ drawerOpen: true }) } }, t.open),
    );
  }

  /** @param {LaneChoice[]} choices */
  #build(choices) {
    const reference = referenceOf(choices);
    this.pickers = [];
    replace(this.lanes);
    const form = h(
      'form',
      {
        class: 'compare-form',
        on: {
          submit: (/** @type {Event} */ event) => {
            event.preventDefault();
            void this.#own();
          },
        },
      },
      h('h3', {}, t.own),
      h(
        'div',
        { class: 'compare-fields' },
        h('div', { class: 'field' }, h('label', { for: 'compare-prompt' }, t.prompt), this.prompt),
        h('div', { class: 'field' }, h('label', { for: 'compare-tokens' }, t.tokens), this.tokens),
      ),
      this.lanes,
      h('div', { class: 'cluster buttons' }, this.add, h('button', { type: 'submit', class: 'primary' }, t.run)),
      this.message,
    );
    replace(
      this.root,
      h('h2', {}, t.title),
      h('p', { class: 'compare-lead' }, t.lead),
      h('h3', {}, t.presets),
      h(
        'div',
        { class: 'compare-presets' },
        presetsOf(choices).map((preset) => {
          const [title, note] = t.preset[preset.name];
          return h(
            'button',
            {
              type: 'button',
              class: 'column preset',
              data: { preset: preset.name },
              on: {
                click: () =>
                  void this.#start(
                    preset.lanes,
                    preset.needle ? '' : this.prompt.value,
                    preset.maxNewTokens,
                    preset.needle,
                  ),
              },
            },
            h('strong', {}, title),
            h('span', {}, note),
          );
        }),
      ),
      form,
    );
    this.#add(reference);
    const other =
      choices.find((choice) => choice.name === 'int4') ?? choices.find((choice) => choice.name !== reference);
    this.#add(other?.name ?? reference);
  }

  /** @param {string} [name] */
  #add(name) {
    const choices = this.ctx.log.header?.lane_choices ?? [];
    const place = this.pickers.length;
    if (place >= MAX_LANES) return;
    const next =
      name ??
      choices.find((choice) => !this.pickers.some((picker) => picker.spec.split(/[=,+]/)[0] === choice.name))?.name ??
      choices[0].name;
    const picker = new LanePicker(
      place === 0 ? choices.filter((choice) => choice.name === next) : choices,
      next,
      place,
      place < 2 ? null : () => this.#remove(picker),
    );
    this.pickers.push(picker);
    this.lanes.append(picker.root);
    this.add.disabled = this.pickers.length >= MAX_LANES;
    if (name === undefined) picker.first.select.focus();
  }

  /** @param {LanePicker} picker */
  #remove(picker) {
    this.pickers = this.pickers.filter((one) => one !== picker);
    picker.root.remove();
    this.pickers.forEach((one, place) => one.place(place));
    this.add.disabled = false;
    this.add.focus();
  }

  async #own() {
    if (!this.tokens.checkValidity()) {
      this.tokens.reportValidity();
      return;
    }
    await this.#start(
      this.pickers.map((picker) => picker.spec),
      this.prompt.value,
      Number(this.tokens.value),
      false,
    );
  }

  /** @param {string[]} lanes @param {string} prompt @param {number} maxNewTokens @param {boolean} needle */
  async #start(lanes, prompt, maxNewTokens, needle) {
    if (this.busy) return;
    this.busy = true;
    this.message.textContent = t.running;
    this.message.classList.remove('alert', 'form-error');
    const { ctx } = this;
    try {
      await ctx.send({
        command: 'start',
        config: { lanes },
        requests: [{ prompt, max_new_tokens: maxNewTokens, ...(needle ? { needle: true } : {}) }],
      });
      ctx.ui.clear();
      ctx.ui.set({ requestId: null });
      ctx.timeline.pin(false);
      await ctx.run();
      this.message.textContent = '';
      this.onStart();
    } catch (error) {
      this.message.classList.add('alert', 'form-error');
      this.message.textContent = /** @type {Error} */ (error).message;
      this.message.scrollIntoView({ block: 'nearest' });
    } finally {
      this.busy = false;
    }
  }
}
