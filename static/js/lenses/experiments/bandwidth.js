/**
 * The bandwidth experiment: the bytes that a decode step must read, and so its maximum speed on a chosen GPU, for this
 * run's model and three large ones. All figures come from the server (kvviz/calculator); the page only draws them.
 */
import { experiments } from '../../strings/experiments.js';
import { ask, reasonOf } from '../../ui/ask.js';
import { h, replace, setText } from '../../ui/dom.js';
import { count, fill, makersBytes, percent, three } from '../../ui/format.js';
import { Plot } from '../../ui/plot.js';
import { readChart, speedChart } from './bandwidth-charts.js';
import { speed, time } from './bandwidth-figures.js';
/** @import { Ctx, Scene } from '../../core/types.d.ts' */
/** @import { Bandwidth, ModelBound, Measured } from './bandwidth-charts.js' */

const t = experiments.bandwidth;
const HERE = 'here';
const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const MAX_MEASURED = 400;

/** The last choices, kept for the next visit. */
const chosen = { card: 'h100', dtype: 'bf16', batch: 1, model: 'llama-3.1-8b', context: 65_536 };

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new BandwidthView(root, ctx);
}

class BandwidthView {
  /** @type {Bandwidth|null} */
  data = null;
  /** The last request to the server, which `data` answers. */
  asked = '';
  answered = '';
  /** What is drawn. */
  drawn = '';
  step = 0;
  alive = true;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    this.card = select((value) => this.#choose({ card: value }));
    this.dtype = select((value) => this.#choose({ dtype: value }));
    this.batch = select((value) => this.#choose({ batch: Number(value) }));
    this.model = select((value) => this.#choose({ model: value }));
    this.context = h('input', {
      type: 'range',
      id: 'bandwidth-context',
      min: 0,
      step: 1,
      class: 'exp-range',
      on: { input: () => this.#slide() },
    });
    this.contextOut = h('output', { class: 'exp-range-out' });
    this.status = h('p', { class: 'exp-status', role: 'status' }, t.loading);
    this.readTitle = h('h3', { class: 'exp-chart-title' });
    this.speedTitle = h('h3', { class: 'exp-chart-title' });
    const onPick = (/** @type {number} */ context) => this.#pick(context);
    const [readRoot, speedRoot] = [h('div', { class: 'exp-plot' }), h('div', { class: 'exp-plot' })];
    this.read = new Plot(readRoot, { label: t.readLabel, file: 'kvviz-bytes-read', onPick });
    this.speed = new Plot(speedRoot, { label: t.speedLabel, file: 'kvviz-tokens-per-second', onPick });
    this.key = h('p', { class: 'cluster small-note exp-key' });
    this.figures = h('dl', { class: 'cluster exp-figures' });
    this.sum = h('p', { class: 'exp-sum' });
    this.notes = h('div', { class: 'exp-notes' });
    this.about = h('div', {});
    this.body = h(
      'div',
      { class: 'exp-body', hidden: true },
      this.sum,
      h(
        'div',
        { class: 'exp-pair' },
        h(
          'figure',
          {},
          this.readTitle,
          readRoot,
          h(
            'div',
            { class: 'cluster exp-slider' },
            h('label', { for: 'bandwidth-context' }, t.context),
            this.context,
            this.contextOut,
          ),
        ),
        h('figure', {}, this.speedTitle, speedRoot, this.key),
      ),
      this.notes,
      h('details', { class: 'exp-details' }, h('summary', {}, t.about), this.about),
    );
    this.scroll = h(
      'div',
      { class: 'note exp exp-bandwidth', role: 'region', 'aria-label': t.title, tabindex: 0 },
      h('div', { class: 'exp-head' }, h('h2', {}, t.title), h('p', {}, t.lead)),
      h(
        'div',
        { class: 'cluster exp-form' },
        field('model', t.model, this.model),
        field('card', t.card, this.card),
        field('dtype', t.dtype, this.dtype),
        field('batch', t.batch, this.batch),
        this.figures,
      ),
      this.status,
      this.body,
    );
    root.append(this.scroll);
  }

  /** @param {Scene} scene */
  update(scene) {
    this.step = scene.position;
    this.#fetch();
    this.#draw();
  }

  draw() {}

  /** @param {Partial<typeof chosen>} values */
  #choose(values) {
    Object.assign(chosen, values);
    this.#fetch();
    this.#draw();
  }

  #slide() {
    const model = this.#model();
    if (model) this.#choose({ context: model.points[Number(this.context.value)].context });
  }

  /** A click in a chart chooses the nearest context. @param {number} value */
  #pick(value) {
    const far = (/** @type {number} */ context) => Math.abs(Math.log(context / value));
    const contexts = this.#model()?.points.map((point) => point.context) ?? [];
    this.#choose({ context: contexts.reduce((best, each) => (far(each) < far(best) ? each : best)) });
  }

  /** @returns {ModelBound|null} */
  #model() {
    return this.data?.models.find((model) => model.model_id === chosen.model) ?? this.data?.models[0] ?? null;
  }

