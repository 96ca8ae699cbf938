/**
 * What this window shows: lens, selection, layer, head, view, theme. All of it is in the URL, so every state has a
 * link. Lenses read it; the shell and its controls write it through `set`, `hover` and `pin`.
 */
import { emitter } from '../core/emitter.js';
/** @import { Selection, LensName, CacheView, ThemeChoice } from '../core/types.d.ts' */

/** @type {LensName[]} */
export const LENSES = ['cache', 'attention', 'pages', 'batch', 'memory', 'compare'];
/** @type {CacheView[]} */
export const VIEWS = ['state', 'magnitude', 'attention', 'age'];
/** @type {ThemeChoice[]} */
export const THEMES = ['dark', 'light', 'system'];

const STORED = 'kvviz:looks';

/** @param {Selection|null} a @param {Selection|null} b @returns {boolean} */
export function sameSelection(a, b) {
  return a === b || (a !== null && b !== null && formatSelection(a) === formatSelection(b));
}

/** `entry:0.30.14`. @param {Selection} selection @returns {string} */
export function formatSelection(selection) {
  switch (selection.kind) {
    case 'token':
      return `token:${selection.request}.${selection.position}`;
    case 'entry':
      return `entry:${selection.request}.${selection.position}.${selection.layer}`;
    case 'block':
      return `block:${selection.block}`;
    case 'layer':
      return `layer:${selection.layer}`;
    case 'head':
      return `head:${selection.layer}.${selection.head}`;
    case 'request':
      return `request:${selection.request}`;
  }
}

/** @param {string|null} text @returns {Selection|null} */
export function parseSelection(text) {
  const match = /^(token|entry|block|layer|head|request):(\d+)(?:\.(\d+))?(?:\.(\d+))?$/.exec(text ?? '');
  if (!match) return null;
  const [, kind] = match;
  const [a, b, c] = match.slice(2).map((part) => (part === undefined ? null : Number(part)));
  if (a === null) return null;
  if (kind === 'token') return b === null ? { kind, request: 0, position: a } : { kind, request: a, position: b };
  if (kind === 'entry') return b === null || c === null ? null : { kind, request: a, position: b, layer: c };
  if (kind === 'head') return b === null ? null : { kind, layer: a, head: b };
  if (kind === 'block') return { kind, block: a };
  if (kind === 'layer') return { kind, layer: a };
  return { kind: 'request', request: a };
}

export class Ui {
  constructor() {
    /** @type {LensName} */
    this.lens = 'cache';
    /** @type {{hovered: Selection|null, pinned: Selection|null}} */
    this.selection = { hovered: null, pinned: null };
    /** Chosen layer; the lens opens its row outside a sweep. */
    this.layer = 0;
    /** Chosen query head; null is the mean over heads. @type {number|null} */
    this.head = null;
    /** @type {CacheView} */
    this.view = 'state';
    this.hideSink = false;
    /** The pool's layout in the pages lens. @type {'address'|'prefix'} */
    this.pagesBy = 'address';
    /** Whether the contiguous allocator reserves the model's whole context. */
    this.slabFull = false;
    /** The request that the user chose; null follows the running one. @type {number|null} */
    this.requestId = null;
    /** @type {ThemeChoice} */
    this.theme = 'dark';
    this.projector = false;
    this.longCaption = true;
    this.inspectorOpen = true;
    this.drawerOpen = false;
    /** What the drawer shows first when it opens. @type {'prompt'|'scenarios'} */
    this.drawerAt = 'prompt';
    this.shortcuts = true;
    this.reducedMotion = false;
    this.blank = false;
    this.changes = emitter();
  }

  /** The selection to show: the hovered thing first, else the pinned one. */
  get shown() {
    return this.selection.hovered ?? this.selection.pinned;
  }

