/** The calculator page: inputs on the left, the answer on the right, updated while the user types. */
import { calculatorTexts as t } from '../strings/calculator.js';
import { byId, h, replace, setText } from '../ui/dom.js';
import { binary, count, fill } from '../ui/format.js';
import { pageLooks } from '../ui/page-looks.js';
import { Asker, Gone, getChoices } from './ask.js';
import { Bar } from './bar.js';
import { Beside } from './beside.js';
import { Chart } from './chart.js';
import { CopyBar } from './copy.js';
import { FormulaPanel } from './formula.js';
import { GroupsTable } from './groups.js';
import { Headline } from './headline.js';
import { HelpList } from './help.js';
import { MistakesNote } from './mistakes.js';
import { ModelsPanel } from './models.js';
import { SettingsPanel } from './settings.js';
import { State } from './state.js';
import { exact } from './units.js';
/** @import { Choices, Reply } from './types.d.ts' */

const ANNOUNCE_MS = 900;
const RETRY_MS = 2000;
/** A shorter wait isn't shown, so that nothing flickers. */
const STALE_MS = 200;

class Page {
  /** The last answer of each model, kept until there is a newer one. @type {Reply[]} */
  #replies = [];
  /** @type {number|undefined} */
  #announcing;
  /** @type {number|undefined} */
  #waiting;
  #drawing = 0;

  /** @param {Choices} choices */
  constructor(choices) {
    this.ui = pageLooks();
    this.state = new State(choices);
    this.state.load(new URLSearchParams(location.search));
    this.models = new ModelsPanel(this.state);
    this.settings = new SettingsPanel(this.state);
    this.headline = new Headline();
    this.bar = new Bar();
    this.beside = new Beside(this.state, (index) => this.models.nameOf(index));
    this.chart = new Chart(this.state);
    this.help = new HelpList(this.state);
    this.formula = new FormulaPanel();
    this.groups = new GroupsTable();
    this.mistakes = new MistakesNote();
    this.copy = new CopyBar(
      () => this.#replies,
      (text) => this.#say(text, 0),
    );
    this.asker = new Asker({
      onReplies: (replies) => this.#answered(replies),
      onWait: (waits) => this.#wait(waits),
      onGone: (gone) => this.#gone(gone),
    });
    this.told = h(
      'div',
      { class: 'calc-told' },
      this.headline.element,
      this.bar.element,
      this.beside.element,
      h('div', { class: 'calc-row' }, this.chart.element, this.help.element),
      this.formula.element,
      this.groups.element,
      this.mistakes.element,
    );
    this.nothing = h('div', { class: 'calc-nothing', hidden: true });
    byId('inputs').append(this.models.element, this.settings.element);
    byId('inputs').addEventListener('submit', (event) => event.preventDefault());
    this.headline.element.append(this.copy.element);
    byId('answer').append(this.nothing, this.copy.note, this.told);
    this.#listen();
    this.#show();
    this.asker.ask(this.state.models, this.state.settings, 0);
  }

  #listen() {
    this.state.changes.on((what) => this.#changed(what));
    this.ui.changes.on(() => this.#address());
    addEventListener('dragover', (event) => event.preventDefault());
    addEventListener('drop', (event) => this.#dropped(event));
    addEventListener('paste', (event) => this.#pasted(event));
  }

  /** @param {string} what */
  #changed(what) {
    this.#show();
    if (what === 'view') return this.#draw();
    if (what === 'chosen') return this.#tell();
    this.asker.ask(this.state.models, this.state.settings);
  }

  #show() {
    this.models.show();
    this.settings.show();
    this.#address();
  }

  #address() {
    const others = new URLSearchParams(location.search);
    this.ui.save(others);
    this.copy.address(this.state.query(others));
  }