  /** Asks the server if the choices have changed since the last response. */
  #fetch() {
    const { log } = this.ctx;
    const query = new URLSearchParams({ card: chosen.card, dtype: chosen.dtype, batch: String(chosen.batch) });
    if (log.sessionId && log.header) query.set('session', log.sessionId);
    const asked = `${query}#${log.logId}`;
    if (asked === this.asked) return;
    this.asked = asked;
    if (!this.data) setText(this.status, t.loading);
    void this.#load(String(query), asked);
  }

  /** @param {string} query @param {string} asked */
  async #load(query, asked) {
    try {
      const answer = await ask(`api/bandwidth?${query}`, t.unreachable);
      if (!this.alive || asked !== this.asked) return;
      this.data = answer;
      this.answered = asked;
      setText(this.status, '');
      this.drawn = '';
      this.#draw();
    } catch (error) {
      if (!this.alive || asked !== this.asked) return;
      const message = reasonOf(error);
      if (chosen.card === HERE && message !== t.unreachable) chosen.card = 'h100';
      setText(this.status, fill(t.failed, { message }));
    }
  }

  #draw() {
    const { data } = this;
    const model = this.#model();
    this.status.hidden = this.status.textContent === '';
    if (!data || !model) return;
    this.body.hidden = false;
    const { clientWidth: width } = this.read.area;
    const measured = data.card.card_id === HERE ? this.#measured() : [];
    const state = [this.answered, chosen.model, chosen.context, width, measured.length].join('|');
    if (state === this.drawn || width < 60) return;
    this.drawn = state;
    let at = model.points.findIndex((point) => point.context >= chosen.context);
    if (at < 0) at = model.points.length - 1;
    this.#controls(data, model, at);
    const charts = [
      readChart(model, at, width),
      speedChart(data, model.model_id, model.points[at].context, measured, width),
    ];
    [this.read, this.speed].forEach((plot, index) => {
      plot.label = charts[index].label;
      void plot.draw(charts[index].traces, charts[index].layout);
    });
    setText(
      this.readTitle,
      fill(data.batch > 1 ? t.readTitleBatch : t.readTitle, { n: data.batch, model: model.name }),
    );
    setText(this.speedTitle, fill(t.speedTitle, { card: data.card.name }));
    this.#figures(data, model, at);
    this.#keyOf(data, measured.length);
    this.#about(data);
    this.#tables(data, model);
  }

  /** @param {Bandwidth} data @param {ModelBound} model @param {number} at */
  #controls(data, model, at) {
    const cards = [...(data.can_measure ? [{ card_id: HERE, name: t.here }] : []), ...data.cards];
    options(
      this.card,
      cards.map(({ card_id, name }) => [card_id, name]),
      chosen.card,
    );
    options(
      this.dtype,
      data.dtypes.map((dtype) => [dtype, t.dtypes[/** @type {keyof typeof t.dtypes} */ (dtype)] ?? dtype]),
      chosen.dtype,
    );
    options(
      this.batch,
      BATCHES.map((n) => [String(n), String(n)]),
      String(chosen.batch),
    );
    options(
      this.model,
      data.models.map(({ model_id, name }) => [model_id, model_id === 'run' ? fill(t.run, { name }) : name]),
      model.model_id,
    );
    const text = fill(t.tokens, { n: count(model.points[at].context) });
    this.context.max = String(model.points.length - 1);
    this.context.value = String(at);
    this.context.setAttribute('aria-valuetext', text);
    setText(this.contextOut, text);
  }

  /** @param {Bandwidth} data @param {ModelBound} model @param {number} at */
  #figures(data, model, at) {
    const point = model.points[at];
    const beyond = model.crossing !== null && model.crossing > model.max_context;
    const crossing =
      model.crossing === null
        ? [t.never, t.neverLong]
        : [count(model.crossing), fill(beyond ? t.outweighsBeyond : t.outweighs, { limit: count(model.max_context) })];
    replace(
      this.figures,
      figure('speed', three(point.tokens_per_s), fill(data.batch > 1 ? t.atMostAll : t.atMost, { n: data.batch })),
      figure('share', percent(point.cache_bytes / (point.cache_bytes + point.weight_bytes)), t.share),
      figure('crossing', crossing[0], crossing[1]),
    );
    setText(this.sum, sumOf(data, model, at));
    const notes = [];
    if (model.is_mixture)
      notes.push(
        fill(data.batch > 1 ? t.mixture : t.mixtureOne, {
          stored: makersBytes(model.stored_bytes),
          read: makersBytes(model.weight_bytes),
          n: data.batch,
        }),
      );
    const { memory_bytes: memory } = data.card;
    if (model.capacity === 0 && memory > 0 && model.stored_bytes > memory)
      notes.push(
        fill(t.fitsNot, {
          stored: makersBytes(model.stored_bytes),
          memory: makersBytes(memory),
          n: Math.ceil(model.stored_bytes / memory),
        }),
      );
    else if (model.capacity !== null && model.capacity < point.context)
      notes.push(fill(t.fitsNone, { context: count(point.context), batch: data.batch, n: count(model.capacity) }));
    else if (model.capacity !== null)
      notes.push(fill(data.batch > 1 ? t.fits : t.fitsOne, { n: count(model.capacity), batch: data.batch }));
    replace(
      this.notes,
      notes.map((note) => h('p', {}, note)),
    );
  }

  /** The legend. @param {Bandwidth} data @param {number} numMeasured */
  #keyOf(data, numMeasured) {
    const marks = [h('span', { class: 'exp-mark exp-mark-ring' }, t.ringKey)];
    if (data.models.some((model) => model.capacity !== null && model.capacity < model.max_context))
      marks.push(h('span', { class: 'exp-mark exp-mark-dashed' }, t.dashedKey));
    if (data.card.card_id === HERE)
      marks.push(
        numMeasured > 0
          ? h('span', { class: 'exp-mark exp-mark-measured' }, fill(t.measuredKey, { n: count(numMeasured) }))
          : h('span', {}, fill(t.measuredNone, { batch: data.batch })),
      );
    replace(this.key, marks);
  }

  /** Steps of this run, up to the cursor, that decoded exactly the chosen number of sequences and nothing else. @returns {Measured[]} */
  #measured() {
    const { log } = this.ctx;
    /** @type {Measured[]} */
    const found = [];
    for (let k = this.step; k > 0 && log.stepRange(k) && found.length < MAX_MEASURED; k--) {
      const { chunks, end } = log.step(k) ?? { chunks: [], end: null };
      if (!end || chunks.length !== chosen.batch || chunks.some((chunk) => chunk.kind !== 'decode')) continue;
      found.push({
        context: chunks.reduce((sum, chunk) => sum + chunk.start + 1, 0) / chunks.length,
        us: end.forward_us,
      });
    }
    return found;
  }

  /** @param {Bandwidth} data */
  #about(data) {
    const { card } = data;
    const cardText = fill(card.card_id === HERE ? t.sourceMeasured : t.sourceCard, {
      name: card.name,
      bandwidth: speed(card.bandwidth),
      source: card.source,
      checked: card.checked,
    });
    const models = data.models.map((model) =>
      fill(model.checked === null ? t.sourceRun : t.sourceModel, {
        name: model.name,
        perToken: `${count(model.bytes_per_token)} B`,
        source: model.source,
        checked: model.checked ?? '',
      }),
    );
    replace(
      this.about,
      h(
        'ul',
        {},
        [...t.assumptions, cardText, ...models].map((text) => h('li', {}, text)),
      ),
    );
  }

  /** @param {Bandwidth} data @param {ModelBound} model */
  #tables(data, model) {
    this.read.table({
      caption: fill(t.table, { model: model.name, card: data.card.name, batch: data.batch }),
      headers: t.columns,
      rows: () =>
        model.points.map((point) => [
          count(point.context),
          makersBytes(point.weight_bytes),
          makersBytes(point.cache_bytes),
          time(point.step_us),
          three(point.tokens_per_s),
        ]),
    });
    this.speed.table({
      caption: t.tableModels,
      headers: t.columnsModels,
      rows: () =>
        data.models.map(({ name, weight_bytes, bytes_per_token, crossing, points }) => [
          name,
          makersBytes(weight_bytes),
          `${count(bytes_per_token)} B`,
          crossing === null ? t.never : count(crossing),
          three(points[0].tokens_per_s),
          three(points[points.length - 1].tokens_per_s),
        ]),
    });
  }

  /** @returns {string} */
  describe() {
    const { data } = this;
    const model = this.#model();
    if (!data || !model) return t.loading;
    const values = {
      model: model.name,
      card: data.card.name,
      batch: data.batch,
      sum: this.sum.textContent ?? '',
      crossing: model.crossing === null ? '' : count(model.crossing),
    };
    return fill(model.crossing === null ? t.describeNever : t.describe, values);
  }

  destroy() {
    this.alive = false;
    for (const plot of [this.read, this.speed]) plot.destroy();
    this.root.replaceChildren();
  }
}

