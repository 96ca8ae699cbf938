/** The inputs of a study, as a form. It writes `asked` and reports changes. Invalid input gets an error at once. */
import { traces as t } from '../strings/traces.js';
import { h, replace } from '../ui/dom.js';
import { bytes, count, fill } from '../ui/format.js';
import { MAX_PREFILL, POLICIES, natural } from './state.js';
import { cacheOf, nameOf } from './text.js';
/** @import { Asked } from './state.js' */
/** @import { Overview } from './api.js' */

const SLIDER = 1000;
const SMALLEST_SHARE = 512;

export class Form {
  /**
   * @param {HTMLFormElement} root @param {Asked} asked @param {Overview} overview
   * @param {{changed: () => void, file: (file: File) => void, cancel: () => void, preview: (blocks: number) => void}} on
   */
  constructor(root, asked, overview, on) {
    this.asked = asked;
    this.overview = overview;
    this.on = on;
    this.distinct = 0;
    /** A file's id, if there is a file. @type {string|null} */
    this.fileId = null;
    /** @type {HTMLInputElement[]} */
    this.boxes = [];
    this.runButton = h('button', { type: 'submit', class: 'primary' }, t.run);
    this.cancelButton = h(
      'button',
      { type: 'button', class: 'secondary', hidden: true, on: { click: on.cancel } },
      t.cancel,
    );
    this.bar = h('progress', { class: 'traces-progress', max: 1, value: 0, hidden: true, 'aria-label': t.progress });
    this.message = h('p', { class: 'traces-message', role: 'status' });
    /** The progress of a study, and its error; shown above the results. */
    this.status = h('div', { class: 'traces-status' }, this.message, this.bar, this.cancelButton);
    root.append(
      this.#traces(),
      this.#capacity(),
      this.#policies(),
      this.#numbers(),
      h('div', { class: 'traces-run' }, this.runButton),
    );
    root.addEventListener('submit', (event) => {
      event.preventDefault();
      this.status.scrollIntoView({ block: 'nearest' });
      on.changed();
    });
    this.show();
  }

  #traces() {
    this.fileInput = h('input', {
      type: 'file',
      class: 'visually-hidden',
      id: 'trace-file',
      accept: '.jsonl,.json,.gz,.ndjson,.txt',
      on: { change: () => this.#files(this.fileInput?.files ?? null) },
    });
    this.fileName = h('span', { class: 'traces-file-name' });
    this.choices = this.overview.generated.map((made) =>
      this.#choice(made.trace, made.title, `${made.about} (${fill(t.generatedNote, { seed: made.seed })})`),
    );
    const fileRadio = h('input', { type: 'radio', name: 'trace', value: 'file', id: 'trace-own', disabled: true });
    this.fileRadio = fileRadio;
    const drop = h(
      'div',
      { class: 'cluster traces-drop' },
      h('label', { class: 'secondary traces-choose', for: 'trace-file' }, t.choose),
      this.fileInput,
      h('p', { class: 'hint' }, fill(t.drop, { bytes: bytes(this.overview.limits.bytes) })),
    );
    for (const type of ['dragover', 'dragleave', 'drop']) {
      document.addEventListener(type, (event) => this.#drag(/** @type {DragEvent} */ (event), drop));
    }
    return h(
      'fieldset',
      {},
      h('legend', {}, t.trace),
      h('p', { class: 'note traces-kind' }, t.generated),
      this.choices,
      h('p', { class: 'note traces-kind' }, t.file),
      (this.fileRow = h('label', { class: 'traces-choice', for: 'trace-own', hidden: true }, fileRadio, this.fileName)),
      drop,
      h('p', { class: 'hint' }, t.format),
    );
  }

  /** @param {string} value @param {string} title @param {string} about */
  #choice(value, title, about) {
    const input = h('input', {
      type: 'radio',
      name: 'trace',
      value,
      id: `trace-${value}`,
      on: {
        change: () => {
          this.asked.trace = value;
          this.asked.blocks = null;
          this.#changed();
        },
      },
    });
    return h(
      'label',
      { class: 'traces-choice', for: input.id },
      input,
      h('span', {}, title, h('span', { class: 'hint' }, about)),
    );
  }

