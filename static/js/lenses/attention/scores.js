/** The arithmetic of one weight: q·k, the model's own scaling and soft cap, softmax. All figures come from frames. */
import { fill, percent } from '../../ui/format.js';
import { quoted } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
/** @import { Ctx } from '../../core/types.d.ts' */
/** @import { Arithmetic, Term } from './arithmetic.js' */
/** @import { AttentionFrame } from './frame.js' */
/** @import { CachePicture } from '../cache/picture.js' */

export class Scores {
  /** @param {Ctx} ctx */
  constructor(ctx) {
    this.ctx = ctx;
  }

  /** @param {Arithmetic} sum @param {CachePicture} picture @param {{head: number|null, position: number}} pointed @param {AttentionFrame} frame */
  show(sum, picture, { head, position }, frame) {
    const { ctx } = this;
    const t = texts.attention;
    const request = picture.request;
    if (!request) return;
    const step = picture.attentionAfter;
    const token = quoted(request.pieces[position]);
    const asker = quoted(request.pieces[frame.numRead - 1]);
    const weight = frame.weightAt(head, position);
    if (head === null) {
      const terms =
        weight === null
          ? []
          : [{ name: fill(t.meanTerm, { n: frame.heads().length - 1 }), value: percent(weight), strong: true }];
      sum.show(fill(t.terms.key, { position, token }), terms, '');
      return;
    }
    const lead = `${fill(t.terms.heads, { head, asker })} · ${fill(t.terms.key, { position, token })}`;
    const pack = ctx.timeline.moving ? null : ctx.frames.scores(step, ctx.ui.layer, position, request.id);
    const terms = pack ? this.#terms(pack.arrays, head) : [];
    const problem = ctx.frames.problem('scores', step, ctx.ui.layer, position, request.id);
    const note = pack
      ? ''
      : problem
        ? problem.code === 'not_in_recording'
          ? t.scoresRecording
          : t.scoresMissing
        : ctx.timeline.moving
          ? ''
          : t.scoresPending;
    if (terms.length === 0 && weight !== null)
      terms.push({ name: t.terms.weight, value: percent(weight), strong: true });
    sum.show(lead, terms, note);
  }

  /** @param {Record<string, Float32Array|Uint8Array>} arrays @param {number} head @returns {Term[]} */
  #terms({ dot, scaled, weight }, head) {
    const { ctx } = this;
    const t = texts.attention.terms;
    const geometry = ctx.log.header?.model.layers[ctx.ui.layer];
    const scaling = geometry?.scaling ?? 1;
    const softcap = geometry?.softcap ?? null;
    /** @type {Term[]} */
    const terms = [
      { name: t.dot, value: figure(dot[head]) },
      { name: fill(t.scaled, { scaling: short(scaling) }), value: figure(dot[head] * scaling) },
    ];
    if (softcap !== null)
      terms.push({ name: fill(t.softcap, { softcap: short(softcap) }), value: figure(scaled[head]) });
    terms.push({ name: t.weight, value: percent(weight[head]), strong: true });
    return terms;
  }
}

/** @param {number} value @returns {string} */
function figure(value) {
  return (Math.abs(value) >= 100 ? value.toFixed(1) : value.toFixed(2)).replace('-', '−');
}

/** @param {number} value @returns {string} */
function short(value) {
  return String(Number(value.toPrecision(4)));
}
