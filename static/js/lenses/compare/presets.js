/** Comparisons for one click, built from the lanes that the engine offers. Pure. */

/** @import { LaneChoice } from '../../core/types.d.ts' */
/** @typedef {'cache'|'heads'|'bits'|'forgetting'|'latent'|'allocation'|'needle'} PresetName */
/** @typedef {{name: PresetName, lanes: string[], needle: boolean, maxNewTokens: number}} ComparePreset */

export const MAX_LANES = 4;

/** The lane with the model's own cache. @param {readonly LaneChoice[]} choices @returns {string} */
export function referenceOf(choices) {
  return (
    (choices.find((choice) => choice.name === 'gqa') ?? choices.find((choice) => choice.exact))?.name ??
    choices[0]?.name ??
    ''
  );
}

/** @param {readonly LaneChoice[]} choices @returns {ComparePreset[]} only those that can be run */
export function presetsOf(choices) {
  const reference = referenceOf(choices);
  const wanted = (/** @type {LaneChoice['family']} */ family, /** @type {readonly string[]} */ first) => {
    const all = choices.filter((choice) => choice.family === family && choice.name !== reference);
    return [
      ...all
        .filter((choice) => first.includes(choice.name))
        .sort((a, b) => first.indexOf(a.name) - first.indexOf(b.name)),
      ...all.filter((choice) => !first.includes(choice.name)),
    ];
  };
  const noCache = choices.filter((choice) => /^no[-_]?cache$/.test(choice.name));
  const forgetting = wanted('forgetting', ['window', 'sinks', 'h2o']);
  const latent = wanted('latent', []);
  /** @type {[PresetName, string[], boolean, number][]} */
  const all = [
    ['cache', noCache.map((choice) => choice.name), false, 48],
    ['heads', wanted('heads', ['mha', 'mqa']).map((choice) => choice.name), false, 32],
    [
      'bits',
      wanted('bits', ['fp16', 'int8', 'int4'])
        .slice(0, 3)
        .map((choice) => choice.name),
      false,
      48,
    ],
    ['forgetting', forgetting.slice(0, 3).map((choice) => smallSpec(choice)), false, 64],
    ['latent', latent.flatMap((choice) => [choice.name, half(choice)]).slice(0, 2), false, 32],
    [
      'allocation',
      wanted('allocation', ['contiguous', 'concat'])
        .filter((choice) => !noCache.includes(choice))
        .slice(0, 2)
        .map((choice) => choice.name),
      false,
      48,
    ],
    ['needle', forgetting.slice(0, 3).map((choice) => choice.name), true, 24],
  ];
  return all
    .filter(([, lanes]) => lanes.length > 0)
    .map(([name, lanes, needle, maxNewTokens]) => ({
      name,
      lanes: [reference, ...lanes].slice(0, MAX_LANES),
      needle,
      maxNewTokens,
    }));
}

/** Half of the default, so that a short text already shows the effect. @param {LaneChoice} choice @returns {string} */
function smallSpec(choice) {
  const option = choice.options.find((one) => one.name === choice.value);
  return option ? `${choice.name}=${Math.max(option.low, Math.min(option.default, 32))}` : choice.name;
}

/** @param {LaneChoice} choice @returns {string} */
function half(choice) {
  const option = choice.options.find((one) => one.name === choice.value);
  return option ? `${choice.name}=${Math.max(option.low, Math.round(option.default / 2))}` : choice.name;
}

/** `name`, `name=N` or `name,option=N,…`, without default values.
 * @param {LaneChoice} choice @param {Record<string, number>} options @returns {string} */
export function specOf(choice, options) {
  const changed = choice.options.filter(
    (option) => options[option.name] !== undefined && options[option.name] !== option.default,
  );
  if (changed.length === 1 && changed[0].name === choice.value) return `${choice.name}=${options[changed[0].name]}`;
  return [choice.name, ...changed.map((option) => `${option.name}=${options[option.name]}`)].join(',');
}