  #capacity() {
    const way = (/** @type {boolean} */ byMemory, /** @type {string} */ text) =>
      h(
        'label',
        { class: 'check' },
        h('input', {
          type: 'radio',
          name: 'way',
          value: byMemory ? 'memory' : 'blocks',
          on: {
            change: () => {
              this.asked.byMemory = byMemory;
              this.#changed();
            },
          },
        }),
        text,
      );
    const blocks = (this.blocks = h('input', {
      type: 'number',
      id: 'ask-blocks',
      min: 0,
      max: this.overview.limits.capacity,
      step: 1,
      inputmode: 'numeric',
      title: t.blocksHint,
      on: { change: () => this.#setBlocks(natural(blocks.value)) },
    }));
    const slider = (this.slider = h('input', {
      type: 'range',
      id: 'ask-share',
      min: 0,
      max: SLIDER,
      step: 5,
      on: {
        input: () => {
          blocks.value = String(this.#slid());
          slider.setAttribute('aria-valuetext', fill(t.holds, { n: count(this.#slid()) }));
          this.on.preview(this.#slid());
        },
        change: () => this.#setBlocks(this.#slid()),
      },
    }));
    const text = (/** @type {'memory'} */ name) =>
      h('input', {
        type: 'text',
        id: `ask-${name}`,
        value: this.asked[name],
        maxlength: 40,
        title: t.memoryHint,
        autocomplete: 'off',
        on: {
          change: (/** @type {Event} */ { target }) =>
            this.#set(name, /** @type {HTMLInputElement} */ (target).value.trim()),
        },
      });
    const select = (/** @type {'model'|'dtype'} */ name, /** @type {[string, string][]} */ options) =>
      h(
        'select',
        {
          id: `ask-${name}`,
          on: {
            change: (/** @type {Event} */ { target }) =>
              this.#set(name, /** @type {HTMLSelectElement} */ (target).value),
          },
        },
        options.map(([value, label]) => h('option', { value, selected: value === this.asked[name] }, label)),
      );
    this.byBlocks = h('div', { class: 'column traces-fields' }, field(t.blocks, blocks), field(t.share, slider));
    this.byMemory = h(
      'div',
      { class: 'column traces-fields' },
      field(t.memory, text('memory')),
      field(
        t.model,
        select(
          'model',
          this.overview.models.map((model) => [model.model_id, model.name]),
        ),
      ),
      field(
        t.dtype,
        select(
          'dtype',
          this.overview.dtypes.map((name) => [name, name]),
        ),
      ),
    );
    return h(
      'fieldset',
      {},
      h('legend', {}, t.capacity),
      (this.ways = h('div', { class: 'cluster traces-ways' }, way(false, t.inBlocks), way(true, t.inMemory))),
      this.byBlocks,
      this.byMemory,
    );
  }

  #policies() {
    this.boxes = POLICIES.map((policy) =>
      h('input', {
        type: 'checkbox',
        id: `policy-${policy}`,
        value: policy,
        on: {
          change: () => {
            this.asked.policies = POLICIES.filter((name, at) => this.boxes[at].checked);
            this.#changed();
          },
        },
      }),
    );
    const hints = /** @type {Record<string, string>} */ (t.policyHint);
    return h(
      'fieldset',
      {},
      h('legend', {}, t.policies),
      this.boxes.map((box) =>
        h(
          'label',
          { class: 'check traces-policy', for: box.id },
          box,
          h('span', { class: 'traces-mark', data: { policy: box.value }, 'aria-hidden': 'true' }),
          h('span', {}, nameOf(box.value), h('span', { class: 'hint' }, ` ${hints[box.value]}`)),
        ),
      ),
    );
  }

  #numbers() {
    const prefill = h('input', {
      type: 'number',
      id: 'ask-prefill',
      min: 1,
      max: MAX_PREFILL,
      step: 'any',
      inputmode: 'decimal',
      value: this.asked.prefill,
      title: t.prefillHint,
      on: {
        change: () => {
          const value = Number(prefill.value);
          if (prefill.reportValidity() && value > 0 && value <= MAX_PREFILL) this.#set('prefill', value);
        },
      },
    });
    const seed = h('input', {
      type: 'number',
      id: 'ask-seed',
      min: 0,
      max: this.overview.limits.seed,
      step: 1,
      inputmode: 'numeric',
      value: this.asked.seed,
      on: {
        change: () => {
          const value = natural(seed.value);
          if (seed.reportValidity() && value !== null) this.#set('seed', value);
        },
      },
    });
    return h('div', { class: 'column traces-fields traces-numbers' }, field(t.prefill, prefill), field(t.seed, seed));
  }

  /** @param {string} name @param {any} value */
  #set(name, value) {
    /** @type {any} */ (this.asked)[name] = value;
    this.#changed();
  }

  #changed() {
    this.show();
    this.on.changed();
  }

  /** @param {number|null} blocks */
  #setBlocks(blocks) {
    if (this.blocks?.reportValidity()) this.choose(blocks);
  }

  /** Sets the number of blocks, from the form or the chart. @param {number|null} blocks null: as by default */
  choose(blocks) {
    this.asked.byMemory = false;
    this.asked.blocks = blocks;
    this.#changed();
  }

  #slid() {
    const low = Math.max(1, this.distinct / SMALLEST_SHARE);
    return Math.round(low * (this.distinct / low) ** (Number(this.slider?.value) / SLIDER));
  }