  /** @param {Reply[]} replies */
  #answered(replies) {
    const sameModels = this.#replies.length === replies.length;
    this.#replies = replies.map(({ answer, fault }, index) => ({
      answer: answer ?? (sameModels ? this.#replies[index].answer : null),
      fault,
    }));
    this.#tell();
  }

  #tell() {
    const { answer, fault } = this.#replies[this.state.chosen] ?? { answer: null, fault: null };
    this.models.update(this.#replies);
    const beside = this.settings.fault(fault?.message ?? null, String(fault?.details.setting ?? ''));
    this.models.fault(beside ? null : fault);
    this.beside.update(this.#replies);
    this.#draw();
    this.told.classList.toggle('is-old', fault !== null);
    this.told.hidden = answer === null;
    this.nothing.hidden = fault === null;
    if (fault)
      replace(
        this.nothing,
        h('p', {}, `${fault.message} ${answer ? t.old : ''}`),
        !answer && h('p', { class: 'cluster calc-ways-out' }, this.#waysOut(String(fault.details.setting ?? ''))),
      );
    document.documentElement.dataset.ready = 'yes';
    if (!answer) return this.#say(fault?.message ?? '');
    this.headline.update(answer, this.state.models.length > 1 ? this.state.chosen : null);
    this.bar.update(answer);
    this.help.update(answer);
    this.formula.update(answer.models[0]);
    this.groups.update(answer);
    this.mistakes.update(answer);
    const {
      settings,
      models: [model],
    } = answer;
    const fits = model.capacity ? fill(t.spokenFits, { n: count(model.capacity.max_sequences) }) : '';
    this.#say(
      fault?.message ??
        `${fill(t.spoken, { name: model.name, bytes: binary(model.total_bytes), exact: exact(model.total_bytes), tokens: count(settings.context), batch: count(settings.batch) })} ${fits}`,
    );
  }

  /** The chart is drawn after the figures, because it takes longer than all of them. */
  #draw() {
    cancelAnimationFrame(this.#drawing);
    this.#drawing = requestAnimationFrame(() => setTimeout(() => this.chart.update(this.#replies)));
  }

  /** If there has been no answer yet: the setting at its default, or another model. @param {string} setting */
  #waysOut(setting) {
    const { state } = this;
    const name = /** @type {keyof typeof state.defaults} */ (setting === 'card' ? 'gpu' : setting);
    if (name in state.defaults) {
      return [
        h(
          'button',
          { type: 'button', class: 'small-button', on: { click: () => state.set({ [name]: state.defaults[name] }) } },
          fill(t.useDefault, {
            name: t.settings[/** @type {'context'} */ (name)].label,
            value: String(state.defaults[name] ?? '–'),
          }),
        ),
      ];
    }
    return t.model.offered.map((id) =>
      h(
        'button',
        { type: 'button', class: 'small-button', on: { click: () => state.replace({ model: id }) } },
        state.choices.models.find((model) => model.model_id === id)?.name ?? id,
      ),
    );
  }

  /** The answer for screen readers, once it is stable. @param {string} text @param {number} [afterMs] */
  #say(text, afterMs = ANNOUNCE_MS) {
    clearTimeout(this.#announcing);
    this.#announcing = setTimeout(() => setText(byId('live'), text), afterMs);
  }

  /** @param {boolean} waits */
  #wait(waits) {
    clearTimeout(this.#waiting);
    if (!waits) this.told.classList.remove('is-waiting');
    else this.#waiting = setTimeout(() => this.told.classList.add('is-waiting'), STALE_MS);
  }

  /** @param {boolean} gone */
  #gone(gone) {
    const panel = byId('gone');
    panel.hidden = !gone;
    setText(panel, gone ? t.gone : '');
  }

  /** @param {DragEvent} event */
  #dropped(event) {
    const file = event.dataTransfer?.files[0];
    const text = event.dataTransfer?.getData('text/plain') ?? '';
    if (!file && !text.trimStart().startsWith('{')) return;
    event.preventDefault();
    this.models.take(file ?? text);
  }

  /** A config pasted outside any field. @param {ClipboardEvent} event */
  #pasted(event) {
    if (event.target instanceof HTMLElement && event.target.closest('input, textarea')) return;
    const file = event.clipboardData?.files[0];
    const text = event.clipboardData?.getData('text/plain') ?? '';
    if (file) this.models.take(file);
    else if (text.trimStart().startsWith('{')) this.models.take(text);
  }
}

/** Builds the page once the server has listed the choices. */
async function begin() {
  try {
    const choices = await getChoices();
    byId('boot').hidden = true;
    byId('gone').hidden = true;
    byId('calc').hidden = false;
    return new Page(choices);
  } catch (error) {
    if (!(error instanceof Gone)) throw error;
    byId('boot').hidden = true;
    byId('gone').hidden = false;
    setText(byId('gone'), t.goneFirst);
    setTimeout(begin, RETRY_MS);
    return null;
  }
}

void begin();
