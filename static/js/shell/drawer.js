/** Request controls and settings, in a drawer on the left. Watching the cache doesn't need it. */
import { hasNoModel } from '../core/selectors.js';
import { strings } from '../strings/main.js';
import { h, icon, PATHS, replace, setText } from '../ui/dom.js';
import { bytes, count, fill } from '../ui/format.js';
import { Fields } from './fields.js';
import { PRESETS } from './presets.js';
import { recordingsPart } from './recordings.js';
import { asksForAnother, cacheFields, configOf, manyFields, showRun } from './run-settings.js';
import { scenariosPart } from './scenarios.js';
import { CommandError } from './transport.js';
/** @import { Ctx, Header, Status } from '../core/types.d.ts' */
/** @import { Actions } from './actions.js' */

const text = strings.drawer;

export class Drawer {
  prompt = h('textarea', {
    id: 'prompt',
    rows: '4',
    placeholder: text.promptPlaceholder,
    spellcheck: 'false',
    dir: 'auto',
  });
  runButton = h('button', { type: 'submit', class: 'primary' }, text.run);
  continueButton = h('button', { type: 'button', class: 'secondary', title: text.continueHint }, text.continue);
  cancelButton = h('button', { type: 'button', class: 'secondary' });
  restart = h('button', { type: 'button', class: 'secondary' }, text.runNew);
  ownSession = h('button', { type: 'button', class: 'secondary', title: text.newSessionHint }, text.newSession);
  message = h('div', { class: 'form-message', role: 'status' });
  notice = h('div', { class: 'form-notice' });
  changed = h('p', { class: 'hint', hidden: true }, text.changed);
  poolBytes = h('p', { class: 'hint' });
  modelPart = h('div', { class: 'model-part' });
  /** What the form was filled from. @type {Header|null} */
  header = null;
  controlKey = '';

  /** @param {HTMLElement} root @param {Ctx} ctx @param {Actions} actions @param {(session: string|null) => void} openSession */
  constructor(root, ctx, actions, openSession) {
    this.root = root;
    this.ctx = ctx;
    this.actions = actions;
    this.openSession = openSession;
    this.fields = new Fields();
    this.busy = false;
    this.recordings = recordingsPart(ctx, openSession);
    this.scenarios = scenariosPart(ctx, (name) => this.#scenario(name), openSession);
    this.#build();
  }

  #build() {
    const { root, ctx } = this;
    root.setAttribute('aria-label', text.title);
    this.prompt.addEventListener('keydown', (event) => {
      if (event.code === 'Enter' && (event.ctrlKey || event.metaKey)) void this.run(false);
    });
    this.continueButton.addEventListener('click', () => void this.run(true));
    this.cancelButton.addEventListener('click', () => this.#cancel());
    this.ownSession.addEventListener('click', () => this.openSession('new'));
    this.restart.addEventListener('click', () => void this.run(false, true));
    const { fields } = this;
    const template = fields.check('template', text.template, true, text.templateHint);
    const form = h(
      'form',
      {
        on: {
          submit: (/** @type {Event} */ event) => {
            event.preventDefault();
            void this.run(false);
          },
        },
      },
      h('label', { class: 'label', for: 'prompt' }, text.prompt),
      this.prompt,
      template,
      h(
        'div',
        { class: 'grid grid-three' },
        fields.whole('max_new_tokens', text.maxNewTokens, 48, 1, 4096),
        fields.whole('num_samples', text.samples, 1, 1, 16, text.samplesHint),
        fields.whole('priority', text.priority, 0, -1000, 1000, text.priorityHint),
      ),
      this.message,
      h('div', { class: 'cluster buttons' }, this.runButton, this.continueButton, this.cancelButton),
      this.#presets(),
      this.scenarios.root,
      this.#sampling(),
      this.#engine(),
      h('details', {}, h('summary', {}, text.many), manyFields(fields)),
      this.#restart(),
    );
    replace(
      root,
      h(
        'div',
        { class: 'panel-head' },
        h('h2', {}, text.title),
        h(
          'button',
          {
            type: 'button',
            class: 'plain-button',
            'aria-label': text.close,
            on: { click: () => ctx.ui.set({ drawerOpen: false }) },
          },
          icon(PATHS.cross),
        ),
      ),
      this.notice,
      form,
      h('details', {}, h('summary', {}, text.model), this.modelPart),
      this.recordings.root,
      otherPages(),
    );
    root.addEventListener('input', () => this.#settingsChanged());
  }

  #presets() {
    return h(
      'fieldset',
      { class: 'presets' },
      h('legend', {}, text.presets),
      PRESETS.map((preset) =>
        h(
          'button',
          {
            type: 'button',
            class: 'column preset',
            on: { click: () => void this.#preset(preset) },
          },
          h('strong', {}, text.preset[preset.name].title),
          h('span', {}, text.preset[preset.name].note),
        ),
      ),
    );
  }

  #sampling() {
    const { fields } = this;
    return h(
      'details',
      {},
      h('summary', {}, text.sampling),
      h(
        'div',
        { class: 'grid' },
        fields.number({
          name: 'temperature',
          label: text.temperature,
          value: 0,
          low: 0,
          high: 100,
          step: 'any',
          whole: false,
          optional: false,
        }),
        fields.whole('top_k', text.topK, 0, 0, 1000000),
        fields.number({
          name: 'top_p',
          label: text.topP,
          value: 1,
          low: 0.01,
          high: 1,
          step: 'any',
          whole: false,
          optional: false,
        }),
        fields.whole('seed', text.seed, NaN, 0, 2 ** 53 - 1),
        fields.text('salt', text.salt, text.saltHint),
      ),
      h('p', { class: 'hint' }, text.temperatureHint),
    );
  }

  #engine() {
    const { fields } = this;
    return h(
      'details',
      { open: true },
      h('summary', {}, text.engine),
      cacheFields(fields),
      this.poolBytes,
      fields.check('prefix_cache', text.prefixCache, true),
      fields.check('capture', text.capture, true),
    );
  }

