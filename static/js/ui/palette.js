/**
 * Colours, sizes and fonts from the custom properties of tokens.css, so that no script defines a colour. Read once,
 * and again after every change of theme or projector mode; painters keep the values they get.
 */

/** @typedef {readonly [number, number, number]} Rgb red, green, blue, 0-255 */

const NUM_MAGNITUDE_STOPS = 9;

/**
 * @param {string} text `#rgb`, `#rrggbb`, `rgb(r g b / a)` or `rgb(r, g, b)`
 * @returns {Rgb}
 */
function parseColor(text) {
  const hex = /^#([0-9a-f]{3}|[0-9a-f]{6})$/i.exec(text.trim());
  if (hex) {
    const digits = hex[1].length === 3 ? [...hex[1]].map((digit) => digit + digit).join('') : hex[1];
    const value = parseInt(digits, 16);
    return [value >> 16, (value >> 8) & 255, value & 255];
  }
  const numbers = text.match(/[\d.]+/g);
  if (!numbers || numbers.length < 3) return [127, 127, 127];
  return [Number(numbers[0]), Number(numbers[1]), Number(numbers[2])];
}

/** @param {Rgb} rgb @returns {number} relative luminance, WCAG 2 */
function luminance(rgb) {
  const [r, g, b] = rgb.map((channel) => {
    const c = channel / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** @param {Rgb} a @param {Rgb} b @returns {number} contrast ratio, 1-21 */
export function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

/** @param {Rgb} a @param {Rgb} b @param {number} t @returns {Rgb} */
export function mix(a, b, t) {
  return [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t];
}

/** @param {Rgb} rgb @returns {number} an opaque pixel as one word of an ImageData seen as Uint32Array (little-endian) */
export function packed(rgb) {
  return ((255 << 24) | (Math.round(rgb[2]) << 16) | (Math.round(rgb[1]) << 8) | Math.round(rgb[0])) >>> 0;
}

/** @param {Rgb} rgb @param {number} [alpha] @returns {string} */
export function css(rgb, alpha = 1) {
  const [r, g, b] = rgb.map(Math.round);
  return alpha === 1 ? `rgb(${r}, ${g}, ${b})` : `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

/**
 * @param {readonly Rgb[]} stops evenly spaced
 * @param {number} [size]
 * @returns {Uint32Array} lookup table from level to pixel
 */
export function ramp(stops, size = 256) {
  const table = new Uint32Array(size);
  for (let level = 0; level < size; level += 1) {
    const at = (level / (size - 1)) * (stops.length - 1);
    const index = Math.min(stops.length - 2, Math.floor(at));
    table[level] = packed(mix(stops[index], stops[index + 1], at - index));
  }
  return table;
}

export class Palette {
  /** @type {CSSStyleDeclaration} */
  #style;
  /** @type {Map<string, string>} */
  #values = new Map();
  /** @type {Map<string, Rgb>} */
  #colors = new Map();
  /** Colours as text, by name and alpha. @type {Map<string, string>} */
  #texts = new Map();
  /** @type {Map<string, string>} */
  #fonts = new Map();

  /** Increases with every refresh; anything made from older colours is stale. */
  version = 0;

  /** @param {HTMLElement} [element] where the custom properties are read */
  constructor(element = document.documentElement) {
    this.element = element;
    this.#style = getComputedStyle(element);
    this.refresh();
  }

  /** Discards the values read so far. Call it after a change of theme, projector mode or print. */
  refresh() {
    this.#style = getComputedStyle(this.element);
    this.#values.clear();
    this.#colors.clear();
    this.#texts.clear();
    this.#fonts.clear();
    this.version += 1;
  }

  get light() {
    return luminance(this.rgb('ground')) > 0.4;
  }

  get projector() {
    return this.element.dataset.projector === 'on';
  }

  /** @param {string} name without the leading dashes @returns {string} the value of the custom property */
  get(name) {
    let value = this.#values.get(name);
    if (value === undefined) {
      value = this.#style.getPropertyValue(`--${name}`).trim();
      this.#values.set(name, value);
    }
    return value;
  }

  /** @param {string} name @returns {Rgb} */
  rgb(name) {
    let color = this.#colors.get(name);
    if (!color) {
      color = parseColor(this.get(name));
      this.#colors.set(name, color);
    }
    return color;
  }

  /** @param {string} name @param {number} [alpha] @returns {string} for fillStyle */
  css(name, alpha = 1) {
    const key = alpha === 1 ? name : `${name}/${alpha}`;
    let text = this.#texts.get(key);
    if (text === undefined) {
      text = css(this.rgb(name), alpha);
      if (this.#texts.size > 500) this.#texts.clear();
      this.#texts.set(key, text);
    }
    return text;
  }

  /** @param {string} name @returns {number} pixel word */
  word(name) {
    return packed(this.rgb(name));
  }

  /** @param {string} a @param {string} b @param {number} t @returns {string} */
  mix(a, b, t) {
    return css(mix(this.rgb(a), this.rgb(b), t));
  }

  /** @param {string} name of a size @returns {number} CSS pixels */
  px(name) {
    return parseFloat(this.get(name)) || 0;
  }

  /**
   * @param {string} size name of a text size
   * @param {'ui'|'mono'} [family]
   * @param {number} [weight]
   * @returns {string} for `context.font`
   */
  font(size, family = 'ui', weight = 400) {
    const key = `${weight}/${size}/${family}`;
    let font = this.#fonts.get(key);
    if (!font) this.#fonts.set(key, (font = `${weight} ${this.px(size)}px ${this.get(`font-${family}`)}`));
    return font;
  }

  /** Request hues in order of letter; from the fifth on, the letter and a pattern distinguish them.
   * @param {number} requestId @returns {string} name of the colour */
  requestHue(requestId) {
    return ['request-a', 'request-b', 'request-c', 'request-d'][requestId % 4];
  }

  /** @returns {Rgb[]} the stops of the magnitude scale, low to high */
  magnitudeStops() {
    return Array.from({ length: NUM_MAGNITUDE_STOPS }, (_, index) => this.rgb(`magnitude-${index}`));
  }

  /** @returns {Uint32Array} 256 levels of the magnitude scale */
  magnitude() {
    return ramp(this.magnitudeStops());
  }

  /** Levels of a stored entry: one even luminance that varies slightly with its norm, never close to the background.
   * @param {'k'|'v'} half
   * @returns {Uint32Array} */
  stored(half) {
    const calm = this.rgb(`${half}-calm`);
    return ramp([mix(calm, this.rgb('ground'), 0.22), calm, mix(calm, this.rgb(half), 0.45)]);
  }
}
