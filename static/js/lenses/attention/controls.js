/** The controls above the attention lens: shared heads, layer and head, one row or the triangle, hide the sink. */
import { h, icon, PATHS, setText } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { quoted } from '../../ui/text.js';
import { sinkToggle } from '../cache/controls.js';
import { texts } from '../shared/texts.js';
import { numKvHeads } from './layout.js';
/** @import { Ctx } from '../../core/types.d.ts' */
/** @import { CachePicture } from '../cache/picture.js' */

export class AttentionControls {
  /** @param {Ctx} ctx @param {(mode: 'row'|'triangle') => void} setMode */
  constructor(ctx, setMode) {
    this.ctx = ctx;
    const t = texts.attention;
    this.title = h('span', { class: 'lens-title' });
    this.asker = h('span', { class: 'lens-note' });
    this.layer = stepper(t.layerDown, t.layerUp, (delta) => this.#moveLayer(delta));
    this.head = stepper(t.headDown, t.headUp, (delta) => this.#moveHead(delta));
    this.row = h('button', { type: 'button', class: 'lens-choice', on: { click: () => setMode('row') } }, t.row);
    this.triangle = h(
      'button',
      { type: 'button', class: 'lens-choice', title: t.triangleHint, on: { click: () => setMode('triangle') } },
      t.triangle,
    );
    this.sink = sinkToggle(ctx.ui);
    this.element = h(
      'div',
      { class: 'cluster fine-note lens-bar' },
      h('div', { class: 'cluster lens-legend' }, this.title, this.asker),
      h(
        'div',
        { class: 'cluster lens-bar-end' },
        this.layer.element,
        this.head.element,
        h('div', { class: 'lens-choices', role: 'group', 'aria-label': t.modes }, this.row, this.triangle),
        this.sink,
      ),
    );
  }

  /** @param {number} delta */
  #moveLayer(delta) {
    const { ui, log } = this.ctx;
    ui.set({ layer: Math.max(0, Math.min((log.header?.model.num_layers ?? 1) - 1, ui.layer + delta)) });
  }

  /** From the first head, the next step is back to the mean. @param {number} delta */
  #moveHead(delta) {
    const { ui, log } = this.ctx;
    const next = (ui.head ?? -1) + delta;
    const last = (log.header?.model.layers[ui.layer]?.query_heads ?? 1) - 1;
    ui.set({ head: next < 0 ? null : Math.min(next, last) });
  }

  /** @param {CachePicture} picture @param {'row'|'triangle'} mode */
  update(picture, mode) {
    const { ui, log } = this.ctx;
    const t = texts.attention;
    const model = log.header?.model;
    if (!model) return;
    const geometry = model.layers[ui.layer];
    const q = geometry?.query_heads ?? model.num_query_heads;
    const kv = numKvHeads(geometry, model);
    const title =
      geometry?.cache === 'latent' ? t.title.latent : kv === 1 ? t.title.one : kv === q ? t.title.same : t.title.shared;
    setText(this.title, fill(title, { q, kv }));
    const { request, chunk, attentionAfter } = picture;
    const position = request ? (chunk ? chunk.start + chunk.num_tokens : request.numComputed) - 1 : -1;
    setText(
      this.asker,
      request && attentionAfter > 0 && position >= 0 && mode === 'row'
        ? fill(t.asker, { position, token: quoted(request.pieces[position]) })
        : '',
    );
    setText(this.layer.value, fill(t.layer, { layer: ui.layer }));
    setText(
      this.head.value,
      ui.head === null ? (mode === 'triangle' ? fill(t.head, { head: 0 }) : t.mean) : fill(t.head, { head: ui.head }),
    );
    this.row.setAttribute('aria-pressed', String(mode === 'row'));
    this.triangle.setAttribute('aria-pressed', String(mode === 'triangle'));
    this.sink.setAttribute('aria-pressed', String(ui.hideSink));
  }
}

/** @param {string} down @param {string} up @param {(delta: number) => void} move */
function stepper(down, up, move) {
  const value = h('span', { class: 'strong lens-stepper-value' });
  const button = (/** @type {string} */ label, /** @type {string} */ path, /** @type {number} */ delta) =>
    h(
      'button',
      {
        type: 'button',
        class: 'lens-choice lens-step',
        'aria-label': label,
        title: label,
        on: { click: () => move(delta) },
      },
      icon(path),
    );
  return {
    value,
    element: h('div', { class: 'lens-stepper' }, button(down, PATHS.left, -1), value, button(up, PATHS.right, 1)),
  };
}
