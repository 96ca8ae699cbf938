/** Loads plotly's script and the charts' stylesheet, once, when the first chart is drawn. */
import { h } from './dom.js';

/** The part of plotly's API that is used.
 * @typedef {object} Plotly
 * @property {(element: HTMLElement, traces: object[], layout: object, config: object) => Promise<unknown>} react
 * @property {(figure: object, options: {format: 'png'|'svg', width: number, height: number, scale?: number}) => Promise<string>} toImage
 * @property {(element: HTMLElement) => void} purge */

const SCRIPT = new URL('../../../vendor/plotly.min.js', import.meta.url);
const STYLES = new URL('../../css/plot.css', import.meta.url);
/** The id of a style element that the script omits if the page already has an element with it. */
const STYLE_ID = /getElementById\("([0-9a-f]{64})"\)/g;

/** @type {Promise<Plotly>|null} */
let loading = null;

/** Plotly, ready to draw, as one promise for all callers. It rejects with a sentence; the next call tries again.
 * @returns {Promise<Plotly>} */
export function loadPlotly() {
  loading ??= begin().catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

/** @returns {Promise<Plotly>} */
async function begin() {
  if (!document.querySelector('link[data-plot]'))
    await added(h('link', { rel: 'stylesheet', href: STYLES.href, data: { plot: '' } }));
  const response = await fetch(SCRIPT);
  if (!response.ok) throw new Error(await reasonOf(response));
  // The page allows no style elements; plot.css has the necessary ones of plotly's styles.
  const ids = [...(await response.text()).matchAll(STYLE_ID)].map((match) => match[1]);
  for (const id of ['plotly.js-style-global', ...ids]) {
    if (!document.getElementById(id)) document.head.append(h('meta', { id, class: 'no-inline-styles' }));
  }
  await added(h('script', { src: SCRIPT.href }));
  return /** @type {any} */ (window).Plotly;
}

/** @param {HTMLScriptElement|HTMLLinkElement} element @returns {Promise<void>} */
function added(element) {
  return new Promise((resolve, reject) => {
    element.addEventListener('load', () => resolve());
    element.addEventListener('error', () =>
      reject(new Error(element instanceof HTMLScriptElement ? element.src : element.href)),
    );
    document.head.append(element);
  });
}

/** The server's message, else the status. @param {Response} response @returns {Promise<string>} */
async function reasonOf(response) {
  try {
    const { message } = await response.json();
    if (typeof message === 'string') return message;
  } catch {
    return `HTTP ${response.status}`;
  }
  return `HTTP ${response.status}`;
}
