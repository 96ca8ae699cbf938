/**
 * The timing experiment: one tenant guesses another's prompt from the time to first token alone. Everything shown
 * comes from `probe_timed` events up to the cursor.
 */
import { experiments } from '../../strings/experiments.js';
import { reasonOf } from '../../ui/ask.js';
import { PATHS, h, icon, replace, setText } from '../../ui/dom.js';
import { fill, percent } from '../../ui/format.js';
import { Plot } from '../../ui/plot.js';
import { time } from './bandwidth-figures.js';
import { attackOf } from './timing-model.js';
import { timingPlot } from './timing-plot.js';
/** @import { Ctx, Scene } from '../../core/types.d.ts' */
/** @import { ProbeTimed } from '../../core/events.d.ts' */
/** @import { Attack } from './timing-model.js' */

const t = experiments.timing;

/** The results of runs that this window has shown, by whether the cache was shared, so that both can be compared.
 * @type {Map<boolean, {logId: string|null, accuracy: number, num: number}>} */
const seen = new Map();

/** @type {import('../../core/types.d.ts').CreateLens} */
export function create(root, ctx) {
  return new TimingView(root, ctx);
}

class TimingView {
  drawn = '';
  /** @type {Attack} */
  attack = attackOf([]);

  /** @param {HTMLElement} root @param {Ctx} ctx */
  constructor(root, ctx) {
    this.root = root;
    this.ctx = ctx;
    const choice = (/** @type {'shared'|'isolated'} */ value) =>
      h(
        'label',
        { class: 'exp-choice' },
        h('input', { type: 'radio', name: 'timing-regime', value, checked: value === 'shared' }),
        t[value],
      );
    this.regime = h(
      'fieldset',
      { class: 'cluster exp-choices' },
      h('legend', {}, t.regime),
      choice('shared'),
      choice('isolated'),
    );
    this.run = h('button', { type: 'submit', class: 'primary' }, t.run);
    this.note = h('span', { class: 'exp-run-note', role: 'status' });
    this.form = h(
      'form',
      { class: 'cluster exp-form', on: { submit: (/** @type {Event} */ event) => this.#start(event) } },
      this.regime,
      this.run,
      this.note,
    );
    this.title = h('h3', {});
    this.accuracy = h('span', { class: 'strong exp-accuracy' });
    this.of = h('span', {});
    this.chance = h('span', { class: 'strong' }, t.chance);
    this.before = h('p', { class: 'exp-before' });
    this.last = h('dl', { class: 'exp-last' });
    const plotRoot = h('div', { class: 'exp-plot' });
    this.plot = new Plot(plotRoot, { label: t.axis, file: 'kvviz-timing-attack' });
    this.key = h(
      'p',
      { class: 'cluster small-note exp-key' },
      h('span', { class: 'exp-mark exp-mark-ring' }, t.lastKey),
      h('span', { class: 'exp-mark' }, icon(PATHS.cross, 'icon exp-mark-bad'), t.misjudged),
      h('span', {}, t.thresholdNote),
    );
    this.empty = h('div', { class: 'exp-empty' }, h('p', {}, t.empty), h('p', { class: 'hint' }, t.emptyLong));
    this.body = h(
      'div',
      { class: 'exp-found', hidden: true },
      h(
        'div',
        { class: 'exp-outcome' },
        h('div', {}, this.title, h('p', {}, this.accuracy, this.of, ' · ', this.chance), this.before),
        h('div', {}, h('h3', { class: 'exp-last-title' }, t.last), this.last),
      ),
      plotRoot,
      this.key,
    );
    this.scroll = h(
      'div',
      { class: 'note exp exp-timing', role: 'region', 'aria-label': t.title, tabindex: 0 },
      h('div', { class: 'exp-head' }, h('h2', {}, t.title), h('p', {}, t.lead)),
      this.form,
      this.empty,
      this.body,
      h(
        'section',
        { class: 'exp-real' },
        h('h3', {}, t.realTitle),
        h(
          'ul',
          {},
          t.real.map((text) => h('li', {}, text)),
        ),
      ),
    );
    root.append(this.scroll);
  }

  /** @param {Scene} scene */
  update(scene) {
    const { log } = this.ctx;
    const world = /** @type {{probes?: readonly ProbeTimed[]}} */ (scene.step ? scene.before : scene.after);
    const probes = world.probes ?? [];
    const listens = log.header?.capabilities.includes('commands') ?? false;
    this.run.disabled = !listens;
    if (!listens) setText(this.note, t.needsLive);
    else if (this.note.textContent === t.needsLive) setText(this.note, '');
    const width = this.plot.area.clientWidth || this.scroll.clientWidth;
    const state = [log.logId, probes.length, width].join('|');
    if (state === this.drawn) return;
    this.drawn = state;
    this.attack = attackOf(probes);
    this.#draw(width);
  }

  draw() {}

  /** @param {number} width */
  #draw(width) {
    const { attack } = this;
    const { shared, accuracy, numGuesses } = attack;
    this.empty.hidden = shared !== null;
    this.body.hidden = shared === null;
    this.#remember();
    if (shared === null) return;
    setText(this.title, shared ? t.titleShared : t.titleIsolated);
    setText(this.accuracy, accuracy === null ? '–' : percent(accuracy));
    setText(this.of, accuracy === null ? t.learning : fill(t.accuracy, { n: numGuesses }));
    this.#last();
    const { traces, layout } = timingPlot(attack, width, this.ctx.palette.px('text-xs'));
    this.plot.label = this.describe();
    void this.plot.draw(traces, layout);
    this.#table();
  }

  /** The result of the last run of the other kind. */
  #remember() {
    const { shared, accuracy, numGuesses } = this.attack;
    const { logId } = this.ctx.log;
    if (shared !== null && accuracy !== null) {
      const known = seen.get(shared);
      if (known?.logId !== logId || (known?.num ?? 0) < numGuesses)
        seen.set(shared, { logId, accuracy, num: numGuesses });
    }
    const other = shared === null ? undefined : seen.get(!shared);
    setText(
      this.before,
      other && other.logId !== logId
        ? fill(t.before, {
            how: shared ? t.how.isolated : t.how.shared,
            percent: percent(other.accuracy),
            n: other.num,
          })
        : '',
    );
  }