  /** @param {Partial<Pick<Ui, 'lens'|'layer'|'head'|'view'|'hideSink'|'pagesBy'|'slabFull'|'requestId'|'theme'|'projector'|'longCaption'|'inspectorOpen'|'drawerOpen'|'drawerAt'|'shortcuts'|'reducedMotion'|'blank'>>} values */
  set(values) {
    let changed = false;
    const self = /** @type {any} */ (this);
    if (values.projector !== undefined && values.longCaption === undefined) values.longCaption = !values.projector;
    for (const [name, value] of Object.entries(values)) {
      if (self[name] === value) continue;
      self[name] = value;
      changed = true;
    }
    if (!changed) return;
    this.#store();
    this.changes.emit('theme' in values || 'projector' in values ? 'theme' : 'ui');
  }

  /** @param {Selection|null} selection */
  hover(selection) {
    if (sameSelection(this.selection.hovered, selection)) return;
    this.selection = { ...this.selection, hovered: selection };
    this.changes.emit('ui');
  }

  /** Pins a thing, or unpins it if it is already pinned. @param {Selection|null} selection */
  pin(selection) {
    const pinned = selection && sameSelection(this.selection.pinned, selection) ? null : selection;
    this.selection = { hovered: null, pinned };
    if (pinned && 'layer' in pinned) this.layer = pinned.layer;
    if (pinned && 'head' in pinned) this.head = pinned.head;
    if (pinned && 'request' in pinned) this.requestId = pinned.request;
    this.changes.emit('ui');
  }

  clear() {
    this.selection = { hovered: null, pinned: null };
    this.changes.emit('ui');
  }

  /** Looks are stored for the next visit; without storage, only that is lost. */
  #store() {
    try {
      const { theme, longCaption, shortcuts, inspectorOpen } = this;
      localStorage.setItem(STORED, JSON.stringify({ theme, longCaption, shortcuts, inspectorOpen }));
    } catch {
      return;
    }
  }

  /** Reads the looks of the last visit, then the URL. @param {URLSearchParams} query @param {boolean} narrow a phone's screen */
  load(query, narrow = false) {
    try {
      const stored = JSON.parse(localStorage.getItem(STORED) ?? '{}');
      if (THEMES.includes(stored.theme)) this.theme = stored.theme;
      for (const name of /** @type {const} */ (['longCaption', 'shortcuts', 'inspectorOpen'])) {
        if (typeof stored[name] === 'boolean') this[name] = stored[name];
      }
    } catch {
      this.theme = 'dark';
    }
    if (narrow) this.inspectorOpen = false;
    const lens = LENSES.find((name) => name === query.get('lens'));
    const view = VIEWS.find((name) => name === query.get('view'));
    const theme = THEMES.find((name) => name === query.get('theme'));
    if (lens) this.lens = lens;
    if (view) this.view = view;
    if (theme) this.theme = theme;
    this.layer = natural(query.get('layer')) ?? this.layer;
    this.head = natural(query.get('head'));
    this.requestId = natural(query.get('request'));
    this.hideSink = query.get('sink') === 'hidden';
    this.pagesBy = query.get('pool') === 'prefix' ? 'prefix' : 'address';
    this.slabFull = query.get('slab') === 'full';
    this.projector = query.get('projector') === 'on';
    if (this.projector) this.longCaption = false;
    this.selection = { hovered: null, pinned: parseSelection(query.get('select')) };
  }

  /** Writes the state to URL parameters, without default values. @param {URLSearchParams} query */
  save(query) {
    put(query, 'lens', this.lens === 'cache' ? null : this.lens);
    put(query, 'layer', this.layer === 0 ? null : this.layer);
    put(query, 'head', this.head);
    put(query, 'view', this.view === 'state' ? null : this.view);
    put(query, 'sink', this.hideSink ? 'hidden' : null);
    put(query, 'pool', this.pagesBy === 'address' ? null : this.pagesBy);
    put(query, 'slab', this.slabFull ? 'full' : null);
    put(query, 'request', this.requestId);
    put(query, 'theme', this.theme === 'dark' ? null : this.theme);
    put(query, 'projector', this.projector ? 'on' : null);
    put(query, 'select', this.selection.pinned ? formatSelection(this.selection.pinned) : null);
  }
}

/** @param {string|null} text @returns {number|null} */
function natural(text) {
  return text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;
}

/** @param {URLSearchParams} query @param {string} name @param {string|number|null} value */
function put(query, name, value) {
  if (value === null) query.delete(name);
  else query.set(name, String(value));
}
