/** What tests of lenses ask of a page: a lens on a stage without the shell, and checks of its pure parts. */

const load = (name) => import(`/static/js/${name}.js`);

/** A number for what is on a canvas. @param {HTMLCanvasElement} canvas */
function hashOf(canvas) {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let hash = 2166136261;
  for (const word of new Uint32Array(data.buffer)) hash = Math.imul(hash ^ word, 16777619);
  return hash >>> 0;
}

/** All texts since `texts` or `setup`. @type {string[]} */
const written = [];
const plain = CanvasRenderingContext2D.prototype.fillText;
function note(text, ...rest) {
  written.push(text);
  return plain.call(this, text, ...rest);
}

/** Ends what a test has shown, so that the next one finds the page as it was loaded. */
const leave = async () => {
  const { stage, frames } = window;
  stage?.lens?.destroy();
  if (frames) {
    frames.waiting.length = 0;
    for (let i = 0; i < 500 && frames.flights.size > 0; i++) await new Promise((done) => setTimeout(done, 10));
  }
  const fresh = document.createElement('div');
  fresh.id = 'stage';
  document.getElementById('stage').replaceWith(fresh);
  for (const each of [...document.body.children]) if (each.localName !== 'main') each.remove();
  for (const name of Object.keys(document.documentElement.dataset)) delete document.documentElement.dataset[name];
  document.documentElement.dataset.theme = 'dark';
  CanvasRenderingContext2D.prototype.fillText = plain;
  for (const name of ['stage', 'frames', 'leaked', 'drawn', 'sent']) delete window[name];
};

const setup = async ({ header, records, lens, size }) => {
  window.stage?.lens?.destroy();
  const [{ Log }, { Timeline }, { Ui }, { Frames }, { Palette }, { strings }, { Stage }, selectors] = await Promise.all(
    [
      'core/log',
      'core/timeline',
      'ui/store',
      'core/frames',
      'ui/palette',
      'strings/main',
      'shell/stage',
      'core/selectors',
    ].map(load),
  );
  const root = document.getElementById('stage');
  Object.assign(root.style, { position: 'relative', width: size[0] + 'px', height: size[1] + 'px' });
  const log = new Log(),
    timeline = new Timeline(log),
    ui = new Ui(),
    frames = new Frames(log),
    sent = [];
  const ctx = {
    timeline,
    ui,
    frames,
    selectors,
    strings,
    palette: new Palette(),
    log,
    send: async (command) => sent.push(command),
    run: async (speed) => sent.push({ command: 'play', speed }),
  };
  const stage = new Stage(root, ctx, () => undefined);
  log.begin({ header, logId: 'a', sessionId: 's', kind: 'recording', firstSeq: 0, checkpoint: null });
  log.append(records);
  ui.changes.on(() => {
    frames.setLayer(ui.layer);
    frames.setRequest(ui.requestId);
    stage.dirty.add('ui');
  });
  frames.onChange(() => stage.dirty.add('frame'));
  timeline.changes.on((what) => {
    if (what !== 'progress') stage.dirty.add('world');
  });
  await stage.show(lens);
  const draw = () => {
    const scene = timeline.scene();
    stage.draw(scene);
    return scene;
  };
  const go = (position, progress = 0) => {
    timeline.seek(position, progress);
    draw();
  };
  const quiet = async () => {
    for (let i = 0; i < 200; i++) {
      await new Promise((done) => setTimeout(done, 10));
      if (frames.flights.size === 0 && frames.waiting.length === 0) break;
    }
    draw();
  };
  const picture = () => [...root.querySelectorAll('canvas')].map(hashOf).join();
  written.length = 0;
  CanvasRenderingContext2D.prototype.fillText = note;
  const texts = () => {
    written.length = 0;
    stage.dirty.add('theme');
    ctx.palette.refresh();
    draw();
    return written.slice();
  };
  Object.assign(window, {
    log,
    timeline,
    ui,
    frames,
    ctx,
    stage,
    root,
    draw,
    go,
    quiet,
    picture,
    texts,
    sent,
    selectors,
  });
};