  /** The last probe: what the attacker saw, what it concluded, and the truth. */
  #last() {
    const { last } = this.attack;
    if (!last) return;
    const row = (/** @type {string} */ name, /** @type {(Node|string)[]} */ value) => [
      h('dt', {}, name),
      h('dd', {}, value),
    ];
    const said = last.says_secret;
    const right = said === last.is_secret;
    const hit = last.num_hit_tokens > 0 ? fill(t.hit, { n: last.num_hit_tokens }) : t.miss;
    const verdict = h(
      'span',
      { class: `exp-verdict ${right ? 'exp-verdict-right' : 'exp-verdict-wrong'}` },
      icon(right ? PATHS.check : PATHS.cross),
      right ? t.correct : t.incorrect,
    );
    replace(
      this.last,
      row(t.lastSaw, [time(last.first_token_us)]),
      row(t.lastSaid, said === null ? [t.lesson] : [said ? t.asked : t.notAsked, verdict]),
      row(t.lastTrue, [said === null ? hit : `${last.is_secret ? t.asked : t.notAsked}; ${hit}`]),
    );
  }

  #table() {
    const { probes } = this.attack;
    const row = (/** @type {ProbeTimed} */ probe) => {
      const lesson = probe.says_secret === null;
      const prompt = lesson
        ? probe.num_hit_tokens > 0
          ? t.prompts.again
          : t.prompts.first
        : probe.is_secret
          ? t.prompts.right
          : t.prompts.wrong;
      const cells = [
        prompt,
        time(probe.first_token_us),
        lesson ? t.none : probe.says_secret ? t.asked : t.notAsked,
        lesson ? t.none : probe.is_secret ? t.asked : t.notAsked,
        String(probe.num_hit_tokens),
      ];
      return [probe.probe + 1, ...cells];
    };
    this.plot.table({ caption: t.table, headers: t.columns, rows: () => probes.map(row) });
  }

  /** @param {Event} event */
  async #start(event) {
    event.preventDefault();
    const { ctx } = this;
    const chosen = new FormData(this.form).get('timing-regime');
    this.run.disabled = true;
    setText(this.note, t.running);
    try {
      await ctx.send({ command: 'scenario', name: chosen === 'isolated' ? 'timing-isolated' : 'timing-shared' });
      ctx.timeline.pin();
      await ctx.run(null);
      setText(this.note, '');
    } catch (error) {
      setText(this.note, fill(t.failed, { message: reasonOf(error) }));
    }
    this.run.disabled = false;
  }

  /** @returns {string} */
  describe() {
    const { attack } = this;
    if (attack.shared === null) return t.empty;
    const title = attack.shared ? t.titleShared : t.titleIsolated;
    if (attack.accuracy === null) return `${title}. ${t.learning}`;
    const of = (/** @type {number|null} */ us) => (us === null ? t.none : time(us));
    return fill(t.describe, {
      title,
      n: attack.numGuesses,
      percent: percent(attack.accuracy),
      right: of(attack.rightUs),
      wrong: of(attack.wrongUs),
      threshold: of(attack.thresholdUs),
    });
  }

  destroy() {
    this.plot.destroy();
    this.root.replaceChildren();
  }
}