  #restart() {
    return h(
      'div',
      { class: 'restart-part' },
      this.changed,
      h(
        'div',
        { class: 'cluster buttons' },
        this.restart,
        this.ownSession,
        h(
          'button',
          { type: 'button', class: 'secondary', on: { click: () => void this.#resetPrefixes() } },
          text.reset,
        ),
      ),
    );
  }

  /** @param {string} name */
  #input(name) {
    return this.fields.input(name);
  }

  #config() {
    return configOf(this.fields);
  }

  /** Whether the settings differ from those of the running engine. */
  #needsStart() {
    const { header } = this.ctx.log;
    return header !== null && asksForAnother(this.fields, header);
  }

  #settingsChanged() {
    const { header } = this.ctx.log;
    this.changed.hidden = !this.#needsStart();
    setText(this.runButton, this.#needsStart() ? this.ctx.strings.drawer.runNew : this.ctx.strings.drawer.run);
    if (!header) return;
    const tokens = Number(this.#input('block_size').value) * Number(this.#input('num_blocks').value);
    setText(
      this.poolBytes,
      fill(this.ctx.strings.drawer.poolBytes, {
        tokens: count(tokens),
        bytes: bytes(tokens * header.pool.bytes_per_token),
      }),
    );
  }

  /** @returns {Record<string, any>} */
  #request() {
    const seed = this.#input('seed').value;
    const salt = this.#input('salt').value;
    const samples = this.fields.value('num_samples') ?? 1;
    const priority = this.fields.value('priority') ?? 0;
    return {
      ...(samples > 1 ? { num_samples: samples } : {}),
      ...(priority !== 0 ? { priority } : {}),
      template: this.#input('template').checked,
      max_new_tokens: Number(this.#input('max_new_tokens').value),
      temperature: Number(this.#input('temperature').value),
      top_k: Number(this.#input('top_k').value),
      top_p: Number(this.#input('top_p').value),
      seed: seed === '' ? null : Number(seed),
      salt: salt === '' ? null : salt,
    };
  }

  /** @returns {boolean} */
  #valid() {
    const fault = this.fields.fault(this.root);
    if (fault !== null) this.#say(fault, true);
    return fault === null;
  }

  /** Whether a request is waiting that hasn't run yet. */
  get #isPristine() {
    return this.ctx.timeline.head === 0 && this.actions.hasWork;
  }

  /** Adds the prompt and lets the engine continue, or, with other settings, starts a new log.
   * @param {boolean} continues @param {boolean} [fresh] */
  async run(continues, fresh = false) {
    if (this.busy || !this.#valid()) return;
    const last = continues ? this.#lastFinished() : null;
    const prompt = this.prompt.value;
    if (fresh || this.#isPristine || this.#needsStart())
      await this.#go(this.#config(), [prompt], this.#request(), null);
    else await this.#go(null, [prompt], this.#request(), last);
  }

  /** @param {import('./presets.js').Preset} preset */
  async #preset(preset) {
    for (const [name, value] of Object.entries(preset.config)) this.fields.set(name, value);
    this.prompt.value = preset.prompts[preset.prompts.length - 1];
    this.#input('max_new_tokens').value = String(preset.maxNewTokens);
    this.#settingsChanged();
    await this.#go(this.#config(), preset.prompts, this.#request(), null);
  }

  /** @param {import('./scenarios.js').ScenarioName} name */
  async #scenario(name) {
    if (this.busy) return;
    this.busy = true;
    this.#say('', false);
    try {
      await this.ctx.send({ command: 'scenario', name });
      this.ctx.ui.clear();
      this.#leave();
      this.ctx.timeline.pin(false);
      if (!this.actions.enginePlays) this.actions.playScenario();
    } catch (error) {
      this.ctx.ui.set({ drawerOpen: true });
      this.#say(/** @type {Error} */ (error).message, true);
      this.message.scrollIntoView({ block: 'nearest' });
    } finally {
      this.busy = false;
    }
  }

  /** @param {Record<string, any>|null} config @param {string[]} prompts @param {Record<string, any>} request @param {number|null} continues */
  async #go(config, prompts, request, continues) {
    this.busy = true;
    this.#say('', false);
    try {
      const requests = prompts.map((prompt) => ({ prompt, ...request, continues }));
      if (config) await this.ctx.send({ command: 'start', config, requests });
      else for (const one of requests) await this.ctx.send({ command: 'add_request', ...one });
      this.ctx.ui.clear();
      this.#leave();
      this.ctx.timeline.pin(!config);
      await this.ctx.send({
        command: 'set_rate',
        steps_per_second: this.actions.fullSpeed ? null : this.ctx.timeline.speed,
      });
      await this.ctx.send({ command: 'play' });
    } catch (error) {
      this.#failed(/** @type {Error} */ (error), prompts, request, continues !== null);
    } finally {
      this.busy = false;
    }
  }

  /** @param {Error} error @param {string[]} prompts @param {Record<string, any>} request @param {boolean} continued */
  #failed(error, prompts, request, continued) {
    this.ctx.ui.set({ drawerOpen: true });
    if (error instanceof CommandError && error.code === 'never_fits' && error.details.num_blocks_needed) {
      const needed = Number(error.details.num_blocks_needed);
      const arithmetic = fill(text.never, {
        tokens: count(error.details.num_tokens),
        needed: count(needed),
        size: error.details.block_size,
        blocks: count(error.details.num_blocks),
      });
      const grow = h(
        'button',
        {
          type: 'button',
          class: 'primary',
          on: {
            click: () => {
              this.#input('num_blocks').value = String(needed);
              this.#settingsChanged();
              void this.#go({ ...this.#config(), num_blocks: needed }, prompts, request, null);
            },
          },
        },
        fill(text.grow, { n: count(needed) }),
      );
      this.#say(continued ? `${arithmetic} ${text.growForgets}` : arithmetic, true, grow);
      return;
    }
    this.#say(error.message, true);
  }

  /** @param {string} message @param {boolean} bad @param {Node} [action] */
  #say(message, bad, action) {
    for (const name of ['alert', 'form-error']) this.message.classList.toggle(name, bad);
    replace(this.message, message && h('p', {}, message), action);
  }

  async #resetPrefixes() {
    try {
      const result = await this.ctx.send({ command: 'reset_prefix_cache' });
      if (result && result.ok === false) this.#say(this.ctx.strings.drawer.resetFailed, true);
    } catch (error) {
      this.#say(/** @type {Error} */ (error).message, true);
    }
  }

  #cancel() {
    const request = this.#running();
    if (request) void this.actions.command({ command: 'cancel', request_id: request.id });
  }

  /** The shown request if it hasn't finished, else the first that hasn't. */
  #running() {
    const { timeline, ui } = this.ctx;
    const world = timeline.keyframes.at(timeline.head);
    const id = world.unfinished.find((one) => one === ui.requestId) ?? world.unfinished[0];
    return id === undefined ? null : (world.requests.get(id) ?? null);
  }

  #lastFinished() {
    const { keyframes, head } = this.ctx.timeline;
    let last = null;
    for (const request of keyframes.at(head).requests.values())
      if (request.state === 'finished' && request.template) last = request.id;
    return last;
  }

  /** @param {Status|null} status */
  update(status) {
    const { ui } = this.ctx;
    if (this.root.hidden === ui.drawerOpen) {
      this.root.hidden = !ui.drawerOpen;
      if (ui.drawerOpen) {
        this.#opened();
      } else if (this.root.contains(document.activeElement) || document.activeElement === document.body) {
        /** @type {HTMLElement|null} */ (document.querySelector('.drawer-button'))?.focus();
      }
    }
    if (!ui.drawerOpen) return;
    this.#controls(status);
  }

  /** Closes the drawer because a request runs now. Space pauses it, so the focus moves there. */
  #leave() {
    if (this.root.contains(document.activeElement))
      /** @type {HTMLElement|null} */ (document.querySelector('.play-button'))?.focus();
    this.ctx.ui.set({ drawerOpen: false, requestId: null });
  }

  #opened() {
    const { header } = this.ctx.log;
    if (header && this.header !== header) {
      this.header = header;
      showRun(this.fields, header);
    }
    this.#settingsChanged();
    this.#model();
    void this.recordings.load();
    void this.scenarios.load();
    if (this.ctx.ui.drawerAt === 'scenarios') this.scenarios.focus();
    else this.prompt.focus({ preventScroll: true });
    this.ctx.ui.drawerAt = 'prompt';
  }

  /** @param {Status|null} status */
  #controls(status) {
    const { actions } = this;
    const listens = actions.engineListens;
    const live = status?.model.live_session_id ?? null;
    const running = listens ? this.#running() : null;
    const last = listens ? this.#lastFinished() : null;
    const key = `${listens}:${live}:${running?.id}:${this.#isPristine}:${last}:${status?.model.state}:${status?.model.message}`;
    if (key === this.controlKey) return;
    this.controlKey = key;
    for (const button of this.root.querySelectorAll('form button'))
      /** @type {HTMLButtonElement} */ (button).disabled = !listens;
    this.scenarios.update(listens);
    this.continueButton.disabled = !listens || last === null || running !== null;
    this.cancelButton.hidden = !running;
    setText(this.cancelButton, fill(text.cancel, { letter: running?.letter ?? '' }));
    if (listens)
      replace(
        this.notice,
        running &&
          h(
            'p',
            { class: 'hint' },
            fill(this.#isPristine ? text.takesPlace : text.continueLater, { letter: running.letter }),
          ),
      );
    else if (live !== null)
      replace(
        this.notice,
        h('p', {}, text.isRecording),
        h('button', { type: 'button', class: 'primary', on: { click: () => this.openSession(null) } }, text.goLive),
      );
    else
      replace(
        this.notice,
        h(
          'p',
          {},
          status?.model.state === 'failed'
            ? fill(text.notReady, { state: status.model.message ?? status.model.state })
            : status?.model.state === 'none' || !status
              ? text.isRecording
              : text.waitingLoad,
        ),
      );
  }

  #model() {
    const { header } = this.ctx.log;
    if (!header) return;
    const { model } = header;
    if (hasNoModel(header)) {
      replace(this.modelPart, h('p', { class: 'hint' }, text.noModel));
      return;
    }
    replace(
      this.modelPart,
      h('p', {}, model.name, h('span', { class: 'hint' }, ` ${model.architecture}`)),
      h('p', {}, fill(text.parameters, { n: count(model.num_parameters), bytes: bytes(model.weight_bytes) })),
      model.self_check &&
        h(
          'p',
          {},
          fill(text.selfCheck, {
            difference: model.self_check.max_difference.toPrecision(2),
            range: model.self_check.range.toPrecision(3),
          }),
        ),
      h('p', { class: 'hint' }, fill(text.fingerprint, { fingerprint: model.fingerprint.slice(0, 16) })),
    );
  }
}

/** @returns {HTMLElement} */
function otherPages() {
  const { title, ...pages } = text.pages;
  return h(
    'nav',
    { class: 'other-pages', 'aria-label': title },
    h('h3', {}, title),
    h(
      'ul',
      {},
      Object.entries(pages).map(([name, [label, note]]) =>
        h('li', {}, h('a', { href: name }, label), h('span', { class: 'hint' }, note)),
      ),
    ),
  );
}
