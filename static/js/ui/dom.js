/** Builds elements. Text is inserted as text; nothing here parses HTML. */

/** @typedef {string|number|Node|null|undefined|false} Child */

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, any>} [props] `class`, `on` (listeners by event), `data`, `style` (custom properties or px), else attributes; true sets an empty one, null or false none
 * @param {...(Child|Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  setProps(element, props);
  append(element, children);
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag @param {Record<string, any>} [props] @param {...(Child|Child[])} children @returns {SVGElementTagNameMap[T]}
 */
export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  setProps(element, props);
  append(element, children);
  return element;
}

/** @param {Element} element @param {(Child|Child[])[]} children */
function append(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** @param {HTMLElement|SVGElement} element @param {Record<string, any>} props */
function setProps(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'class') element.setAttribute('class', value);
    else if (name === 'on')
      for (const [type, listener] of Object.entries(value))
        element.addEventListener(type, /** @type {EventListener} */ (listener));
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (name === 'style')
      for (const [property, text] of Object.entries(value)) element.style.setProperty(property, String(text));
    else element.setAttribute(name, value === true ? '' : String(value));
  }
}

/** Replaces the contents. @param {Element} element @param {...(Child|Child[])} children */
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Replaces the contents; a focused button passes its focus to the one in its place.
 * @param {Element} element @param {...(Child|Child[])} children */
export function replaceButtons(element, ...children) {
  const at = [...element.querySelectorAll('button')].findIndex((button) => button === document.activeElement);
  replace(element, ...children);
  element.querySelectorAll('button')[at]?.focus({ preventScroll: true });
}

/** Sets the text only if it differs. @param {Node} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute only if it differs. @param {Element} element @param {string} name @param {string} value */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`The page has no element #${id}.`);
  return element;
}

/** A drawn symbol. @param {string} path @param {string} [className] @returns {SVGSVGElement} */
export function icon(path, className = 'icon') {
  return svg(
    'svg',
    { class: className, viewBox: '0 0 16 16', 'aria-hidden': 'true', focusable: 'false' },
    svg('path', { d: path }),
  );
}

export const PATHS = {
  play: 'M4 2.5v11l9-5.5z',
  pause: 'M4 2.5h3v11H4zM9 2.5h3v11H9z',
  forward: 'M3 2.5v11l7-5.5zM11 2.5h2v11h-2z',
  back: 'M13 2.5v11L6 8zM3 2.5h2v11H3z',
  first: 'M14 2.5v11L9 8zM8 2.5v11L3 8zM1.5 2.5h1.5v11H1.5z',
  nextMark: 'M3 4v8l4-4zM8 4v8l4-4zM12.5 2h1.5v12h-1.5z',
  previousMark: 'M13 4v8L9 8zM8 4v8L4 8zM2 2h1.5v12H2z',
  check: 'M6.2 12.6 2 8.4l1.6-1.6 2.6 2.6 6.2-6.2L14 4.8z',
  cross: 'M3.4 2 8 6.6 12.6 2 14 3.4 9.4 8l4.6 4.6-1.4 1.4L8 9.4 3.4 14 2 12.6 6.6 8 2 3.4z',
  dash: 'M3 7h10v2H3z',
  pen: 'M11.3 1.6 14.4 4.7 5 14.1 1.2 14.8 1.9 11z',
  panel: 'M1.5 2.5h13v11h-13zM3 4v8h6V4zM10.5 4v8H13V4z',
  left: 'M10.5 2.5v11L4.5 8z',
  right: 'M5.5 2.5v11l6-5.5z',
};
