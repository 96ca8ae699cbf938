/** The triangle of a prefill step on the stage: fetched, painted once, with its legend and its tooltip. */
import { fitText, useFont } from '../../ui/canvas.js';
import { fill, percent } from '../../ui/format.js';
import { quoted } from '../../ui/text.js';
import { texts } from '../shared/texts.js';
import { tokenName } from '../shared/token-name.js';
import {
  drawTriangle,
  paintTriangle,
  readTriangle,
  triangleAt,
  triangleSpace,
  TRIANGLE_HIGH,
  TRIANGLE_LOW,
} from './triangle.js';
/** @import { Bitmap } from '../../ui/canvas.js' */
/** @import { Ctx, Pack } from '../../core/types.d.ts' */
/** @import { CachePicture } from '../cache/picture.js' */
/** @import { Triangle, TriangleSpace } from './triangle.js' */

export class TriangleView {
  /** @type {Triangle|null} */
  triangle = null;
  /** @type {TriangleSpace|null} */
  space = null;
  /** @type {{query: number, column: number}|null} */
  pointed = null;
  #key = '';
  /** @type {Pack|null} */
  #pack = null;

  /** @param {Ctx} ctx @param {Bitmap} bitmap */
  constructor(ctx, bitmap) {
    this.ctx = ctx;
    this.bitmap = bitmap;
  }

  /** @param {CanvasRenderingContext2D} context @param {CachePicture} picture @param {number} width @param {number} height */
  draw(context, picture, width, height) {
    const { ctx } = this;
    const { palette, ui } = ctx;
    const step = picture.attentionAfter;
    const head = ui.head ?? 0;
    const pack = ctx.frames.triangle(step, ui.layer, head, picture.request?.id);
    if (!pack) {
      this.triangle = null;
      const problem = ctx.frames.problem('triangle', step, ui.layer, head, picture.request?.id);
      const { triangleMissing, triangleRecording, triangleLoading } = texts.attention;
      return this.#say(
        context,
        !problem ? triangleLoading : problem.code === 'not_in_recording' ? triangleRecording : triangleMissing,
        width,
        height,
      );
    }
    const key = `${step}/${ui.layer}/${head}/${ui.hideSink}/${palette.version}`;
    if (key !== this.#key || pack !== this.#pack) {
      [this.#key, this.#pack] = [key, pack];
      this.triangle = readTriangle(pack, ui.hideSink);
      if (this.triangle) paintTriangle(this.bitmap, this.triangle, palette.magnitude());
    }
    const { triangle } = this;
    if (!triangle) return undefined;
    const small = palette.px('text-xs');
    const left = Math.round(small * (width < 560 ? 5 : 9));
    this.space = triangleSpace(triangle, left, small * 1.6, width - left - small * 2, height - small * 6.4);
    this.#legend(context, width, height);
    useFont(context, palette.font('text-xs'));
    context.fillStyle = palette.css('ink-2');
    context.textAlign = 'right';
    context.textBaseline = 'top';
    context.fillText(fitText(context, `${texts.attention.asks} ↓`, left - 8), left - 6, 2);
    const pieces = picture.request?.pieces;
    drawTriangle(context, palette, this.bitmap, this.space, triangle, (position) =>
      tokenName(pieces?.[position], position),
    );
    this.#ring(context);
    return undefined;
  }

  /** @param {CanvasRenderingContext2D} context @param {number} width @param {number} height */
  #legend(context, width, height) {
    const { palette } = this.ctx;
    const small = palette.px('text-xs');
    const { space } = this;
    if (!space) return;
    const table = palette.magnitude();
    const length = small * 15;
    const beside = width - space.x - space.width > length + small * 4;
    const x = beside ? space.x + space.width + small * 2.5 : Math.max(space.x, width - length - small * 2);
    const y = beside ? space.y + small * 2 : height - small * 2.4;
    for (let i = 0; i < length; i += 1) {
      const word = table[Math.round((i / length) * 255)];
      context.fillStyle = `rgb(${word & 255}, ${(word >> 8) & 255}, ${(word >> 16) & 255})`;
      context.fillRect(x + i, y, 1.5, small * 0.8);
    }
    useFont(context, palette.font('text-xs'));
    context.fillStyle = palette.css('ink-2');
    context.textBaseline = 'top';
    const decades = Math.round(Math.log10(TRIANGLE_HIGH / TRIANGLE_LOW));
    for (let i = 0; i <= decades; i += 1) {
      context.textAlign = i === 0 ? 'left' : i === decades ? 'right' : 'center';
      context.fillText(
        `${Number((TRIANGLE_LOW * 10 ** i * 100).toPrecision(2))} %`,
        x + (length * i) / decades,
        y + small * 1.1,
      );
    }
    if (!beside) return;
    context.textAlign = 'left';
    context.fillStyle = palette.css('ink-3');
    context.fillText(texts.attention.scale, x, y - small * 1.5);
  }

  /** @param {CanvasRenderingContext2D} context */
  #ring(context) {
    const { pointed, space, ctx } = this;
    if (!pointed || !space) return;
    context.strokeStyle = ctx.palette.css('selected');
    context.lineWidth = 2;
    context.strokeRect(
      space.x + pointed.column * space.cell - 1,
      space.y + pointed.query * space.cellHeight - 1,
      Math.max(3, space.cell + 1),
      Math.max(3, space.cellHeight + 1),
    );
  }

  /** @param {CanvasRenderingContext2D} context @param {string} text @param {number} width @param {number} height */
  #say(context, text, width, height) {
    useFont(context, this.ctx.palette.font('text-m'));
    context.fillStyle = this.ctx.palette.css('ink-3');
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillText(fitText(context, text, width - 20), width / 2, height / 2);
  }

  /** @param {number} x @param {number} y @returns {boolean} whether another cell is pointed at */
  point(x, y) {
    const { pointed } = this;
    this.pointed = this.triangle && this.space ? triangleAt(this.space, this.triangle, x, y) : null;
    return pointed?.query !== this.pointed?.query || pointed?.column !== this.pointed?.column;
  }

  /** @param {CachePicture|null} picture @returns {string} */
  pointedText(picture) {
    const { pointed, triangle } = this;
    const pieces = picture?.request?.pieces;
    if (!pointed || !triangle || !pieces) return '';
    const query = triangle.start + pointed.query;
    const position = pointed.column * triangle.bin;
    return fill(texts.attention.triangleCell, {
      query,
      asker: quoted(pieces[query]),
      position,
      token: quoted(pieces[position]),
      percent: percent(triangle.weight(pointed.query, pointed.column)),
    });
  }
}
