/** The named scenarios. Live, the engine runs one in a new log; otherwise its recording is opened, if there is one. */
import { strings } from '../strings/main.js';
import { h, setText } from '../ui/dom.js';
/** @import { Ctx, LensName } from '../core/types.d.ts' */
/** @typedef {keyof typeof strings.drawer.scenario} ScenarioName */
/** @typedef {{id: string, session_id: string}} Recording */

/** The lens that shows it best. @type {Record<ScenarioName, LensName>} */
export const SCENARIOS = {
  shared_prompt: 'pages',
  changed_letter: 'pages',
  changed_dtype: 'pages',
  long_prompt_chunked: 'batch',
  long_prompt_whole: 'batch',
  preempt_recompute: 'batch',
  preempt_swap: 'batch',
  fork_tree: 'pages',
  offload: 'pages',
  twelve_users: 'batch',
  tenant_salts: 'pages',
};
const NAMES = /** @type {ScenarioName[]} */ (Object.keys(SCENARIOS));

/** @param {readonly Recording[]} recordings @param {string} name @returns {Recording|undefined} the one whose id contains the name */
function recordingOf(recordings, name) {
  return recordings.find(({ id }) => id.replaceAll('-', '_').includes(name));
}

/**
 * @param {Ctx} ctx @param {(name: ScenarioName) => Promise<void>} run on the live engine @param {(session: string) => void} open a recording
 * @returns {{root: HTMLElement, update: (listens: boolean) => void, load: () => Promise<void>, focus: () => void}}
 */
export function scenariosPart(ctx, run, open) {
  const text = strings.drawer;
  let listens = false;
  /** @type {Recording[]} */
  let recordings = [];
  const note = h('p', { class: 'hint', hidden: true }, text.scenariosRecorded);
  const items = NAMES.map((name) => {
    const about = h('span', {}, text.scenario[name].note);
    return {
      name,
      about,
      button: h(
        'button',
        { type: 'button', class: 'column preset', data: { scenario: name }, on: { click: () => void choose(name) } },
        h('strong', {}, text.scenario[name].title),
        about,
      ),
    };
  });
  const root = h(
    'section',
    { class: 'scenarios', 'aria-labelledby': 'scenarios-title' },
    h('h3', { id: 'scenarios-title' }, text.scenarios),
    note,
    h(
      'div',
      { class: 'presets' },
      items.map((item) => item.button),
    ),
  );

  /** @param {ScenarioName} name */
  async function choose(name) {
    const recording = listens ? undefined : recordingOf(recordings, name);
    if (!listens && !recording) return;
    if (recording) open(recording.session_id);
    else await run(name);
    if (ctx.ui.lens === 'cache' || ctx.ui.lens === 'attention') ctx.ui.set({ lens: SCENARIOS[name] });
  }

  function show() {
    note.hidden = listens;
    for (const { name, about, button } of items) {
      const missing = !listens && !recordingOf(recordings, name);
      button.disabled = missing;
      setText(about, missing ? text.scenarioMissing : text.scenario[name].note);
    }
  }

  return {
    root,
    update(now) {
      listens = now;
      show();
    },
    async load() {
      try {
        const response = await fetch('api/recordings');
        recordings = response.ok ? await response.json() : [];
      } catch {
        recordings = [];
      }
      show();
    },
    focus() {
      root.scrollIntoView({ block: 'start' });
      items.find(({ button }) => !button.disabled)?.button.focus({ preventScroll: true });
    },
  };
}
