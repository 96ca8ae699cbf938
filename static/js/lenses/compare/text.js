/** The compare lens in words: badges, numbers, and the description of the picture. */
import { EXACT_LIMIT, isProved } from '../../core/lane-figures.js';
import { fill, plural, small } from '../../ui/format.js';
import { quoted } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
import { leadsOf } from './lane-lead.js';
/** @import { Lane, Lanes } from './model.js' */

const t = texts.compare;

/** What is proved about a lane. @param {Lane} lane @returns {{kind: 'reference'|'proved'|'wrong'|'lossy'|'none', text: string}} */
export function badgeOf({ header, figures, index }) {
  if (index === 0) return { kind: 'reference', text: t.badge.reference };
  if (!figures) return { kind: 'none', text: t.badge.none };
  if (!header.exact)
    return {
      kind: 'lossy',
      text: fill(t.badge.lossy, { n: figures.count - figures.num_differing, all: plural(t.nTokens, figures.count) }),
    };
  if (isProved(figures))
    return {
      kind: 'proved',
      text: fill(t.badge.proved, { all: plural(t.nTokens, figures.count), diff: small(figures.max_abs_logit_diff) }),
    };
  const why =
    figures.num_differing > 0
      ? fill(t.badge.tokens, { n: figures.num_differing, all: figures.count })
      : fill(t.badge.logits, { diff: small(figures.max_abs_logit_diff), limit: EXACT_LIMIT });
  return { kind: 'wrong', text: fill(t.badge.wrong, { why }) };
}

/** The effect of a lossy lane on the probabilities, which its tokens alone don't show. @param {Lane} lane @returns {string} */
export function harmOf({ header, figures, index }) {
  return index === 0 || !figures || header.exact ? '' : fill(t.summary.kl, { kl: small(figures.mean_kl) });
}

/** The prediction of a lane at one token.
 * @param {Lane} lane @param {number} index among the new tokens @param {Lanes} lanes @returns {string} */
export function cellText(lane, index, { lanes, request }) {
  const one = lane.measured[index];
  const reference = lanes[0].measured[index];
  if (!one || index >= lane.count || !request) return '';
  const taken = quoted(request.pieces[reference.position]);
  const values = { lane: lane.header.spec, index, taken, token: taken, own: quoted(one.own_piece), kl: small(one.kl) };
  if (lane.index === 0) return fill(t.tape.ref, values);
  const own = one.agrees ? fill(t.tape.same, values) : fill(t.tape.own, values);
  const first = lane.figures?.first_divergence ?? null;
  if (first === null || index < first) return own;
  return `${own}; ${one.free_piece ? fill(t.tape.free, { free: quoted(one.free_piece) }) : t.tape.over}`;
}

/** @param {Lanes} lanes @returns {string} */
export function describeLanes(lanes) {
  if (lanes.count === 0) return t.waiting;
  const leads = leadsOf(lanes.lanes);
  const each = lanes.lanes.map((lane, i) =>
    fill(t.describeLane, {
      lane: lane.header.spec,
      cost: `${leads[i].value} ${leads[i].unit}`,
      badge: badgeOf(lane).text.replace(/^[✓✗] /, ''),
    }),
  );
  return fill(t.describe, {
    n: lanes.lanes.length,
    letter: lanes.request?.letter ?? '',
    count: lanes.count,
    all: lanes.planned,
    lanes: each.join(' '),
  });
}
