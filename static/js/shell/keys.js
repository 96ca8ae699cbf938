/** Shortcuts by `event.code`, so that they work on every layout, and their list, where each row also works by click. */
import { h, icon, PATHS, replace } from '../ui/dom.js';
import { LENSES } from '../ui/store.js';
/** @import { Ctx } from '../core/types.d.ts' */
/** @import { Actions } from './actions.js' */
/** `codes` without modifiers; `shift` needs Shift. `own`: a focused button handles this key itself.
 * @typedef {{codes: string[], shift?: boolean, group: 'time'|'picture'|'screen', text: string, run: (code: string, repeat: boolean) => void, click?: (() => void)|null, named?: string}} Binding */

const OWN_KEYS = new Set([
  'Space',
  'Enter',
  'ArrowLeft',
  'ArrowRight',
  'ArrowUp',
  'ArrowDown',
  'Home',
  'End',
  'PageUp',
  'PageDown',
]);

export class Keys {
  /** @param {HTMLElement} root @param {Ctx} ctx @param {Actions} actions @param {() => void} escape */
  constructor(root, ctx, actions, escape) {
    this.root = root;
    this.ctx = ctx;
    this.escape = escape;
    this.bindings = this.#bindings(actions);
    /** Labels of this keyboard layout by code, if the browser provides them. @type {Map<string, string>} */
    this.glyphs = new Map();
    document.addEventListener('keydown', (event) => this.#key(event));
    void this.#layout();
  }

  /** @param {Actions} actions @returns {Binding[]} */
  #bindings(actions) {
    const { ui, strings } = this.ctx;
    const text = strings.keys;
    /** @type {(code: string) => 1|-1} */
    const side = (code) => (code === 'ArrowLeft' || code === 'PageUp' || code === 'ArrowDown' ? -1 : 1);
    return [
      {
        codes: ['Space'],
        group: 'time',
        text: text.playPause,
        run: (_, repeat) => {
          if (!repeat) actions.playPause();
        },
      },
      {
        codes: ['ArrowLeft', 'ArrowRight'],
        group: 'time',
        text: text.step,
        run: (code, repeat) => (side(code) < 0 ? actions.stepBack() : actions.stepForward(repeat)),
        click: () => actions.stepForward(),
      },
      {
        codes: ['ArrowLeft', 'ArrowRight'],
        shift: true,
        group: 'time',
        text: text.layerStep,
        run: (code) => actions.stepLayer(side(code)),
        click: () => actions.stepLayer(1),
      },
      {
        codes: ['PageUp', 'PageDown'],
        group: 'time',
        text: text.marks,
        run: (code) => actions.mark(side(code)),
        click: () => actions.mark(1),
      },
      {
        codes: ['Home', 'End'],
        group: 'time',
        text: text.ends,
        run: (code) => (code === 'Home' ? actions.first() : actions.live()),
        click: () => actions.live(),
      },
      {
        codes: LENSES.map((_, index) => `Digit${index + 1}`),
        group: 'picture',
        text: text.lens,
        run: (code) => actions.lens(Number(code.slice(5)) - 1),
        click: null,
      },
      {
        codes: ['ArrowUp', 'ArrowDown'],
        group: 'picture',
        text: text.layer,
        run: (code) => actions.layer(side(code)),
        click: () => actions.layer(1),
      },
      {
        codes: ['ArrowUp', 'ArrowDown'],
        shift: true,
        group: 'picture',
        text: text.head,
        run: (code) => actions.head(side(code)),
        click: () => actions.head(1),
      },
      { codes: ['KeyV'], group: 'picture', text: text.view, run: () => actions.nextView() },
      { codes: ['KeyS'], group: 'picture', text: text.sink, run: () => ui.set({ hideSink: !ui.hideSink }) },
      { codes: ['Escape'], group: 'picture', text: text.clear, run: () => this.escape() },
      {
        codes: ['KeyI'],
        group: 'screen',
        text: text.inspector,
        run: () => ui.set({ inspectorOpen: !ui.inspectorOpen }),
      },
      { codes: ['KeyD'], group: 'screen', text: text.prompt, run: () => ui.set({ drawerOpen: !ui.drawerOpen }) },
      { codes: ['KeyC'], group: 'screen', text: text.caption, run: () => ui.set({ longCaption: !ui.longCaption }) },
      { codes: ['KeyT'], group: 'screen', text: text.theme, run: () => actions.nextTheme() },
      { codes: ['KeyP'], group: 'screen', text: text.projector, run: () => ui.set({ projector: !ui.projector }) },
      { codes: ['KeyF'], group: 'screen', text: text.fullscreen, run: () => actions.fullscreen() },
      { codes: ['KeyB'], group: 'screen', text: text.blank, run: () => ui.set({ blank: !ui.blank }) },
      { codes: ['?'], group: 'screen', text: text.list, run: () => this.toggle(), named: '?' },
    ];
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    const target = event.target instanceof Element ? event.target : document.body;
    if (event.code === 'Escape') {
      this.escape();
      return;
    }
    if (target.closest('input, textarea, select, [contenteditable]')) return;
    if (!this.ctx.ui.shortcuts) return;
    if (OWN_KEYS.has(event.code) && !event.shiftKey && ownsKey(target, event.code)) return;
    if (this.ctx.ui.blank && event.code !== 'KeyB') this.ctx.ui.set({ blank: false });
    const binding =
      event.key === '?'
        ? this.bindings.find(({ codes }) => codes[0] === '?')
        : this.bindings.find(({ codes, shift = false }) => shift === event.shiftKey && codes.includes(event.code));
    if (!binding) return;
    event.preventDefault();
    binding.run(event.code, event.repeat);
  }

