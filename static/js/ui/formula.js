/** A formula with its numbers: factors, each of which highlights what it counts, and the signs between them. */
import { h } from './dom.js';
/** @import { Child } from './dom.js' */

/** A hovered or focused factor is highlighted.
 * @param {string} name of its class @param {{value: string, label: string, data: Record<string, string>, pressed?: boolean}} of
 * @param {() => void} light @param {() => void} dark @param {(button: HTMLElement) => void} press @returns {HTMLButtonElement} */
export function factorButton(name, { value, label, data, pressed }, light, dark, press) {
  const button = h(
    'button',
    {
      type: 'button',
      class: name,
      'aria-pressed': pressed === undefined ? null : String(pressed),
      data,
      on: { pointerenter: light, pointerleave: dark, focus: light, blur: dark, click: () => press(button) },
    },
    h('span', { class: 'strong' }, value),
    ' ',
    h('span', { class: 'small-note' }, label),
  );
  return button;
}

/** @param {readonly (Child|Child[])[]} parts @param {() => Child} sign between two of them @returns {Child[]} */
export function joined(parts, sign) {
  return parts.flatMap((part, index) => [index > 0 && sign(), part].flat());
}
