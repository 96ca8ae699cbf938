/** Sentences as elements: K and V in their colours, glossary terms with a dotted underline, and linked things that highlight each other. */
import { strings } from '../strings/main.js';
import { h } from '../ui/dom.js';
import { tokenText } from '../ui/token.js';
/** @import { Segment } from '../ui/text.js' */
/** @import { Ui } from '../ui/store.js' */

/** @param {Segment[]} parts @param {Ui} ui @param {(anchor: HTMLElement, term: string) => void} explain @returns {Node[]} */
export function sentence(parts, ui, explain) {
  return parts.map((part) => (typeof part === 'string' ? document.createTextNode(part) : word(part, ui, explain)));
}

/** @param {Exclude<Segment, string>} part @param {Ui} ui @param {(anchor: HTMLElement, term: string) => void} explain @returns {HTMLElement} */
function word(part, ui, explain) {
  if (part.kind === 'term') {
    const term = part.term ?? part.text;
    const known = /** @type {Record<string, string>} */ (strings.glossary)[term.toLowerCase()];
    if (!known) return h('span', {}, part.text);
    const element = h('button', { type: 'button', class: 'term', 'aria-haspopup': 'dialog', title: known }, part.text);
    element.addEventListener('click', () => explain(element, known));
    return element;
  }
  const { selection } = part;
  const inside = part.kind === 'token' && part.piece ? tokenText(part.piece) : h('bdi', {}, part.text);
  if (!selection) return h('span', { class: `word word-${part.kind}` }, inside);
  return h(
    'span',
    {
      class: `word word-${part.kind} word-linked`,
      on: {
        pointerenter: () => ui.hover(selection),
        pointerleave: () => ui.hover(null),
        click: () => ui.pin(selection),
      },
    },
    inside,
  );
}
