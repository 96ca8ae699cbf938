/** Hue and pattern of a request: four hues in order. From the fifth request on, a pattern distinguishes them; the letter always does. */
import { roundRect, stripes, useFont } from '../../ui/canvas.js';
/** @import { Palette } from '../../ui/palette.js' */

const NUM_HUES = 4;

/** @param {Palette} palette @param {number} requestId @returns {string} fill colour */
export function hueOf(palette, requestId) {
  return palette.css(palette.requestHue(requestId));
}

/** Fills the current path with a request's hue and, unless it is too small, its pattern.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} requestId @param {boolean} [plain] */
export function fillHue(context, palette, requestId, plain = false) {
  context.fillStyle = hueOf(palette, requestId);
  context.fill();
  const round = Math.floor(requestId / NUM_HUES) % 3;
  if (round === 0 || plain) return;
  context.fillStyle = stripes(context, palette.css('ground', 0.75), round === 1 ? 5 : 3, round === 1 ? 1.5 : 1);
  context.fill();
}

/** The edge that yellow needs on a light background. @param {Palette} palette @returns {string|null} */
export function hueOutline(palette) {
  const color = palette.get('request-outline');
  return color === '' || color === 'transparent' ? null : color;
}

/** A letter in its request's hue.
 * @param {CanvasRenderingContext2D} context @param {Palette} palette @param {number} requestId @param {string} letter
 * @param {number} x @param {number} y @param {number} width @param {number} height
 * @param {boolean|'waits'} over the request has ended; `waits`: it holds nothing now */
export function drawBadge(context, palette, requestId, letter, x, y, width, height, over) {
  const radius = Math.min(6, width / 4);
  roundRect(context, x, y, width, height, radius);
  if (over === 'waits') {
    context.strokeStyle =
      hueOutline(palette) && requestId % NUM_HUES === 0 ? palette.css('request-outline') : hueOf(palette, requestId);
    context.lineWidth = 2 * palette.px('mark');
    roundRect(context, x + 1, y + 1, width - 2, height - 2, radius);
    context.stroke();
  } else if (over) {
    context.strokeStyle = palette.css('nobody');
    context.lineWidth = 1.5 * palette.px('mark');
    context.setLineDash([4, 3]);
    roundRect(context, x + 1, y + 1, width - 2, height - 2, radius);
    context.stroke();
    context.setLineDash([]);
  } else {
    fillHue(context, palette, requestId);
    const outline = hueOutline(palette);
    if (outline) {
      context.strokeStyle = outline;
      context.lineWidth = 1;
      context.stroke();
    }
  }
  const size = Math.min(height * 0.62, width * (letter.length > 1 ? 0.5 : 0.72), palette.px('text-l'));
  useFont(context, `700 ${size}px ${palette.get('font-ui')}`);
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  if (!over && Math.floor(requestId / NUM_HUES) % 3 > 0) {
    context.fillStyle = hueOf(palette, requestId);
    roundRect(context, x + width * 0.14, y + height / 2 - size * 0.66, width * 0.72, size * 1.32, 3);
    context.fill();
  }
  context.fillStyle = over ? palette.css(over === 'waits' ? 'ink' : 'ink-2') : palette.css('on-request');
  context.fillText(letter, x + width / 2, y + height / 2 + 0.5);
}
