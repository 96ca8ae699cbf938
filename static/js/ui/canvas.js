/**
 * Canvas helpers: stacked canvases in CSS pixels, one reused ImageData for cells, and small drawing functions. They
 * know nothing about the pictures.
 */

/** Fonts that have been set. @type {WeakMap<CanvasRenderingContext2D, string>} */
const fonts = new WeakMap();

/** Device pixels per CSS pixel; 0 if it must be read, which waits for the page's styles. */
let knownRatio = 0;
addEventListener('resize', () => {
  knownRatio = 0;
});

/** @returns {number} device pixels per CSS pixel, at most 3 */
export function pixelRatio() {
  if (knownRatio === 0) {
    knownRatio = Math.min(3, devicePixelRatio || 1);
    // Another screen can have another ratio at the same size.
    matchMedia(`(resolution: ${devicePixelRatio}dppx)`).addEventListener(
      'change',
      () => {
        knownRatio = 0;
      },
      { once: true },
    );
  }
  return knownRatio;
}

/**
 * Canvases of one size on top of each other, lowest first, sharp at any device pixel ratio.
 */
export class CanvasStack {
  width = 0;
  height = 0;
  ratio = 1;

  /** @param {HTMLElement} root @param {readonly string[]} names one canvas each, lowest first */
  constructor(root, names) {
    /** @type {Map<string, CanvasRenderingContext2D>} */
    this.contexts = new Map();
    /** @type {HTMLCanvasElement[]} */
    this.canvases = names.map((name) => {
      const canvas = document.createElement('canvas');
      canvas.className = `stack stack-${name}`;
      canvas.setAttribute('aria-hidden', 'true');
      root.append(canvas);
      const context = canvas.getContext('2d');
      if (!context) throw new Error('The browser has no 2D canvas.');
      this.contexts.set(name, context);
      return canvas;
    });
  }

  /** @param {string} name @returns {CanvasRenderingContext2D} scaled to CSS pixels */
  context(name) {
    const context = this.contexts.get(name);
    if (!context) throw new Error(`There is no canvas named ${name}.`);
    return context;
  }

  /**
   * @param {number} width CSS pixels @param {number} height CSS pixels
   * @returns {boolean} whether the size changed (then all canvases are blank)
   */
  resize(width, height) {
    const ratio = pixelRatio();
    if (width === this.width && height === this.height && ratio === this.ratio) return false;
    [this.width, this.height, this.ratio] = [width, height, ratio];
    for (const canvas of this.canvases) {
      canvas.width = Math.max(1, Math.round(width * ratio));
      canvas.height = Math.max(1, Math.round(height * ratio));
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    for (const context of this.contexts.values()) {
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      fonts.delete(context);
    }
    return true;
  }

  /** @param {string} name @returns {CanvasRenderingContext2D} cleared, scaled to CSS pixels */
  clear(name) {
    const context = this.context(name);
    context.clearRect(0, 0, this.width + 1, this.height + 1);
    return context;
  }

  remove() {
    for (const canvas of this.canvases) canvas.remove();
  }
}

/** The size of an element in CSS pixels, without causing a layout. */
export class SizeWatch {
  /** @param {HTMLElement} element @param {() => void} onChange */
  constructor(element, onChange) {
    this.width = element.clientWidth;
    this.height = element.clientHeight;
    this.observer = new ResizeObserver((entries) => {
      const box = entries[entries.length - 1].contentRect;
      if (box.width === this.width && box.height === this.height) return;
      [this.width, this.height] = [box.width, box.height];
      onChange();
    });
    this.observer.observe(element);
  }

  disconnect() {
    this.observer.disconnect();
  }
}

/**
 * A small bitmap of pixel words, painted by table and then drawn scaled, without smoothing, strip by strip. The
 * ImageData and its canvas are reused until the size grows.
 */
export class Bitmap {
  width = 0;
  height = 0;
  /** @type {Uint32Array} */
  words = new Uint32Array(0);
  #canvas = document.createElement('canvas');
  #context = this.#canvas.getContext('2d');
  /** @type {ImageData|null} */
  #image = null;

