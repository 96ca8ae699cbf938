/** Name, lens tabs, model chip, state chip with the proof badge, and the chip that offers the live model. */
import { hasNoModel, shortDtype } from '../core/selectors.js';
import { h, icon, PATHS, replace, setText } from '../ui/dom.js';
import { bytes, count, fill } from '../ui/format.js';
import { LENSES } from '../ui/store.js';
/** @import { Ctx, Scene, Status } from '../core/types.d.ts' */
/** @import { Popover } from '../ui/popover.js' */
/** @import { Actions } from './actions.js' */

export class TopBar {
  /** @param {HTMLElement} root @param {Ctx} ctx @param {Actions} actions @param {Popover} popover @param {() => void} goLive */
  constructor(root, ctx, actions, popover, goLive) {
    this.ctx = ctx;
    this.actions = actions;
    this.popover = popover;
    const { topbar, name } = ctx.strings;
    this.tabs = LENSES.map((lens, index) => this.#tab(lens, index));
    this.drawerButton = h(
      'button',
      {
        type: 'button',
        class: 'drawer-button',
        'aria-expanded': 'false',
        'aria-controls': 'drawer',
        title: topbar.promptHint,
        on: { click: () => ctx.ui.set({ drawerOpen: !ctx.ui.drawerOpen }) },
      },
      icon(PATHS.pen),
      h('span', { class: 'wide-only' }, topbar.prompt),
      h('span', { class: 'narrow-only' }, topbar.promptShort),
    );
    this.model = h('span', { class: 'note clip model-chip' });
    this.lane = h('span', { class: 'lane-chip', hidden: true });
    this.offer = h('button', { type: 'button', class: 'offer', hidden: true, on: { click: goLive } }, topbar.goLive);
    this.stateWord = h('span', { class: 'state-word' });
    this.badgeSign = icon(PATHS.dash, 'icon badge-sign');
    this.badgeWord = h('span', { class: 'badge-word wide-only' });
    this.badgeExtra = h('span', { class: 'badge-word badge-extra wide-only' });
    this.badgeShort = h('span', { class: 'badge-word narrow-only', 'aria-hidden': 'true' });
    this.state = h(
      'button',
      {
        type: 'button',
        class: 'state-chip',
        id: 'proof',
        'aria-haspopup': 'dialog',
        on: { click: () => this.#explain() },
      },
      h('span', { class: 'state-dot', 'aria-hidden': 'true' }),
      this.stateWord,
      h('span', { class: 'badge' }, this.badgeSign, this.badgeWord, this.badgeExtra, this.badgeShort),
    );
    this.help = h(
      'button',
      {
        type: 'button',
        class: 'plain-button help-button',
        'aria-label': topbar.help,
        title: topbar.help,
        'aria-expanded': 'false',
        'aria-controls': 'keys',
      },
      '?',
    );
    root.append(
      h('h1', { class: 'brand' }, name),
      h(
        'div',
        {
          class: 'tabs',
          role: 'tablist',
          'aria-label': topbar.lenses,
          on: { keydown: (/** @type {KeyboardEvent} */ event) => this.#tabKey(event) },
        },
        this.tabs,
      ),
      this.drawerButton,
      h('span', { class: 'spacer' }),
      this.lane,
      this.model,
      this.offer,
      this.state,
      this.help,
    );
    this.badgeKey = '';
    this.proof = /** @type {{wrong: boolean, text: string[]}} */ ({ wrong: false, text: [] });
  }

  /** @param {import('../core/types.d.ts').LensName} lens @param {number} index */
  #tab(lens, index) {
    const { strings, ui } = this.ctx;
    return h(
      'button',
      {
        type: 'button',
        role: 'tab',
        class: 'tab',
        id: `tab-${lens}`,
        'aria-controls': 'stage',
        title: strings.lensHint[lens],
        on: { click: () => ui.set({ lens }) },
      },
      strings.lens[lens],
      h('span', { class: 'fine-note tab-key', 'aria-hidden': 'true' }, String(index + 1)),
    );
  }

  /** @param {KeyboardEvent} event */
  #tabKey(event) {
    const delta = { ArrowLeft: -1, ArrowRight: 1 }[event.code];
    if (delta === undefined || event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
    const index = (LENSES.indexOf(this.ctx.ui.lens) + delta + LENSES.length) % LENSES.length;
    this.ctx.ui.set({ lens: LENSES[index] });
    this.tabs[index].focus();
  }

  /** @param {Scene} scene @param {Status|null} status @param {'connecting'|'open'|'lost'} connection @param {boolean} offer */
  update(scene, status, connection, offer) {
    const { ui, log } = this.ctx;
    this.tabs.forEach((tab, index) => {
      const selected = LENSES[index] === ui.lens;
      tab.setAttribute('aria-selected', String(selected));
      tab.tabIndex = selected ? 0 : -1;
    });
    this.drawerButton.setAttribute('aria-expanded', String(ui.drawerOpen));
    this.offer.hidden = !offer;
    if (log.header !== this.header || ui.lens !== this.modelLens) this.#model();
    this.#state(status, connection);
    this.#badge(scene);
  }

  #model() {
    const { header } = this.ctx.log;
    this.header = header;
    this.modelLens = this.ctx.ui.lens;
    if (!header) return;
    this.#lane(header);
    const { topbar } = this.ctx.strings;
    const { model, pool } = header;
    if (hasNoModel(header)) {
      setText(this.model, fill(topbar.poolOnly, { blocks: count(pool.num_blocks), size: pool.block_size }));
      this.model.title = '';
      return;
    }
    const latent = model.layers.length > 0 && model.layers.every((layer) => layer.cache !== 'kv');
    const heads = fill(latent ? topbar.headsLatent : topbar.heads, {
      q: model.num_query_heads,
      kv: model.num_kv_heads,
    });
    const poolText = fill(topbar.pool, {
      blocks: count(pool.num_blocks),
      size: pool.block_size,
      bytes: bytes(pool.bytes),
    });
    const modelText = fill(topbar.model, {
      name: model.name.replace(/-Instruct$/, ''),
      dtype: shortDtype(model.dtype),
      layers: model.num_layers,
      heads,
    });
    setText(this.model, this.modelLens === 'pages' || this.modelLens === 'batch' ? poolText : modelText);
    this.model.title = `${model.name} · ${modelText} · ${poolText}`;
  }

  /** In the session of one lane: the lane's name, and a link back. @param {import('../core/types.d.ts').Header} header */
  #lane({ lane }) {
    const { compareLane } = this.ctx.strings;
    this.lane.hidden = !lane;
    if (!lane) return;
    this.lane.title = fill(compareLane.chipHint, { title: lane.title, about: lane.about });
    replace(
      this.lane,
      h('strong', {}, fill(compareLane.chip, { index: lane.index, spec: lane.spec })),
      ' ',
      h('a', { href: `?session=${encodeURIComponent(this.ctx.log.comparisonId)}&lens=compare` }, compareLane.back),
    );
  }