  /** The labels printed on this keyboard. */
  async #layout() {
    try {
      const keyboard = /** @type {any} */ (navigator).keyboard;
      if (!keyboard?.getLayoutMap) return;
      for (const [code, glyph] of await keyboard.getLayoutMap()) this.glyphs.set(code, glyph.toUpperCase());
    } catch {
      this.glyphs.clear();
    }
  }

  /** @param {string} code @returns {string} */
  glyph(code) {
    const names = /** @type {Record<string, string>} */ (this.ctx.strings.keys.names);
    return names[code] ?? this.glyphs.get(code) ?? code.replace(/^(Key|Digit)/, '');
  }

  get isOpen() {
    return !this.root.hidden;
  }

  /** @param {boolean} [open] */
  toggle(open = this.root.hidden) {
    if (open === this.isOpen) return;
    if (open) this.#fill();
    this.root.hidden = !open;
    this.onToggle?.(open);
    if (open) /** @type {HTMLElement|null} */ (this.root.querySelector('button'))?.focus();
  }

  /** @type {((open: boolean) => void)|undefined} */
  onToggle;

  #fill() {
    const { strings, ui } = this.ctx;
    const text = strings.keys;
    const groups = /** @type {const} */ (['time', 'picture', 'screen']).map((group) =>
      h(
        'div',
        { class: 'keys-group' },
        h('h3', {}, text.groups[group]),
        h(
          'ul',
          {},
          this.bindings.filter((binding) => binding.group === group).map((binding) => h('li', {}, this.#row(binding))),
        ),
      ),
    );
    const box = h('input', {
      type: 'checkbox',
      id: 'shortcuts',
      on: { change: () => ui.set({ shortcuts: box.checked }) },
    });
    box.checked = ui.shortcuts;
    this.root.setAttribute('aria-label', text.title);
    replace(
      this.root,
      h(
        'div',
        { class: 'panel-head' },
        h('h2', {}, text.title),
        h(
          'button',
          { type: 'button', class: 'plain-button', 'aria-label': text.close, on: { click: () => this.toggle(false) } },
          icon(PATHS.cross),
        ),
      ),
      h('div', { class: 'keys-groups' }, groups),
      h('label', { class: 'check' }, box, text.shortcuts),
    );
  }

  /** @param {Binding} binding */
  #row(binding) {
    const { codes, shift, named } = binding;
    const glyphs = named ? [named] : codes.map((code) => this.glyph(code));
    const signs = [
      shift ? h('kbd', {}, this.ctx.strings.keys.names.Shift) : null,
      ...glyphs.map((glyph) => h('kbd', {}, glyph)),
    ];
    const inside = [h('span', { class: 'keys-signs' }, signs), h('span', {}, binding.text)];
    if (binding.click === null) return h('div', { class: 'keys-row' }, inside);
    return h(
      'button',
      {
        type: 'button',
        class: 'keys-row',
        on: { click: () => (binding.click ?? (() => binding.run(codes[0], false)))() },
      },
      inside,
    );
  }
}

/** Whether the focused element handles this key itself. @param {Element} target @param {string} code */
function ownsKey(target, code) {
  if (code === 'Space' || code === 'Enter')
    return target.closest('button, a, summary, [role="option"], [role="listbox"], [role="tab"]') !== null;
  return (
    target.closest(
      '[role="slider"], [role="listbox"], [role="tablist"], [role="grid"], [role="radiogroup"], [role="application"]',
    ) !== null
  );
}
