/**
 * The inspector: the selected or hovered thing with its arithmetic, and below it the request's cache with a small line
 * of bytes over steps. It has the picture's content as text and tables.
 */
import { isAhead } from '../core/phases.js';
import { shownRequest, storedTokens } from '../core/selectors.js';
import { h, icon, PATHS, replace, setText } from '../ui/dom.js';
import { bytes, fill } from '../ui/format.js';
import { formatSelection } from '../ui/store.js';
import { bytesLine } from './bytes-line.js';
import { detailsOf } from './details.js';
/** @import { Ctx, Scene, Selection } from '../core/types.d.ts' */

/** During playback, the details update at this rate. */
const MOVING_MS = 400;

export class Inspector {
  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    const { inspector } = ctx.strings;
    root.setAttribute('aria-label', inspector.label);
    this.toggle = h('button', {
      type: 'button',
      class: 'inspector-toggle',
      'aria-expanded': 'true',
      'aria-controls': 'inspector-body',
      on: { click: () => ctx.ui.set({ inspectorOpen: !ctx.ui.inspectorOpen }) },
    });
    this.over = h('span', { class: 'note inspector-over' });
    this.clear = h(
      'button',
      { type: 'button', class: 'small-button', on: { click: () => ctx.ui.clear() } },
      inspector.clear,
    );
    this.details = h('div', { class: 'details' });
    this.figure = h('p', { class: 'key-figure' });
    this.figureTitle = h('h2', { class: 'note inspector-title' });
    this.line = h('div', { class: 'bytes-line' });
    this.body = h(
      'div',
      { class: 'inspector-body', id: 'inspector-body', tabindex: '0', role: 'region', 'aria-label': inspector.label },
      h('div', { class: 'inspector-head' }, this.over, this.clear),
      this.details,
      h('div', { class: 'cache-of' }, this.figureTitle, this.figure, this.line),
    );
    root.append(this.toggle, this.body);
    this.key = '';
    this.figureKey = '';
    this.lastRender = 0;
  }

  /** @param {Scene} scene @param {boolean} frameArrived @param {boolean} moving @returns {boolean} whether it wants to be asked again soon */
  update(scene, frameArrived, moving) {
    const { ui, strings, log } = this.ctx;
    const { inspector } = strings;
    if (this.root.dataset.open !== String(ui.inspectorOpen)) {
      this.root.dataset.open = String(ui.inspectorOpen);
      this.toggle.setAttribute('aria-expanded', String(ui.inspectorOpen));
      const label = ui.inspectorOpen ? inspector.close : inspector.open;
      this.toggle.setAttribute('aria-label', label);
      this.toggle.title = label;
      replace(this.toggle, icon(ui.inspectorOpen ? PATHS.right : PATHS.left));
      this.body.hidden = !ui.inspectorOpen;
    }
    this.#figures(scene);
    if (!ui.inspectorOpen || ui.projector) return false;
    const { hovered, pinned } = ui.selection;
    const selection = hovered ?? pinned ?? this.#now(scene);
    const step = scene.step?.step ?? 0;
    const ahead =
      selection !== null &&
      'position' in selection &&
      isAhead(
        scene.step,
        scene.progress,
        selection.request,
        selection.position,
        'layer' in selection ? selection.layer : ui.layer,
      );
    const key = `${ahead}:${selection ? formatSelection(selection) : ''}:${scene.position}:${step}:${this.ctx.timeline.momentWorld().seq}:${log.logId}:${ui.layer}:${ui.head}:${pinned !== null}`;
    if (key === this.key && !frameArrived) return false;
    if (moving && performance.now() - this.lastRender < MOVING_MS) return true;
    this.key = key;
    this.lastRender = performance.now();
    setText(this.over, hovered ? inspector.hovered : pinned ? inspector.selected : inspector.now);
    this.clear.hidden = pinned === null;
    replace(this.details, selection ? detailsOf(selection, scene, this.ctx.timeline.momentWorld(), this.ctx) : null);
    return false;
  }

  /** With nothing selected: the newest stored token in the chosen layer. @param {Scene} scene @returns {Selection|null} */
  #now(scene) {
    const shown = shownRequest(scene, this.ctx.ui);
    const request = shown && this.ctx.timeline.momentWorld().requests.get(shown.id);
    if (!request) return null;
    const position = request.numComputed > 0 ? request.numComputed - 1 : request.tokens.length - 1;
    return { kind: 'entry', request: request.id, position, layer: this.ctx.ui.layer };
  }

  /** @param {Scene} scene */
  #figures(scene) {
    const { ui, log, strings, timeline } = this.ctx;
    const { header } = log;
    const shown = shownRequest(scene, ui);
    const request = shown && timeline.momentWorld().requests.get(shown.id);
    if (!header || !request) return;
    const key = `${log.logId}:${request.id}:${request.numComputed}:${request.state}:${request.windowStart}:${scene.position}:${timeline.head}:${timeline.keyframes.done}:${scene.step !== null}`;
    if (key === this.figureKey) return;
    this.figureKey = key;
    const { inspector } = strings;
    const perToken = header.pool.bytes_per_token;
    setText(this.figureTitle, fill(inspector.cacheOf, { letter: request.letter }));
    replace(
      this.figure,
      h('span', { class: 'key-number' }, bytes(storedTokens(request) * perToken)),
      ' ',
      h('span', { class: 'note' }, fill(inspector.perToken, { bytes: bytes(perToken) })),
    );
    const position = scene.step ? scene.step.step : scene.position;
    replace(
      this.line,
      h('span', { class: 'note' }, inspector.bytesOverSteps),
      bytesLine(timeline.keyframes.storedTokens, timeline.first, position, perToken),
    );
  }
}