  /** @param {Status|null} status @param {'connecting'|'open'|'lost'} connection */
  #state(status, connection) {
    const { log, strings } = this.ctx;
    const { topbar } = strings;
    const parts = [];
    if (connection === 'lost') parts.push(topbar.lost);
    else if (connection === 'connecting' && !log.logId) parts.push(topbar.connecting);
    else parts.push(log.kind === 'live' ? topbar.live : topbar.recording);
    const model = status?.model;
    if (connection === 'open' && log.kind === 'recording' && model) {
      const text = /** @type {Record<string, string>} */ (topbar.loading)[model.state];
      if (text)
        parts.push(
          fill(text, {
            percent: model.progress === null ? '' : fill(topbar.percent, { n: Math.round(model.progress * 100) }),
          }).trim(),
        );
    }
    setText(this.stateWord, parts.join(' · '));
    this.state.dataset.state = connection === 'lost' ? 'lost' : log.kind;
  }

  /** @param {Scene} scene */
  #badge(scene) {
    const { topbar } = this.ctx.strings;
    const { wrong } = this.ctx.timeline.keyframes;
    const world = scene.before;
    const bad =
      wrong ??
      (world.broken !== null || (world.check && !world.check.ok)
        ? {
            step: world.step,
            expected: world.check?.expected ?? '',
            computed: world.check?.computed ?? '',
            broken: world.broken,
          }
        : null);
    const kind = bad ? 'wrong' : world.check ? 'ok' : 'none';
    const step = bad ? bad.step : (world.check?.step ?? 0);
    const key = `${kind}:${step}:${bad?.computed}:${this.ctx.log.logId}`;
    if (key === this.badgeKey) return;
    this.badgeKey = key;
    this.state.dataset.proof = kind;
    this.badgeSign.firstElementChild?.setAttribute(
      'd',
      kind === 'ok' ? PATHS.check : kind === 'wrong' ? PATHS.cross : PATHS.dash,
    );
    if (bad) {
      this.#word(fill(topbar.wrong, { step }), fill(topbar.wrong, { step }));
      const text = [];
      if (bad.expected && bad.expected !== bad.computed)
        text.push(fill(topbar.proofWrong, { step, expected: bad.expected, computed: bad.computed }));
      if (bad.broken) text.push(fill(topbar.proofBroken, { what: bad.broken }));
      this.proof = { wrong: true, text };
    } else if (world.check) {
      this.#word(fill(topbar.verifiedLong, { step }), fill(topbar.verified, { step }), topbar.verifiedExtra);
      this.proof = {
        wrong: false,
        text: [
          fill(topbar.proofOk, {
            step,
            expected: world.check.expected,
            computed: world.check.computed,
            blocks: count(world.numBlocks),
          }),
        ],
      };
      if (world.numUnknown > 0) this.proof.text.push(fill(topbar.proofUnknown, { n: world.numUnknown }));
    } else {
      this.#word(topbar.unverified, '');
      this.proof = { wrong: false, text: [topbar.proofNone] };
    }
    this.state.title = this.proof.text.join(' ');
  }

  /** @param {string} long @param {string} short @param {string} [extra] what follows `long` where there is room */
  #word(long, short, extra = '') {
    setText(this.badgeWord, long);
    setText(this.badgeExtra, extra);
    setText(this.badgeShort, short);
  }

  #explain() {
    const { topbar } = this.ctx.strings;
    this.popover.show(
      this.state,
      topbar.proofTitle,
      this.proof.text.map((text) => h('p', { class: 'popover-note' }, text)),
    );
  }
}

/** A strip across the page for important messages. */
export class Banner {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.key = '';
  }

  /** @param {string} text @param {{label: string, run: () => void}[]} [actions] */
  show(text, actions = []) {
    if (this.key === text) return;
    this.key = text;
    replace(
      this.root,
      h('span', {}, text),
      actions.map(({ label, run }) =>
        h('button', { type: 'button', class: 'small-button', on: { click: run } }, label),
      ),
    );
    this.root.hidden = false;
  }

  /** @param {...string} only hide it only when it says one of these */
  hide(...only) {
    if (only.length > 0 && !only.includes(this.key)) return;
    this.key = '';
    this.root.hidden = true;
  }
}
