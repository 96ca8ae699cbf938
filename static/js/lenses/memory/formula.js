/**
 * The bytes of a token in this run's model, as factors, and their consequences: when the cache outweighs the weights,
 * and the size of a full context. Pure, from the header alone.
 */
import { elementBytes, hasNoModel, shortDtype } from '../../core/selectors.js';
/** @import { Header, LayerGeometry } from '../../core/types.d.ts' */
/** What a factor counts, and so what it highlights.
 * @typedef {'pair'|'layers'|'heads'|'dim'|'element'|'latent'|'rotary'|'stored'|'tokens'|'wasted'} Light */
/** @typedef {{value: number, name: string, light: Light}} Factor */
/**
 * Layers of the same shape. `form`: `kv` (K and V alike), `uneven` (K and V of different shape), `latent`, `stored`
 * (as a codec stores them: only the bytes are known), `none` (they read another layer's entries).
 * @typedef {{form: 'kv'|'uneven'|'latent'|'stored'|'none', layers: LayerGeometry[], bytes: number}} LayerGroup
 */

/** Bytes of one token in all layers; 0 without a model. In a lane, a fraction if scales are shared.
 * @param {Header} header @returns {number} */
export function tokenBytes(header) {
  return hasNoModel(header) ? 0 : (header.lane?.bytes_per_token ?? header.pool.bytes_per_token);
}

/** Layers grouped by shape, in the order of their first layer. @param {Header} header @returns {LayerGroup[]} */
export function layerGroups(header) {
  const element = elementBytes(header.model.dtype);
  /** @type {Map<string, LayerGroup>} */
  const groups = new Map();
  const stored = header.model.layers.filter((layer) => formOf(layer, element) === 'stored');
  // A layer's bytes are whole in the header; only the sum includes the fractions of scales.
  const fraction =
    (tokenBytes(header) - header.model.layers.reduce((sum, layer) => sum + layer.bytes_per_token, 0)) /
    Math.max(1, stored.length);
  for (const layer of header.model.layers) {
    const form = formOf(layer, element);
    const key = JSON.stringify([form, layer.key_shape, layer.value_shape, layer.bytes_per_token]);
    const group = groups.get(key);
    if (group) group.layers.push(layer);
    else groups.set(key, { form, layers: [layer], bytes: layer.bytes_per_token + (form === 'stored' ? fraction : 0) });
  }
  return [...groups.values()];
}

/** @param {LayerGeometry} layer @param {number} element bytes of a number @returns {LayerGroup['form']} */
function formOf(layer, element) {
  const { key_shape: key, value_shape: value } = layer;
  if (layer.cache === 'none' || !key || !value) return 'none';
  if (element * (key[0] * key[1] + value[0] * value[1]) !== layer.bytes_per_token) return 'stored';
  if (layer.cache === 'latent') return 'latent';
  return key[0] === value[0] && key[1] === value[1] ? 'kv' : 'uneven';
}

/** A group as a sum of products: each inner list is multiplied, and the sum is multiplied by the factors in `common`.
 * @param {Header} header @param {LayerGroup} group @param {Record<string, string>} names @returns {{common: Factor[], sums: Factor[][], element: Factor[]}} */
export function factorsOf(header, { form, layers, bytes }, names) {
  const { key_shape: key, value_shape: value } = layers[0];
  /** @param {number} number @param {string} name @param {Light} light @returns {Factor} */
  const factor = (number, name, light) => ({ value: number, name, light });
  const count = factor(layers.length, names.layers, 'layers');
  const element = [
    factor(elementBytes(header.model.dtype), `${names.element} (${shortDtype(header.model.dtype)})`, 'element'),
  ];
  if (form === 'stored' || !key || !value)
    return { common: [count], sums: [[factor(bytes, names.stored, 'stored')]], element: [] };
  if (form === 'latent')
    return {
      common: [count],
      sums: [[factor(key[0] * key[1], names.latent, 'latent')], [factor(value[0] * value[1], names.rotary, 'rotary')]],
      element,
    };
  if (form === 'uneven') {
    return {
      common: [count],
      sums: [
        [factor(key[0], names.keyHeads, 'heads'), factor(key[1], names.keyDim, 'dim')],
        [factor(value[0], names.valueHeads, 'heads'), factor(value[1], names.valueDim, 'dim')],
      ],
      element,
    };
  }
  return {
    common: [
      factor(2, names.pair, 'pair'),
      count,
      factor(key[0], names.heads, 'heads'),
      factor(key[1], names.dim, 'dim'),
    ],
    sums: [],
    element,
  };
}

/** The longest window, if every layer has one: no layer reads further back.
 * @param {Header} header
 * @returns {{kind: 'none'}|{kind: 'all'|'some', reach: number, num: number}} `reach`: of the one that looks farthest */
export function windowsOf(header) {
  const stored = header.model.layers.filter((layer) => layer.cache !== 'none');
  const bounded = stored.filter((layer) => layer.window !== null);
  if (bounded.length === 0) return { kind: 'none' };
  return {
    kind: bounded.length === stored.length ? 'all' : 'some',
    num: bounded.length,
    reach: Math.max(...bounded.map((layer) => layer.window ?? 0)),
  };
}

/**
 * The size of one request with this many tokens (default: the model's whole context), in whole blocks. If all layers
 * have windows, blocks that left every window are released, so it is at most the reach plus the block in which it
 * starts.
 * @param {Header} header @param {number} [tokens]
 * @returns {{tokens: number, bytes: number, needed: number}|null} `needed`: bytes when each layer kept only what it can read
 */
export function fullContext(header, tokens = header.model.max_positions) {
  const perToken = tokenBytes(header);
  const { layers } = header.model;
  if (!perToken || !tokens) return null;
  const { block_size: size } = header.pool;
  const windows = windowsOf(header);
  const blocks = Math.ceil(tokens / size);
  const most = windows.kind === 'all' ? Math.min(blocks, Math.ceil((windows.reach - 1) / size) + 1) : blocks;
  const needed = layers.reduce(
    (sum, layer) => sum + layer.bytes_per_token * Math.min(tokens, layer.window ?? tokens),
    0,
  );
  return { tokens, bytes: most * size * perToken, needed };
}

/**
 * The first whole number of tokens whose entries take as many bytes as the weights; null without weights or bytes per
 * token.
 * @param {Header} header @returns {number|null}
 */
export function crossingTokens(header) {
  const perToken = tokenBytes(header);
  const weights = header.model.weight_bytes ?? 0;
  return perToken > 0 && weights > 0 ? Math.ceil(weights / perToken) : null;
}