const wrongColumns = async () => {
  const { layoutColumns, ColumnEdges, blockGroups } = await load('lenses/cache/columns');
  const wrong = [];
  for (const blockSize of [1, 4, 7, 16, 256])
    for (const width of [300, 940, 1700]) {
      for (const numTokens of [1, 2, 5, 16, 17, 41, 73, 130, 200, 333, 500, 1024, 2000, 5000, 8192]) {
        const numSlots = Math.ceil(numTokens / blockSize) * blockSize;
        const columns = layoutColumns({ numTokens, numSlots, blockSize, x: 50, width });
        const edges = new ColumnEdges(columns, columns, 1);
        const where = `${numTokens} tokens, blocks of ${blockSize}, ${width} px`;
        if (edges.to[edges.count - 1] < numTokens) wrong.push(`${where}: the last token has no column`);
        if (edges.right > 50 + width + 1) wrong.push(`${where}: ends at ${edges.right}`);
        for (let c = 0; c < edges.count; c++) {
          if (!(edges.x1[c] > edges.x0[c])) wrong.push(`${where}: column ${c} has no width`);
          if (c > 0 && (edges.x0[c] < edges.x1[c - 1] - 1e-6 || edges.from[c] !== edges.to[c - 1]))
            wrong.push(`${where}: column ${c} overlaps`);
          if (edges.columnOf(edges.from[c]) !== c) wrong.push(`${where}: column of ${edges.from[c]}`);
          if (edges.columnAt((edges.x0[c] + edges.x1[c]) / 2) !== c) wrong.push(`${where}: hit of column ${c}`);
        }
        if (columns.long) {
          const tail = edges.rightOf(numTokens - 1) - edges.leftOf(numTokens - 32);
          if (tail < 0.28 * width || tail > 0.36 * width) wrong.push(`${where}: the last 32 take ${tail}`);
        }
        const table = Array.from({ length: numSlots / blockSize }, (_, i) => i);
        const groups = blockGroups(edges, table, blockSize);
        if (groups.some((group, i) => group.logical !== i || group.x1 <= group.x0)) wrong.push(`${where}: groups`);
      }
    }
  return wrong.slice(0, 5);
};

const wrongRows = async () => {
  const { layoutRows, openWeights } = await load('lenses/cache/rows');
  const step = log.step(12);
  const wrong = [];
  for (const numLayers of [1, 2, 6, 12, 30, 80]) {
    const keyShare = new Array(numLayers).fill(0.5);
    for (let progress = 0; progress <= 1; progress += 0.01) {
      const weights = openWeights(numLayers, numLayers === 6 ? step : null, progress, 3, 1);
      const rows = layoutRows(
        { numLayers, keyShare, top: 40, height: 500, openHeight: 100, openStrip: 10, unit: 1 },
        weights,
      );
      const sum = weights.reduce((a, b) => a + b, 0);
      if (Math.abs(sum - 1) > 1e-6) wrong.push(`${numLayers} layers at ${progress}: open ${sum}`);
      const ends = [rows[numLayers - 1].top, rows[0].top + rows[0].height];
      if (ends[0] < 39.5 || Math.abs(ends[1] - 540) > 0.5) wrong.push(`${numLayers} layers: from ${ends}`);
      rows.forEach((row, layer) => {
        if (layer > 0 && Math.abs(row.top + row.height - rows[layer - 1].top) > 1e-6)
          wrong.push(`row ${layer} overlaps`);
        if (row.keyTop < row.top - 0.6 || row.valueTop + row.valueHeight > row.top + row.height + 0.6)
          wrong.push(`row ${layer} spills`);
      });
    }
  }
  return wrong.slice(0, 5);
};

const contrasts = async () => {
  const { contrast, Palette } = await load('ui/palette');
  const { cellTables } = await load('lenses/cache/cell-paint');
  const found = {};
  for (const theme of ['dark', 'light']) {
    document.documentElement.dataset.theme = theme;
    const palette = new Palette();
    const tables = cellTables(palette);
    const rgb = (word) => [word & 255, (word >> 8) & 255, (word >> 16) & 255];
    const least = (words) => Math.min(...[...words].map((word) => contrast(rgb(word), palette.rgb('ground'))));
    found[theme] = {
      k: least(tables.k.stored),
      v: least(tables.v.stored),
      latent: least(tables.latent.stored),
      magnitude: least(tables.magnitude),
      fresh: Math.min(
        contrast(rgb(tables.k.fresh), palette.rgb('ground')),
        contrast(rgb(tables.v.fresh), palette.rgb('ground')),
      ),
    };
  }
  document.documentElement.dataset.theme = 'dark';
  return found;
};

