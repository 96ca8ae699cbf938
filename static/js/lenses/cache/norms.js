/**
 * Norms of one request's entries, collected from frames, and their scale. The scale is fixed at the end of prefill:
 * from the 2nd to the 98th percentile of the prompt's entries.
 */

/** @import { Pack } from '../../core/types.d.ts' */

/** A scale is computed from this many values; of more, every second, third … is used. */
const MOST_VALUES = 8192;

/** @param {Float32Array|number[]} values @param {number} low @param {number} high percentiles 0-1
 * @returns {[number, number]|null} */
export function percentiles(values, low, high) {
  const stride = Math.ceil(values.length / MOST_VALUES);
  const some =
    stride > 1
      ? Float32Array.from({ length: Math.floor(values.length / stride) }, (_, i) => values[i * stride])
      : Float32Array.from(values);
  const known = some.filter((value) => Number.isFinite(value)).sort();
  if (known.length === 0) return null;
  const at = (/** @type {number} */ share) => known[Math.round(share * (known.length - 1))];
  return [at(low), at(high)];
}

export class Norms {
  /** @param {number} numLayers @param {number} promptLength */
  constructor(numLayers, promptLength) {
    this.numLayers = numLayers;
    this.promptLength = promptLength;
    this.capacity = 0;
    /** [layers, capacity], NaN if unknown. */
    this.key = new Float32Array(0);
    this.value = new Float32Array(0);
    /** Steps whose pack has been read. @type {Set<number>} */
    this.steps = new Set();
    this.whole = /** @type {Pack|null} */ (null);
    /** Over all layers. @type {{key: [number, number], value: [number, number]}|null} */
    this.scale = null;
    /** By layer, for the shade of a stored cell. @type {{key: [number, number], value: [number, number]}[]} */
    this.layerScales = [];
    this.scaleFixed = false;
    /** Increases with every new value. */
    this.version = 0;
    this.settledVersion = -1;
    /** Levels of the bins of a long context, once the scale is fixed: by half, layer and bin, -2 if not computed. */
    this.binned = { bin: 0, own: false, numBins: 0, key: new Int16Array(0), value: new Int16Array(0) };
  }

