/** Agreement of a text with a count: catalogues write the plural, and a count of 1 makes it singular. */

const REGULAR =
  'blocks bytes chunks columns events GPUs heads holes lanes layers lines positions references requests sequences slots ' +
  'steps times tokens';
const NOUNS = /** @type {Record<string, string>} */ ({ entries: 'entry', prefixes: 'prefix' });
for (const noun of REGULAR.split(' ')) NOUNS[noun] = noun.slice(0, -1);

const VERBS = /** @type {Record<string, string>} */ ({
  are: 'is',
  fit: 'fits',
  'aren’t': 'isn’t',
  differ: 'differs',
  'don’t': 'doesn’t',
  have: 'has',
  lose: 'loses',
  match: 'matches',
  move: 'moves',
  need: 'needs',
  pass: 'passes',
  read: 'reads',
  stay: 'stays',
  wait: 'waits',
  were: 'was',
});

const verbs = Object.keys(VERBS).join('|');
const ADJECTIVES =
  'bad|cached|distinct|earlier|free|full|generated|host|KV|least recently used|more|new|other|prompt|Q|query|running';
/** A noun after a count, with the adjectives between them, and its verb. */
const COUNTED = new RegExp(`^((?: (?:${ADJECTIVES}))*) (${Object.keys(NOUNS).join('|')})\\b(?: (${verbs})(?![\\w’]))?`);
/** A verb directly after a count: `{free} are free`. */
const VERB = new RegExp(`^ (are|were) (?=available|blank|empty|first uses|free|still)`);
/** A number after these is an ordinal, not a count: `step 1`. */
const ORDINAL = /\b(block|index|layer|limit|position|priority|request|slot|step|token) $/;

/** The text between two placeholders as it reads after the count 1. `before`: the text before the count.
 * @param {string} text @param {string} before @returns {string} */
export function singular(text, before) {
  if (ORDINAL.test(before)) return text;
  return text
    .replace(COUNTED, (_, words, noun, verb) => `${words} ${NOUNS[noun]}${verb ? ` ${VERBS[verb]}` : ''}`)
    .replace(VERB, (_, verb) => ` ${VERBS[verb]} `);
}