/** The division in words and numbers. @param {Bandwidth} data @param {ModelBound} model @param {number} at @returns {string} */
function sumOf(data, model, at) {
  const point = model.points[at];
  return fill(data.batch > 1 ? t.sumBatch : t.sum, {
    context: count(point.context),
    weights: makersBytes(point.weight_bytes),
    cache: makersBytes(point.cache_bytes),
    each: makersBytes(point.cache_bytes / data.batch),
    n: data.batch,
    bandwidth: speed(data.card.bandwidth),
    time: time(point.step_us),
    speed: three(point.tokens_per_s),
    single: three(point.tokens_per_s / data.batch),
  });
}

/** @param {string} name @param {string} value @param {string} label */
function figure(name, value, label) {
  return h('div', { class: 'column exp-figure', data: { figure: name } }, h('dd', {}, value), h('dt', {}, label));
}

/** @param {(value: string) => void} choose */
function select(choose) {
  const element = h('select', { class: 'exp-select' });
  element.addEventListener('change', () => choose(element.value));
  return element;
}

/** @param {string} id @param {string} label @param {HTMLElement} control */
function field(id, label, control) {
  control.id = `bandwidth-${id}`;
  return h('div', { class: 'column fine-note exp-field' }, h('label', { for: control.id }, label), control);
}

/** @param {HTMLSelectElement} element @param {string[][]} values value and text @param {string} value */
function options(element, values, value) {
  const known = values.map((pair) => pair.join()).join();
  if (element.dataset.known !== known) {
    element.dataset.known = known;
    replace(
      element,
      values.map(([id, text]) => h('option', { value: id }, text)),
    );
  }
  element.value = value;
}
