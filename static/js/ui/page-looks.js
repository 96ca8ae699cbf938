/** Theme and projector mode of the calculator and traces pages: the same settings, stored in the same place, changed by button or key. */
import { pagesTexts as t } from '../strings/page-looks.js';
import { byId, h, setText } from './dom.js';
import { fill } from './format.js';
import { THEMES, Ui } from './store.js';

/** Applies the stored settings and adds the controls to the bar. @returns {Ui} */
export function pageLooks() {
  const ui = new Ui();
  ui.load(new URLSearchParams(location.search));
  const theme = h('button', {
    type: 'button',
    class: 'note bar-button',
    title: t.themeHint,
    on: { click: () => nextTheme(ui) },
  });
  const projector = h(
    'button',
    {
      type: 'button',
      class: 'note bar-button bar-projector',
      title: t.projectorHint,
      on: { click: () => ui.set({ projector: !ui.projector }) },
    },
    t.projector,
  );
  byId('topbar').append(projector, theme);
  const apply = () => {
    applyLooks(ui);
    setText(theme, fill(t.theme, { name: t.themes[ui.theme] }));
    projector.setAttribute('aria-pressed', String(ui.projector));
  };
  ui.changes.on(apply);
  matchMedia('(prefers-color-scheme: light)').addEventListener('change', apply);
  addEventListener('keydown', (event) => onKey(event, ui));
  apply();
  return ui;
}

/** @param {Ui} ui */
function nextTheme(ui) {
  ui.set({ theme: THEMES[(THEMES.indexOf(ui.theme) + 1) % THEMES.length] });
}

/** @param {Ui} ui */
function applyLooks(ui) {
  const light = ui.theme === 'light' || (ui.theme === 'system' && matchMedia('(prefers-color-scheme: light)').matches);
  const { dataset } = document.documentElement;
  dataset.theme = light ? 'light' : 'dark';
  dataset.projector = ui.projector ? 'on' : 'off';
}

/** @param {KeyboardEvent} event @param {Ui} ui */
function onKey(event, ui) {
  if (!ui.shortcuts || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  if (event.target instanceof HTMLElement && event.target.closest('input, textarea, select, [contenteditable]')) return;
  if (event.code === 'KeyT') nextTheme(ui);
  else if (event.code === 'KeyP') ui.set({ projector: !ui.projector });
}