  /** @param {FileList|null} files */
  #files(files) {
    const file = files?.[0];
    if (!file) return;
    if (file.size > this.overview.limits.bytes)
      this.tell(
        fill(t.tooLarge, { name: file.name, bytes: bytes(file.size), limit: bytes(this.overview.limits.bytes) }),
        true,
      );
    else this.on.file(file);
    if (this.fileInput) this.fileInput.value = '';
  }

  /** @param {DragEvent} event @param {HTMLElement} drop */
  #drag(event, drop) {
    if (!event.dataTransfer?.types.includes('Files')) return;
    event.preventDefault();
    drop.classList.toggle('traces-over', event.type === 'dragover');
    if (event.type === 'drop') this.#files(event.dataTransfer.files);
  }

  /** A file was uploaded. @param {string} id @param {string} name */
  setFile(id, name) {
    this.asked.trace = id;
    this.asked.blocks = null;
    this.fileId = id;
    if (this.fileName) this.fileName.textContent = name;
    this.show();
  }

  /** Shows the inputs in the form. */
  show() {
    const { asked } = this;
    const made = this.overview.generated.some(({ trace }) => trace === asked.trace);
    if (!made && this.fileId !== asked.trace && this.fileName) {
      this.fileId = asked.trace;
      this.fileName.textContent = t.fromLink;
    }
    for (const [at, { trace }] of this.overview.generated.entries()) {
      /** @type {HTMLInputElement} */ (this.choices?.[at].querySelector('input')).checked = trace === asked.trace;
    }
    if (this.fileRow && this.fileRadio) {
      this.fileRow.hidden = !this.fileId;
      this.fileRadio.disabled = !this.fileId;
      this.fileRadio.checked = !made;
      this.fileRadio.onchange = () => {
        asked.trace = this.fileId ?? asked.trace;
        asked.blocks = null;
        this.#changed();
      };
    }
    for (const radio of this.ways?.querySelectorAll('input') ?? [])
      radio.checked = (radio.value === 'memory') === asked.byMemory;
    if (this.byBlocks && this.byMemory)
      [this.byBlocks.hidden, this.byMemory.hidden] = [asked.byMemory, !asked.byMemory];
    this.boxes.forEach((box) => {
      box.checked = asked.policies.includes(box.value);
    });
  }

  /** @param {string} trace a generated one or a file's id @returns {string} what it is called here */
  titleOf(trace) {
    const made = this.overview.generated.find((each) => each.trace === trace);
    return made?.title ?? (trace === this.fileId ? this.fileName?.textContent : null) ?? t.fromLink;
  }

  /** The name of a cache: its blocks, or its memory if that was entered. @param {number} capacity in blocks @returns {string} */
  cacheTitle(capacity) {
    return this.asked.byMemory ? spaced(this.asked.memory) : cacheOf(capacity);
  }

  /** The number of tokens it holds.
   * @param {number} capacity in blocks @param {number} blockSize in tokens @returns {string} empty without a limit */
  holding(capacity, blockSize) {
    if (capacity === 0) return '';
    const { byMemory, memory, model, dtype } = this.asked;
    const values = {
      blocks: cacheOf(capacity),
      size: count(blockSize),
      tokens: count(capacity * blockSize),
      memory: spaced(memory),
      dtype,
      model: this.overview.models.find((each) => each.model_id === model)?.name ?? model,
    };
    return fill(byMemory ? t.holdingMemory : t.holding, values);
  }

  /** The trace's counts, and the capacity that follows. @param {number} distinct blocks of the trace @param {number} capacity */
  known(distinct, capacity) {
    this.distinct = distinct;
    if (this.blocks && document.activeElement !== this.blocks) this.blocks.value = String(capacity);
    if (!this.slider || document.activeElement === this.slider) return;
    const low = Math.max(1, distinct / SMALLEST_SHARE);
    this.slider.value = String(
      capacity === 0 || distinct <= 1
        ? SLIDER
        : Math.round((SLIDER * Math.log(Math.max(capacity, low) / low)) / Math.log(distinct / low)),
    );
    this.slider.setAttribute('aria-valuetext', fill(t.holds, { n: count(capacity) }));
  }

  /** @param {string} text @param {boolean} [wrong] */
  tell(text, wrong = false) {
    replace(this.message, text);
    this.message.classList.toggle('traces-wrong', wrong);
  }

  /** @param {number|null} progress 0–1; null: nothing runs */
  run(progress) {
    this.bar.hidden = this.cancelButton.hidden = progress === null;
    if (progress !== null) this.bar.value = progress;
  }
}

/** 40 GiB for 40GiB. @param {string} memory as it was typed @returns {string} */
function spaced(memory) {
  return memory.replace(/^([\d.]+)\s*(?=\D)/, '$1 ');
}

/** @param {string} text @param {HTMLElement} input */
function field(text, input) {
  return h('div', { class: 'column field traces-field' }, h('label', { for: input.id }, text), input);
}