const wrongEntries = async () => {
  const { entriesOf, ENTRY } = await load('lenses/cache/entries');
  const wrong = [];
  for (let k = 0; k <= timeline.head; k++) {
    const world = timeline.keyframes.at(k);
    for (const request of world.requests.values()) {
      const end = request.state === 'finished' ? log.stepRange(log.spanOf(request.id).lastStep)[1] : Infinity;
      const { states, numStored } = entriesOf(
        world,
        request,
        request.tokens.length,
        log.stepRange(world.step)?.[0] ?? Infinity,
        end,
      );
      const there = [...states].filter((state) => state >= ENTRY.STORED).length;
      if (request.state === 'running' && there !== request.numComputed)
        wrong.push(`${k}: ${request.letter} shows ${there} of ${request.numComputed}`);
      if (request.state === 'running' && numStored !== there) wrong.push(`${k}: ${request.letter} counts ${numStored}`);
      if (request.state !== 'running' && there !== 0)
        wrong.push(`${k}: ${request.letter} is ${request.state} but in use`);
      const fresh = [...states].filter((state) => state === ENTRY.FRESH).length;
      const wrote = log.step(k)?.written.find((event) => event.request_id === request.id)?.positions.length ?? 0;
      if (request.state === 'running' && fresh !== wrote) wrong.push(`${k}: ${fresh} just written of ${wrote}`);
    }
  }
  return wrong.slice(0, 5);
};

const victims = async () => {
  const { PagesPicture } = await load('lenses/pages/picture');
  const { nextVictims } = await load('lenses/pages/pool-tiles');
  const found = [];
  for (let k = 0; k < timeline.head; k++) {
    const step = log.step(k + 1);
    if (step.evicted.length === 0) continue;
    timeline.seek(k);
    const marked = [...nextVictims(new PagesPicture(timeline.scene(), Infinity), 0)];
    found.push([marked, step.evicted.map((event) => event.block_id), step.allocated.map((event) => event.block_id)]);
  }
  return found;
};

const slabStates = async () => {
  const { applyChange } = await load('lenses/pages/slab');
  const put = (request, size) => ({ seq: 0, request, size });
  const states = [
    put(0, 40),
    put(1, 30),
    put(2, 20),
    put(1, 0),
    put(3, 31),
    put(4, 30),
    put(5, 10),
    put(0, 0),
    put(6, 40),
  ];
  let state = { slabs: [], refused: [] };
  return states
    .map((change) => (state = applyChange(state, change, 100)))
    .map(({ slabs, refused }) => [slabs.map((s) => [s.request, s.start, s.size]), refused.map((r) => r.request)]);
};

const wrongTiles = async () => {
  const { Palette } = await load('ui/palette');
  const { pagesSpace, layoutPool, poolBox, blockAt } = await load('lenses/pages/space');
  const { slotGrid } = await load('lenses/pages/slot-grid');
  const wrong = [];
  for (const [width, height] of [
    [1060, 600],
    [1880, 700],
    [390, 420],
    [340, 300],
  ]) {
    for (const [numBlocks, blockSize] of [
      [1, 16],
      [4, 16],
      [128, 1],
      [6, 256],
      [512, 16],
      [97, 7],
    ]) {
      const where = `${numBlocks} blocks of ${blockSize} in ${width} x ${height}`;
      const space = pagesSpace(width, height, new Palette(), numBlocks);
      const pool = layoutPool(space.pool, space.heading, numBlocks, 12);
      for (let block = 0; block < numBlocks; block++) {
        const box = poolBox(pool, block);
        if (box.x + box.width > space.pool.x + space.pool.width + 1)
          wrong.push(`${where}: block ${block} too far right`);
        if (box.y + box.height > space.pool.y + space.pool.height + 1) wrong.push(`${where}: block ${block} too low`);
        if (blockAt(pool, numBlocks, box.x + box.width / 2, box.y + box.height / 2) !== block)
          wrong.push(`${where}: hit of ${block}`);
      }
      const grid = slotGrid(blockSize, pool.width - 8, pool.height - 8);
      if (!grid.bar && grid.columns * grid.rows < blockSize)
        wrong.push(`${where}: ${grid.columns} x ${grid.rows} slots`);
    }
  }
  return wrong.slice(0, 5);
};

const largestOf = (layer) => stage.lens.frame.largestNow(layer).map(({ from, weight }) => [from, weight]);

const firstOfKind = (kind) => {
  for (let k = 0; k < timeline.head; k++) if (log.kindAt(k + 1) === kind) return k;
};

/** The first eviction: position before it, block, and how the block looks at four moments of it. */
const evictionViews = async () => {
  const { PagesPicture } = await load('lenses/pages/picture');
  for (let k = 0; k < timeline.head; k++) {
    const step = log.step(k + 1);
    if (step.evicted.length === 0) continue;
    timeline.seek(k, 0.01);
    const picture = new PagesPicture(timeline.scene(), Infinity);
    const block = step.evicted[0].block_id;
    return [0.01, 0.2, 0.45, 0.8].map((t) => picture.view(block, t * picture.phases.blocks[1]));
  }
};

