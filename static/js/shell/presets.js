/** Example prompts with settings that show one effect each. A different `config` starts a new log. */

/**
 * @typedef {{name: 'sky'|'small'|'again'|'tiny', config: Record<string, number|boolean>, prompts: string[], maxNewTokens: number}} Preset
 */

const SYSTEM = 'You answer in one short sentence, as for a curious child.';

/** @type {Preset[]} */
export const PRESETS = [
  {
    name: 'sky',
    config: { block_size: 16, num_blocks: 128, prefill_chunk: 64, prefix_cache: true },
    prompts: [`${SYSTEM} Why is the sky blue?`],
    maxNewTokens: 40,
  },
  {
    name: 'small',
    config: { block_size: 16, num_blocks: 12, prefill_chunk: 64, prefix_cache: true },
    maxNewTokens: 40,
    prompts: [
      `${SYSTEM} Why is the sky blue?`,
      'List the planets of the solar system in order, from the one nearest to the sun to the one farthest from it, and say one thing about each of them.',
      'Tell me a story about a lighthouse keeper who counts the ships that pass by every night, until one night there are none.',
    ],
  },
  {
    name: 'again',
    config: { block_size: 16, num_blocks: 128, prefill_chunk: 64, prefix_cache: true },
    prompts: [`${SYSTEM} Why is the sky blue?`, `${SYSTEM} Why is the sky blue?`],
    maxNewTokens: 24,
  },
  {
    name: 'tiny',
    config: { block_size: 4, num_blocks: 64, prefill_chunk: 16, prefix_cache: true },
    prompts: [`${SYSTEM} What is a prime number?`],
    maxNewTokens: 40,
  },
];
