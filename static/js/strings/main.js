/**
 * The catalogue of the visualizer's texts. `{name}` is a placeholder, `{K}` and `{V}` are the coloured letters, and
 * `[word]` or `[words|term]` links to the glossary. To translate the page, replace the files in this folder.
 */

import { batchLens } from './batch.js';
import { attentionLens, cacheLens } from './cache.js';
import { captions, servingCaptions } from './captions.js';
import { compareCaptions, compareHint, compareLane, compareLens, compareTab } from './compare.js';
import { glossary } from './glossary.js';
import { memoryHint, memoryTab, memoryTexts } from './memory.js';
import { pagesLens } from './pages.js';
import { shellTexts } from './shell.js';

export const strings = {
  name: 'kvviz',
  pageTitle: 'kvviz: the KV cache of a real model, step by step',

  lens: {
    cache: 'Cache',
    attention: 'Attention',
    pages: 'Pages',
    batch: 'Batch',
    memory: memoryTab,
    compare: compareTab,
  },
  lensHint: {
    cache: 'See every cached token in every layer',
    attention: 'See which query head reads which cached token',
    pages: 'See block tables, the physical pool and the free queue',
    batch: 'See requests over engine steps, and how long each waits',
    memory: memoryHint,
    compare: compareHint,
  },
  units: { B: 'B', KiB: 'KiB', MiB: 'MiB', GiB: 'GiB', ms: 'ms', s: 's' },

  ...shellTexts,
  captions,
  servingCaptions,
  compareCaptions,
  compareLane,
  glossary,
  lenses: {
    cache: cacheLens,
    attention: attentionLens,
    pages: pagesLens,
    batch: batchLens,
    memory: memoryTexts,
    compare: compareLens,
  },
};

/** @typedef {typeof strings} Strings */
