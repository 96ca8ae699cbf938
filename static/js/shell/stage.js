/** The stage shows one lens at a time, loads it when it is first opened, and updates it. */
import { reasonOf } from '../ui/ask.js';
import { h, replace, setText } from '../ui/dom.js';
import { fill } from '../ui/format.js';
/** @import { Ctx, Scene, Lens, Dirty, LensName } from '../core/types.d.ts' */

/** @type {Record<LensName, () => Promise<{create: import('../core/types.d.ts').CreateLens}>>} */
const LOADERS = {
  cache: () => import('../lenses/cache/lens.js'),
  attention: () => import('../lenses/attention/lens.js'),
  pages: () => import('../lenses/pages/lens.js'),
  batch: () => import('../lenses/batch/lens.js'),
  memory: () => import('../lenses/memory/lens.js'),
  compare: () => import('../lenses/compare/lens.js'),
};

const MAX_FAILURES = 5;

/** @type {Dirty[]} */
const EVERYTHING = ['world', 'ui', 'frame', 'size', 'theme'];

export class Stage {
  /** @param {HTMLElement} root @param {Ctx} ctx @param {() => void} onReady a lens came or the size changed */
  constructor(root, ctx, onReady) {
    this.root = root;
    this.ctx = ctx;
    this.onReady = onReady;
    root.setAttribute('role', 'tabpanel');
    /** @type {LensName|null} */
    this.name = null;
    /** @type {Lens|null} */
    this.lens = null;
    /** @type {Set<Dirty>} */
    this.dirty = new Set(EVERYTHING);
    this.described = '';
    /** Number of draws that failed in a row. */
    this.numFailures = 0;
    this.description = h('p', { class: 'visually-hidden', id: 'stage-description' });
    root.setAttribute('aria-describedby', 'stage-description');
    new ResizeObserver(() => {
      this.dirty.add('size');
      onReady();
    }).observe(root);
  }

  /** @param {LensName} name */
  async show(name) {
    if (name === this.name) return;
    this.name = name;
    this.lens?.destroy();
    this.lens = null;
    this.root.setAttribute('aria-labelledby', `tab-${name}`);
    try {
      const module = await LOADERS[name]();
      if (this.name !== name) return;
      const inner = h('div', { class: `lens lens-${name}` });
      replace(this.root, inner, this.description);
      this.lens = module.create(inner, this.ctx);
      this.dirty = new Set(EVERYTHING);
      this.onReady();
    } catch (error) {
      if (this.name !== name) return;
      this.#say(name, error);
      console.error(error);
    }
  }

  /** @param {Scene} scene */
  draw(scene) {
    const { lens } = this;
    if (!lens) return;
    try {
      if (this.dirty.size > 0) {
        const { dirty } = this;
        this.dirty = new Set();
        lens.update(scene, dirty);
      }
      lens.draw(scene.progress);
      this.numFailures = 0;
    } catch (error) {
      this.#failed(error);
    }
  }

  /** A lens that fails once may recover with the next scene. One that keeps failing is replaced by a message. @param {unknown} error */
  #failed(error) {
    console.error(error);
    this.dirty = new Set(EVERYTHING);
    if (++this.numFailures < MAX_FAILURES || !this.name) return;
    this.lens = null;
    this.#say(this.name, error);
  }

  /** @param {LensName} name @param {unknown} error */
  #say(name, error) {
    const { strings } = this.ctx;
    const message = reasonOf(error);
    replace(
      this.root,
      h(
        'p',
        { class: 'alert stage-failed', role: 'alert' },
        fill(strings.stage.failed, { lens: strings.lens[name], message }),
      ),
      this.description,
    );
  }

  /** @param {Scene} scene */
  describe(scene) {
    const text = this.lens?.describe?.(scene) ?? '';
    if (text === this.described) return;
    this.described = text;
    setText(this.description, text);
  }
}