  /** @param {number} positions */
  #grow(positions) {
    if (positions <= this.capacity) return;
    const capacity = Math.max(64, 2 ** Math.ceil(Math.log2(positions)));
    for (const name of /** @type {const} */ (['key', 'value'])) {
      const grown = new Float32Array(this.numLayers * capacity).fill(NaN);
      for (let layer = 0; layer < this.numLayers; layer += 1) {
        grown.set(this[name].subarray(layer * this.capacity, (layer + 1) * this.capacity), layer * capacity);
      }
      this[name] = grown;
    }
    this.capacity = capacity;
  }

  /** @param {Pack} pack @param {number} start first position of the pack */
  #copy(pack, start) {
    const shape = pack.meta.arrays.find((array) => array.name === 'key_norm')?.shape;
    const { key_norm: key, value_norm: value } = pack.arrays;
    if (!shape || !key || !value) return;
    const [layers, count] = shape;
    this.#grow(start + count);
    let changed = start + count;
    for (let layer = 0; layer < Math.min(layers, this.numLayers); layer += 1) {
      for (let i = 0; i < count; i += 1) {
        const k = key[layer * count + i];
        const v = value[layer * count + i];
        const at = layer * this.capacity + start + i;
        if (k !== this.key[at] || v !== this.value[at]) changed = Math.min(changed, start + i);
        if (Number.isFinite(k)) this.key[at] = k;
        if (Number.isFinite(v)) this.value[at] = v;
      }
    }
    this.version += 1;
    const { binned } = this;
    for (let bin = Math.floor(changed / Math.max(1, binned.bin)); bin < binned.numBins; bin += 1) {
      for (let layer = 0; layer < this.numLayers; layer += 1) {
        binned.key[layer * binned.numBins + bin] = -2;
        binned.value[layer * binned.numBins + bin] = -2;
      }
    }
  }

  /** `level` of a whole bin, cached, because a decode step doesn't change it.
   * @param {'key'|'value'} half @param {number} layer @param {number} index which bin @param {number} bin tokens in it @param {boolean} own
   * @returns {number} */
  binLevel(half, layer, index, bin, own) {
    if (!this.scaleFixed) return this.level(half, layer, index * bin, (index + 1) * bin, own);
    const { binned } = this;
    if (binned.bin !== bin || binned.own !== own || index >= binned.numBins) {
      const numBins = Math.max(64, 2 ** Math.ceil(Math.log2(index + 1)), Math.ceil(this.capacity / bin));
      const blank = () => new Int16Array(this.numLayers * numBins).fill(-2);
      Object.assign(binned, { bin, own, numBins, key: blank(), value: blank() });
    }
    const at = layer * binned.numBins + index;
    if (binned[half][at] === -2) binned[half][at] = this.level(half, layer, index * bin, (index + 1) * bin, own);
    return binned[half][at];
  }

  /** All norms of the request in one pack. @param {Pack|null} pack */
  addWhole(pack) {
    if (!pack || pack === this.whole) return;
    this.whole = pack;
    this.#copy(pack, 0);
  }

  /** The norms of one step's new entries. @param {number} step @param {Pack|null} pack */
  addStep(step, pack) {
    if (!pack || this.steps.has(step)) return;
    this.steps.add(step);
    this.#copy(pack, pack.meta.start ?? 0);
  }

  /** Fixes the scale once the whole prompt is stored. @param {number} numStored */
  settle(numStored) {
    if (this.scaleFixed || this.capacity === 0 || this.settledVersion === this.version) return;
    this.settledVersion = this.version;
    const count = Math.min(this.promptLength, this.capacity);
    const all = { key: new Float32Array(this.numLayers * count), value: new Float32Array(this.numLayers * count) };
    this.layerScales = [];
    for (let layer = 0; layer < this.numLayers; layer += 1) {
      const at = layer * this.capacity;
      const [key, value] = [this.key.subarray(at, at + count), this.value.subarray(at, at + count)];
      all.key.set(key, layer * count);
      all.value.set(value, layer * count);
      this.layerScales.push({
        key: percentiles(key, 0.02, 0.98) ?? [0, 0],
        value: percentiles(value, 0.02, 0.98) ?? [0, 0],
      });
    }
    const [key, value] = [percentiles(all.key, 0.02, 0.98), percentiles(all.value, 0.02, 0.98)];
    if (!key || !value) return;
    this.scale = { key, value };
    this.scaleFixed = numStored >= this.promptLength && Number.isFinite(this.key[count - 1]);
  }

  /** Place on the scale, 0-255, of the mean over positions from … to - 1; the middle if nothing is known.
   * @param {'key'|'value'} half @param {number} layer @param {number} from @param {number} to
   * @param {boolean} own on the layer's own scale @returns {number} */
  level(half, layer, from, to, own) {
    const scale = own ? this.layerScales[layer] : this.scale;
    if (!scale || layer >= this.numLayers) return 128;
    const [low, high] = scale[half];
    const values = this[half];
    let sum = 0;
    let count = 0;
    for (let p = from; p < Math.min(to, this.capacity); p += 1) {
      const value = values[layer * this.capacity + p];
      if (value === value) {
        sum += value;
        count += 1;
      }
    }
    if (count === 0) return own ? 128 : -1;
    const t = high > low ? (sum / count - low) / (high - low) : 0.5;
    return t <= 0 ? 0 : t >= 1 ? 255 : Math.round(t * 255);
  }

  /** @param {'key'|'value'} half @param {number} layer @param {number} position @returns {number} NaN where not known */
  at(half, layer, position) {
    return position < this.capacity ? this[half][layer * this.capacity + position] : NaN;
  }
}