/** A tile whose entries are gone: its block, and where it stands on the screen. */
const goneTile = () => {
  const tile = stage.lens.frame.chainTiles.find((one) => one.gone && one.block >= 0);
  const box = root.querySelector('.lens-sheet').getBoundingClientRect();
  return { block: tile.block, x: box.x + tile.box.x + 4, y: box.y + tile.box.y + 4 };
};

/** Texts on the canvas while layer 3 of the step after position k is at work. */
const textsInLayer = async (k) => {
  const { progressOfLayer } = await load('core/phases');
  go(k, progressOfLayer(log.step(k + 1), 3));
  await quiet();
  return texts();
};

/** Pixels of token 2 in two layers, and the pixel that means "outside the window". */
const pixelsOfTokenTwo = async (layers) => {
  const { frame, tables } = stage.lens;
  const { edges, space, bitmaps, stack } = frame;
  const x = Math.round((edges.x0[2] - space.columnsLeft) * stack.ratio) + 1;
  return [...layers.map((layer) => bitmaps[1].words[layer * 2 * bitmaps[1].width + x]), tables.k.dead];
};

const bracketsOf = async (numKv) => {
  const { attentionSpace, layoutHeads } = await load('lenses/attention/layout');
  return layoutHeads(attentionSpace(1000, 500, ctx.palette), 6, numKv, null, 12).brackets.map((b) => [
    b.kv,
    b.from,
    b.to,
  ]);
};

/** Where a weight stands on the screen. */
const spotOf = (head, position) => {
  const { frame } = stage.lens;
  const row = frame.rows.find((one) => one.head === head);
  const box = root.querySelector('.lens-canvas').getBoundingClientRect();
  return [box.x + (frame.edges.x0[position] + frame.edges.x1[position]) / 2, box.y + row.top + row.height / 2];
};

const reservedAt = (k) => {
  const world = timeline.keyframes.at(k);
  const { numComputed, table, promptLength, maxNewTokens } = world.requests.get(0);
  return { computed: numComputed, slots: table.length * world.blockSize, reserved: promptLength + maxNewTokens };
};

/** Views of blocks that do not begin as the world before and end as the world after, with every step in between. */
const wrongViews = async () => {
  const { PagesPicture } = await load('lenses/pages/picture');
  const wrong = [];
  for (let k = 0; k < timeline.head; k++) {
    timeline.seek(k, 0.5);
    const scene = timeline.scene();
    if (scene.after.seq !== scene.step.lastSeq) continue; // what comes between two steps is seen at rest
    const picture = new PagesPicture(scene, Infinity);
    for (const [world, progress] of [
      [scene.before, 1e-6],
      [scene.after, 1 - 1e-9],
    ]) {
      for (let block = 0; block < world.numBlocks; block++) {
        const { form, owners, filled: all, fresh, freshPart, count } = picture.view(block, progress);
        const filled = freshPart < 0.5 ? all - fresh : all;
        const from = block * world.blockSize;
        const users = world.unfinished.filter((id) => world.requests.get(id).table.includes(block));
        const reach = Math.max(
          ...users.map(
            (id) => world.requests.get(id).numComputed - world.requests.get(id).table.indexOf(block) * world.blockSize,
          ),
        );
        const there = Math.min(
          reach,
          [...world.slotSeq.slice(from, from + world.blockSize)].filter((seq) => seq >= 0).length,
        );
        const is = world.refCount[block] > 0 ? 'used' : world.hash[block] === null ? 'blank' : 'cached';
        const right =
          form === is &&
          count === world.refCount[block] &&
          owners.join() === users.join() &&
          (form !== 'used' || filled === there);
        if (!right)
          wrong.push(
            `${k} at ${progress}: block ${block} is ${form} ${owners} ${filled} ${count}, not ${is} ${users} ${there}`,
          );
      }
    }
    const { orders } = picture.queue(1 - 1e-9);
    if (orders[0].join() !== scene.before.free.join() || orders[2].join() !== scene.after.free.join())
      wrong.push(`${k}: the queue`);
  }
  return wrong.slice(0, 5);
};