  /** @param {number} width device pixels @param {number} height rows */
  resize(width, height) {
    width = Math.max(1, width);
    height = Math.max(1, height);
    if (this.#image && width === this.width && height === this.height) return;
    [this.width, this.height] = [width, height];
    this.#canvas.width = width;
    this.#canvas.height = height;
    this.#image = new ImageData(width, height);
    this.words = new Uint32Array(this.#image.data.buffer);
  }

  /** Makes the painted words available to `draw`. */
  commit() {
    if (this.#image) this.#context?.putImageData(this.#image, 0, 0);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} row of the bitmap @param {number} numRows
   * @param {number} x @param {number} y @param {number} width @param {number} height CSS pixels
   */
  drawRows(context, row, numRows, x, y, width, height) {
    if (height <= 0 || width <= 0) return;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.#canvas, 0, row, this.width, numRows, x, y, width, height);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} x @param {number} y @param {number} width @param {number} height CSS pixels
   * @param {boolean} smooth when it is drawn smaller than it is
   */
  draw(context, x, y, width, height, smooth) {
    context.imageSmoothingEnabled = smooth;
    if (smooth) context.imageSmoothingQuality = 'high';
    context.drawImage(this.#canvas, 0, 0, this.width, this.height, x, y, width, height);
  }
}

/** @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} w @param {number} h
 * @param {number} radius */
export function roundRect(context, x, y, w, h, radius) {
  context.beginPath();
  context.roundRect(x, y, Math.max(0, w), Math.max(0, h), Math.max(0, Math.min(radius, w / 2, h / 2)));
}

/** Horizontal stripes in one colour, transparent between them; unlike hatching, they don't mark a state.
 * @param {CanvasRenderingContext2D} context @param {string} color @param {number} period CSS pixels @param {number} line CSS pixels
 * @returns {CanvasPattern|string} */
export function stripes(context, color, period, line) {
  return patternOf(context, `stripes/${color}/${period}/${line}`, color, period, (brush, size, ratio) => {
    brush.fillStyle = color;
    brush.fillRect(0, 0, size, line * ratio);
  });
}

/** @type {WeakMap<CanvasRenderingContext2D, Map<string, CanvasPattern>>} */
const patterns = new WeakMap();

/**
 * Diagonal hatching in one colour, transparent between the lines.
 * @param {CanvasRenderingContext2D} context @param {string} color @param {number} [period] CSS pixels
 * @param {number} [line] CSS pixels
 * @returns {CanvasPattern|string}
 */
export function hatch(context, color, period = 6, line = 1.4) {
  return patternOf(context, `${color}/${period}/${line}`, color, period, (brush, size, ratio) => {
    brush.strokeStyle = color;
    brush.lineWidth = line * ratio;
    for (const shift of [-size, 0, size]) {
      brush.beginPath();
      brush.moveTo(shift - 1, size + 1);
      brush.lineTo(shift + size + 1, -1);
      brush.stroke();
    }
  });
}

/** A repeating square tile, cached.
 * @param {CanvasRenderingContext2D} context @param {string} name @param {string} color instead, if there is no pattern
 * @param {number} period CSS pixels @param {(brush: CanvasRenderingContext2D, size: number, ratio: number) => void} paint in device pixels
 * @returns {CanvasPattern|string} */
function patternOf(context, name, color, period, paint) {
  const ratio = context.getTransform().a || 1;
  const key = `${name}/${ratio}`;
  let known = patterns.get(context);
  if (!known) patterns.set(context, (known = new Map()));
  const found = known.get(key);
  if (found) return found;
  const size = Math.max(3, Math.round(period * ratio));
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const brush = tile.getContext('2d');
  if (!brush) return color;
  paint(brush, size, ratio);
  const pattern = context.createPattern(tile, 'repeat');
  if (!pattern) return color;
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  if (known.size > 40) known.clear();
  known.set(key, pattern);
  return pattern;
}

/**
 * Sets the font; use only this function. Setting a font and reading it back are slow, and text is measured all the
 * time.
 * @param {CanvasRenderingContext2D} context @param {string} font
 */
export function useFont(context, font) {
  if (fonts.get(context) === font) return;
  context.font = font;
  fonts.set(context, font);
}

/** Widths by font, then by text. @type {Map<string, Map<string, number>>} */
const widths = new Map();

/** Width of a text in CSS pixels, cached.
 * @param {CanvasRenderingContext2D} context @param {string} text @returns {number} */
export function textWidth(context, text) {
  const font = fonts.get(context) ?? context.font;
  let known = widths.get(font);
  if (!known) widths.set(font, (known = new Map()));
  let width = known.get(text);
  if (width === undefined) {
    width = context.measureText(text).width;
    if (known.size > 4000) known.clear();
    known.set(text, width);
  }
  return width;
}

/**
 * The text, or its start with an ellipsis, no wider than `limit`; empty if not even that fits. Cuts between whole
 * characters.
 * @param {CanvasRenderingContext2D} context @param {string} text @param {number} limit @returns {string}
 */
export function fitText(context, text, limit) {
  if (text.length > 400) text = text.slice(0, 400);
  if (textWidth(context, text) <= limit) return text;
  const key = `${fonts.get(context)}/${limit}/${text}`;
  let short = fitted.get(key);
  if (short === undefined) {
    if (fitted.size > 1000) fitted.clear();
    fitted.set(key, (short = shorten(context, text, limit)));
  }
  return short;
}

/** Texts cut to a width. @type {Map<string, string>} */
const fitted = new Map();

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} limit @returns {string} */
function shorten(context, text, limit) {
  const letters = graphemes(text);
  let low = 0;
  let high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(context, `${letters.slice(0, middle).join('')}…`) <= limit) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? '' : `${letters.slice(0, low).join('')}…`;
}

const segmenter =
  typeof Intl.Segmenter === 'function' ? new Intl.Segmenter(undefined, { granularity: 'grapheme' }) : null;

/** @param {string} text @returns {string[]} */
function graphemes(text) {
  return segmenter ? Array.from(segmenter.segment(text), (part) => part.segment) : [...text];
}

/** @param {number} value @param {number} low @param {number} high @returns {number} */
export function clamp(value, low, high) {
  return value < low ? low : value > high ? high : value;
}

/** @param {number} from @param {number} to @param {number} t @returns {number} */
export function lerp(from, to, t) {
  return from + (to - from) * t;
}

/** Eases in and out. @param {number} t 0-1 @returns {number} */
function ease(t) {
  const x = clamp(t, 0, 1);
  return x * x * (3 - 2 * x);
}

/** Eased progress of `t` from `from` to `to`, 0-1. @param {number} t @param {number} from @param {number} to @returns {number} */
export function span(t, from, to) {
  return to <= from ? Number(t >= to) : ease((t - from) / (to - from));
}

/** The double outline of a selection.
 * @param {CanvasRenderingContext2D} context @param {number} x @param {number} y @param {number} w @param {number} h
 * @param {{line: string, gap: string, radius?: number, mark?: number}} style */
export function doubleOutline(context, x, y, w, h, { line, gap, radius = 2, mark = 1 }) {
  const inner = 1 + mark / 2;
  context.lineWidth = 3 * mark + 2;
  context.strokeStyle = gap;
  roundRect(context, x - inner - mark, y - inner - mark, w + 2 * (inner + mark), h + 2 * (inner + mark), radius);
  context.stroke();
  context.lineWidth = mark;
  context.strokeStyle = line;
  roundRect(context, x - inner, y - inner, w + 2 * inner, h + 2 * inner, radius);
  context.stroke();
  roundRect(
    context,
    x - inner - 2 * mark,
    y - inner - 2 * mark,
    w + 2 * (inner + 2 * mark),
    h + 2 * (inner + 2 * mark),
    radius + 2,
  );
  context.stroke();
}
