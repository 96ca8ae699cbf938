/** The main figure of a lane: the one that its kind is meant to change, compared with the reference. Pure. */
import { bytes, count, duration, fill } from '../../ui/format.js';
import { texts } from '../shared/texts.js';
/** @import { Lane } from './model.js' */
/** @typedef {'bytes_per_token'|'held_bytes'|'read_bytes'|'copied_bytes'|'first_token_ms'|'ms_per_token'} LeadName */
/** `value` is the figure, `unit` what it measures, `detail` the two numbers behind it.
 * @typedef {{name: LeadName, value: string, unit: string, detail: string}} Lead */

const t = texts.compare.lead;

/** By the family of a lane, unless its name is listed. @type {Record<string, LeadName>} */
const BY_FAMILY = {
  heads: 'bytes_per_token',
  latent: 'bytes_per_token',
  bits: 'bytes_per_token',
  forgetting: 'read_bytes',
  allocation: 'held_bytes',
};
/** @type {Record<string, LeadName>} */
const BY_NAME = { 'no-cache': 'ms_per_token', concat: 'copied_bytes', 'no-prefix': 'first_token_ms' };

/** @type {Record<LeadName, {of: (lane: Lane) => number|null, text: (value: number) => string}>} */
const MEASURES = {
  bytes_per_token: { of: ({ header }) => header.bytes_per_token, text: (value) => `${count(value)} B` },
  held_bytes: { of: ({ figures }) => figures?.held_bytes ?? null, text: bytes },
  read_bytes: { of: ({ figures }) => figures?.read_bytes ?? null, text: bytes },
  copied_bytes: { of: ({ figures }) => figures?.copied_bytes ?? null, text: bytes },
  first_token_ms: { of: ({ figures }) => figures?.first_token_ms ?? null, text: duration },
  ms_per_token: { of: ({ figures }) => figures?.ms_per_token ?? null, text: duration },
};

/** @param {Lane} lane @returns {LeadName} a combination is known by what it holds */
function nameOf({ header }) {
  return header.spec.includes('+') ? 'held_bytes' : (BY_NAME[header.name] ?? BY_FAMILY[header.family] ?? 'held_bytes');
}

/** The main figure of each lane; the reference shows the one of the lane after it. @param {readonly Lane[]} lanes @returns {Lead[]} */
export function leadsOf(lanes) {
  const names = lanes.slice(1).map(nameOf);
  const first = names.find((name) => name !== 'copied_bytes') ?? 'held_bytes';
  return lanes.map((lane, index) =>
    index === 0 ? plainLead(lane, first, '') : leadOf(lane, lanes[0], names[index - 1]),
  );
}

/** @param {Lane} lane @param {LeadName} name @param {string} detail @returns {Lead} */
function plainLead(lane, name, detail) {
  const value = MEASURES[name].of(lane);
  return {
    name,
    value: value === null ? t.none : MEASURES[name].text(value),
    unit: t[name].of,
    detail: value !== null ? detail : lane.figures ? t.later : '',
  };
}

/** @param {Lane} lane @param {Lane} reference @param {LeadName} name @returns {Lead} */
function leadOf(lane, reference, name) {
  const { of, text } = MEASURES[name];
  const [own, other] = [of(lane), of(reference)];
  if (name === 'copied_bytes') return plainLead(lane, name, t[name].beside);
  if (own === null || !other) return { ...plainLead(lane, name, ''), unit: t[name].times };
  const detail = fill(own === other ? t[name].same : t[name].beside, { own: text(own), other: text(other) });
  return { name, value: fill(t.times, { x: timesText(own / other) }), unit: t[name].times, detail };
}

/** 17, 2.6, 1.02, 0.17: two digits, and a third only near 1 and from 100 on. @param {number} times @returns {string} */
export function timesText(times) {
  if (times >= 9.95 || times === 0) return times.toFixed(0);
  if (times >= 1.095) return times.toFixed(1).replace(/\.0$/, '');
  return times >= 0.995 ? times.toFixed(2).replace(/\.?0+$/, '') : times.toPrecision(2);
}