/** Trees in which a block is missing, stands twice, or a request's path does not spell its tokens. */
const wrongTrees = async () => {
  const { prefixTree, PrefixParents, readingOrder } = await load('lenses/pages/prefix-tree');
  const { layoutTree } = await load('lenses/pages/prefix-layout');
  const parents = new PrefixParents(log).all();
  const wrong = [];
  let branches = 0;
  for (let k = 0; k <= timeline.head; k++) {
    const world = timeline.keyframes.at(k);
    const { roots } = prefixTree(world, parents);
    const nodes = readingOrder(roots);
    const held = nodes.flatMap((node) => node.blocks).sort((a, b) => a - b);
    const want = Array.from({ length: world.numBlocks }, (_, block) => block).filter(
      (block) => world.refCount[block] > 0 || world.hash[block] !== null,
    );
    if (held.join() !== want.join()) wrong.push(`${k}: holds ${held}, not ${want}`);
    for (const node of nodes) {
      if (node.position >= 0 && node.position !== node.depth * world.blockSize)
        wrong.push(`${k}: ${node.blocks} at depth ${node.depth} begins at ${node.position}`);
      if (node.children.length > 1) branches++;
    }
    for (const id of world.unfinished) {
      const request = world.requests.get(id);
      if (request.numComputed === 0 || request.table.length === 0) continue;
      const path = [];
      for (let node = nodes.find((one) => one.ends.includes(id)); node; node = node.parent) path.unshift(node);
      const tokens = path.flatMap((node) => node.tokens).slice(0, request.numComputed);
      if (tokens.join() !== request.tokens.slice(0, request.numComputed).join())
        wrong.push(`${k}: the path of ${request.letter} spells ${tokens}`);
    }
    for (const [width, height] of [
      [500, 300],
      [330, 200],
      [900, 260],
    ]) {
      const { places } = layoutTree(roots, { x: 0, y: 0, width, height }, 20, 12);
      if (places.some(({ box }) => box.x + box.width > width + 1 || box.y + box.height > height + 2))
        wrong.push(`${k}: a place lies outside ${width} x ${height}`);
      const seen = new Set(places.map(({ box }) => `${box.x}/${box.y}`));
      if (seen.size !== places.length) wrong.push(`${k}: two places in one`);
    }
  }
  return { wrong: wrong.slice(0, 5), branches };
};

/** Steps in which blocks are copied or change the tier, and how many arrows they have. */
const movesByStep = async () => {
  const { movesOf } = await load('lenses/pages/moves');
  const found = {};
  for (let k = 1; k <= timeline.head; k++)
    for (const { kind } of movesOf(log.step(k))) found[kind] = [...(found[kind] ?? []), k];
  return found;
};

const slabsAt = async (k, full) => {
  const { SlabHistory, holesOf } = await load('lenses/pages/slab');
  const history = new SlabHistory(log, full);
  const state = history.at(timeline.keyframes.at(k).seq);
  return {
    slabs: state.slabs.map(({ request, start, size }) => [request, start, size]),
    refused: state.refused.map((one) => one.request),
    holes: holesOf(state, history.capacity),
    capacity: history.capacity,
  };
};

const markShapes = async () => {
  const { drawMark } = await load('shell/marks');
  const { contrast, Palette } = await load('ui/palette');
  const shapes = {};
  for (const kind of ['eviction', 'hit', 'finish', 'copy', 'preemption', 'fork']) {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = 14;
    const context = canvas.getContext('2d');
    drawMark(context, ctx.palette, kind, 7);
    shapes[kind] = [...context.getImageData(0, 0, 14, 14).data]
      .filter((_, i) => i % 4 === 3)
      .map((alpha) => Number(alpha > 100))
      .join('');
  }
  const ratios = {};
  for (const theme of ['dark', 'light']) {
    document.documentElement.dataset.theme = theme;
    const palette = new Palette();
    for (const name of ['mark-copy', 'mark-preemption', 'mark-eviction', 'mark-hit', 'mark-finish'])
      ratios[`${name} ${theme}`] = contrast(palette.rgb(name), palette.rgb('ground'));
  }
  document.documentElement.dataset.theme = 'dark';
  return { shapes, ratios };
};

Object.assign(window, { wrongViews, wrongTrees, movesByStep, slabsAt, markShapes });
Object.assign(window, {
  setup,
  leave,
  wrongColumns,
  wrongRows,
  contrasts,
  wrongEntries,
  victims,
  slabStates,
  wrongTiles,
  largestOf,
  firstOfKind,
  evictionViews,
  goneTile,
  textsInLayer,
  pixelsOfTokenTwo,
  bracketsOf,
  spotOf,
  reservedAt,
  ready: true,
});
