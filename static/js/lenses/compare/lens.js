/** The compare lens: lanes of the same text side by side, and the two experiments, as inner tabs. */
import { h, replace, setAttribute } from '../../ui/dom.js';
import { fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
import { CompareLanes } from './lanes.js';
/** @import { Ctx, Scene, Dirty, Lens } from '../../core/types.d.ts' */
/** @typedef {'lanes'|'bandwidth'|'timing'} Part */

const t = texts.compare;
/** @type {Part[]} */
const PARTS = ['lanes', 'bandwidth', 'timing'];

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new CompareLens(root, ctx);
}

class CompareLens {
  /** @type {Part} */
  part = 'lanes';
  /** @type {Lens|null} */
  inner = null;
  /** @type {Scene|null} */
  scene = null;

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    this.tabs = PARTS.map((part) =>
      h(
        'button',
        {
          type: 'button',
          role: 'tab',
          class: 'lens-choice',
          id: `compare-tab-${part}`,
          'aria-controls': 'compare-part',
          on: { click: () => void this.show(part) },
        },
        t.tabs[part],
      ),
    );
    this.end = h('div', { class: 'cluster lens-bar-end' });
    this.body = h('div', { class: 'compare-body', id: 'compare-part', role: 'tabpanel' });
    root.append(
      h(
        'div',
        { class: 'cluster fine-note lens-bar' },
        h(
          'div',
          {
            class: 'lens-choices',
            role: 'tablist',
            'aria-label': t.tabs.label,
            on: { keydown: (/** @type {KeyboardEvent} */ event) => this.#key(event) },
          },
          this.tabs,
        ),
        this.end,
      ),
      this.body,
    );
    void this.show('lanes');
  }

  /** @param {Part} part */
  async show(part) {
    if (this.inner && part === this.part) return;
    this.part = part;
    this.inner?.destroy();
    this.inner = null;
    this.tabs.forEach((tab, index) => {
      setAttribute(tab, 'aria-selected', String(PARTS[index] === part));
      tab.tabIndex = PARTS[index] === part ? 0 : -1;
    });
    this.body.setAttribute('aria-labelledby', `compare-tab-${part}`);
    replace(this.end);
    const root = h('div', { class: `column compare-part compare-part-${part}` });
    replace(this.body, root);
    if (part === 'lanes') this.inner = new CompareLanes(root, this.ctx, this.end);
    else await this.#experiment(part, root);
    this.ctx.ui.changes.emit('ui');
    if (this.scene)
      this.inner?.update(this.scene, new Set(/** @type {Dirty[]} */ (['world', 'ui', 'frame', 'size', 'theme'])));
  }

  /** A separate module, loaded when it is first opened. @param {'bandwidth'|'timing'} part @param {HTMLElement} root */
  async #experiment(part, root) {
    const path = `../experiments/${part}.js`;
    try {
      const module = await import(path);
      if (this.part === part) this.inner = module.create(root, this.ctx);
    } catch (error) {
      if (this.part === part)
        replace(root, h('p', { class: 'compare-missing', role: 'note' }, fill(t.missing, { message: String(error) })));
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const delta = { ArrowLeft: -1, ArrowRight: 1 }[event.code];
    if (delta === undefined || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    const index = (PARTS.indexOf(this.part) + delta + PARTS.length) % PARTS.length;
    void this.show(PARTS[index]);
    this.tabs[index].focus();
  }

  /** @param {Scene} scene @param {Set<Dirty>} dirty */
  update(scene, dirty) {
    this.scene = scene;
    this.inner?.update(scene, dirty);
  }

  /** @param {number} progress */
  draw(progress) {
    this.inner?.draw(progress);
  }

  /** @param {Scene} scene @returns {string} */
  describe(scene) {
    return this.inner?.describe?.(scene) ?? '';
  }

  destroy() {
    this.inner?.destroy();
    this.root.replaceChildren();
  }
}
