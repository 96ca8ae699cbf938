/** The inspector's description of a selected thing. Each kind is one function from the scene to elements. */
import { isAhead } from '../core/phases.js';
import {
  blockState,
  conversation,
  entryBytes,
  filledSlots,
  goneHeads,
  missOf,
  ownersOf,
  placeOf,
  tableOf,
} from '../core/selectors.js';
import { h } from '../ui/dom.js';
import { bytes, count, duration, fill, percent } from '../ui/format.js';
import { tableParts } from '../ui/table.js';
import { clip, quoted } from '../ui/text.js';
import { tokenText } from '../ui/token.js';
import { headsPicture } from './heads-picture.js';
import { vectorsOf } from './vectors.js';
/** @import { Ctx, Scene, World, Selection, Request } from '../core/types.d.ts' */
/** @import { Child } from '../ui/dom.js' */

const TOP = 5;

/** The input of a description: the scene, and the world at its moment. @typedef {{scene: Scene, world: World, ctx: Ctx}} Look */

/** @param {Selection} selection @param {Scene} scene @param {World} world @param {Ctx} ctx @returns {Node[]} */
export function detailsOf(selection, scene, world, ctx) {
  const look = { scene, world, ctx };
  switch (selection.kind) {
    case 'token':
      return entry(selection.request, selection.position, ctx.ui.layer, look);
    case 'entry':
      return entry(selection.request, selection.position, selection.layer, look);
    case 'block':
      return block(selection.block, look);
    case 'layer':
      return layer(selection.layer, look);
    case 'head':
      return head(selection.layer, selection.head, look);
    case 'request':
      return request(selection.request, look);
  }
}

/** @param {[string, Child|Child[]][]} rows @returns {HTMLElement} */
function facts(rows) {
  return h(
    'dl',
    { class: 'facts' },
    rows.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))),
  );
}

/** @param {string} main @param {string} note @returns {HTMLElement} */
function title(main, note) {
  return h('h2', { class: 'details-title' }, h('bdi', {}, main), note && h('span', {}, ' ', note));
}

/** @param {number} id @param {number} position @param {number} index @param {Look} look @returns {Node[]} */
function entry(id, position, index, look) {
  const { scene, world, ctx } = look;
  const { inspector } = ctx.strings;
  const { header } = ctx.log;
  const item = world.requests.get(id);
  if (!item || !header || position >= item.tokens.length) return [];
  const piece = item.pieces[position];
  const size = entryBytes(header, index);
  const place = placeOf(world, item, position);
  /** @type {[string, Child|Child[]][]} */
  const rows = [
    [
      fill(inspector.position, { position }),
      place ? fill(inspector.place, { block: place.block, slot: place.offset }) : inspector.placeNone,
    ],
  ];
  const gone = item.state === 'finished' ? { gone: 0, of: 0 } : goneHeads(world, item, index, position);
  const isGone = gone.gone > 0 && gone.gone === gone.of;
  const stored = !isGone && (place?.stored ?? false) && !isAhead(scene.step, scene.progress, id, position, index);
  if (stored) {
    rows.push([inspector.storedHere, formula(size, header.model, inspector)]);
    rows.push([inspector.inLayers, `× ${header.model.num_layers} = ${count(size.total)} B`]);
    const share = attentionShare(scene, item, position, index, ctx);
    if (share !== null) rows.push([inspector.attentionNow, percent(share)]);
    if (place) rows.push([inspector.writtenIn, fill(inspector.step, { step: ctx.log.stepOf(place.writeSeq) })]);
  }
  if (gone.gone > 0 && !isGone)
    rows.push([inspector.keptIn, fill(inspector.keptInHeads, { n: gone.of - gone.gone, of: gone.of })]);
  rows.push([inspector.token, String(item.tokens[position])]);
  const parts = [title(quoted(piece), fill(inspector.layer, { layer: index })), facts(rows)];
  if (isGone)
    parts.push(
      h(
        'p',
        { class: 'note details-note' },
        fill(place ? inspector.forgotten : inspector.forgottenBlock, { layer: index }),
      ),
    );
  else if (!stored && (place?.stored || position >= item.numComputed))
    parts.push(h('p', { class: 'note details-note' }, inspector.notStored));
  else parts.push(...vectorsOf(item, position, index, world, ctx));
  if (header.model.layers[index]?.cache === 'kv') parts.push(headsPicture(header.model, ctx.ui.head));
  parts.push(h('p', { class: 'note details-note' }, inspector.queryNotKept));
  return parts;
}

/** `2·3·64·4 B = 1,536 B`. @param {ReturnType<typeof entryBytes>} size @param {import('../core/types.d.ts').ModelHeader} model @param {import('../strings/main.js').Strings['inspector']} text @returns {string} */
function formula(size, model, text) {
  const { geometry } = size;
  if (geometry?.cache === 'latent') {
    const numbers =
      (geometry.key_shape?.[0] ?? 0) * (geometry.key_shape?.[1] ?? 0) +
      (geometry.value_shape?.[0] ?? 0) * (geometry.value_shape?.[1] ?? 0);
    return `${fill(text.storedLatent, { n: numbers })} · ${size.element} B = ${count(size.inLayer)} B`;
  }
  const heads = geometry?.key_shape?.[0] ?? model.num_kv_heads;
  const dim = geometry?.key_shape?.[1] ?? model.head_dim;
  return `2·${heads}·${dim}·${size.element} B = ${count(size.inLayer)} B`;
}

/** Attention of the request's last query in the step on one position, mean over heads.
 * @param {Scene} scene @param {Request} item @param {number} position @param {number} index @param {Ctx} ctx @returns {number|null} */
function attentionShare(scene, item, position, index, ctx) {
  const step = scene.step ? scene.step.step : scene.position;
  const row = ctx.log.lastWork(item.id, step) === step ? attentionRow(scene, index, ctx, item.id) : null;
  if (!row) return null;
  const column = Math.floor(position / row.bin);
  return row.bin === 1 && column < row.values.length ? row.values[column] : null;
}

/** Attention of a request over all its cached tokens in a layer: of one query head, or the mean over heads when `headIndex` is null.
 * @param {Scene} scene @param {number} index @param {Ctx} ctx @param {number} requestId @param {number|null} [headIndex] @returns {{values: Float32Array, bin: number}|null} */
function attentionRow(scene, index, ctx, requestId, headIndex = null) {
  const step = ctx.log.lastWork(requestId, scene.step ? scene.step.step : scene.position);
  if (headIndex !== null) {
    const own = ctx.frames.heads(step, index, requestId);
    const rows = own?.arrays.heads;
    const scale = own?.arrays.heads_scale;
    if (!own || !rows || !scale || headIndex >= scale.length) return null;
    const width = rows.length / scale.length;
    const values = Float32Array.from(
      rows.subarray(headIndex * width, (headIndex + 1) * width),
      (value) => value * scale[headIndex],
    );
    return { values, bin: 1 };
  }
  const pack = ctx.frames.step(step, requestId);
  const means = pack?.arrays.mean;
  const scales = pack?.arrays.mean_scale;
  if (!pack || !means || !scales) return null;
  const columns = means.length / scales.length;
  const values = new Float32Array(columns);
  for (let i = 0; i < columns; i++) values[i] = means[index * columns + i] * scales[index];
  return { values, bin: pack.meta.bin ?? 1 };
}

/** @param {number} id @param {Look} look @returns {Node[]} */
function block(id, look) {
  const { world, ctx } = look;
  const { inspector } = ctx.strings;
  const { header } = ctx.log;
  if (id >= world.numBlocks || !header) return [];
  const state = blockState(world, id);
  const owners = ownersOf(world, id);
  const filled = filledSlots(world, id);
  const queue = world.free.indexOf(id);
  const perToken = header.pool.bytes_per_token;
  /** @type {[string, Child|Child[]][]} */
  const rows = [
    [inspector.state, inspector.states[state]],
    [inspector.refCount, String(world.refCount[id])],
    [inspector.owners, owners.length > 0 ? owners.map((owner) => owner.letter).join(' ') : inspector.nobody],
    [inspector.hash, world.hash[id] ? h('code', {}, `${world.hash[id]?.slice(0, 16)}…`) : inspector.noHash],
    [inspector.filled, fill(inspector.filledOf, { n: filled, size: world.blockSize })],
    [inspector.bytes, `${world.blockSize} · ${count(perToken)} B = ${bytes(world.blockSize * perToken)}`],
  ];
  if (queue >= 0) {
    rows.push([
      inspector.queuePlace,
      queue === 0
        ? fill(inspector.queueNext, { n: world.free.length })
        : fill(inspector.queueNth, { i: queue + 1, n: world.free.length }),
    ]);
    rows.push([inspector.freeSince, fill(inspector.step, { step: world.freeSince[id] })]);
  }
  return [title(fill(inspector.block, { block: id }), ''), facts(rows), slotTable(id, look)];
}

/** @param {number} id @param {Look} look @returns {HTMLElement} */
function slotTable(id, look) {
  const { world, ctx } = look;
  const { inspector } = ctx.strings;
  const rows = [];
  for (let offset = 0; offset < Math.min(world.blockSize, 64); offset++) {
    const slot = id * world.blockSize + offset;
    if (world.slotSeq[slot] < 0) continue;
    const item = world.requests.get(world.slotRequest[slot]);
    const position = world.slotPosition[slot];
    rows.push(
      h(
        'tr',
        {},
        h('td', {}, String(offset)),
        h('td', {}, tokenText(item?.pieces[position])),
        h('td', {}, String(position)),
        h('td', {}, item?.letter ?? ''),
      ),
    );
  }
  if (rows.length === 0) return h('p', { class: 'note details-note' }, inspector.states.blank);
  return h(
    'table',
    { class: 'table' },
    tableParts(
      inspector.slotTable,
      [inspector.slot, inspector.tokenHead, inspector.positionHead, inspector.requestHead],
      rows,
    ),
  );
}

/** @param {number} index @param {Look} look @returns {Node[]} */
function layer(index, look) {
  const { ctx } = look;
  const { inspector } = ctx.strings;
  const { header } = ctx.log;
  const geometry = header?.model.layers[index];
  if (!header || !geometry) return [];
  /** @type {[string, Child|Child[]][]} */
  const rows = [
    [
      inspector.kind,
      geometry.window === null ? inspector.kinds.full : fill(inspector.kinds.window, { n: geometry.window }),
    ],
    [inspector.perEntry, formula(entryBytes(header, index), header.model, inspector)],
  ];
  if (geometry.scaling !== null) rows.push([inspector.scaling, geometry.scaling.toPrecision(3)]);
  if (geometry.softcap !== null) rows.push([inspector.softcap, String(geometry.softcap)]);
  if (geometry.sinks) rows.push([inspector.sinks, inspector.yes]);
  return [title(fill(inspector.layerTitle, { layer: index }), ''), facts(rows), ...topTable(index, look)];
}

/** The five most read entries of a layer as a table, by one head or on average. @param {number} index @param {Look} look @param {number|null} [headIndex] @returns {HTMLElement[]} */
function topTable(index, look, headIndex = null) {
  const { scene, ctx } = look;
  const { inspector } = ctx.strings;
  const item = ctx.selectors.shownRequest(scene, ctx.ui);
  const row = item ? attentionRow(scene, index, ctx, item.id, headIndex) : null;
  if (!row || !item) return [];
  const order = Array.from(row.values.keys())
    .sort((a, b) => row.values[b] - row.values[a])
    .slice(0, TOP);
  const rows = order.map((column) => {
    const position = column * row.bin;
    const name = row.bin === 1 ? [tokenText(item.pieces[position])] : [`${position}–${position + row.bin - 1}`];
    return h('tr', {}, h('td', {}, name), h('td', {}, String(position)), h('td', {}, percent(row.values[column])));
  });
  const caption =
    headIndex === null ? fill(inspector.topRead, { layer: index }) : fill(inspector.topReadHead, { head: headIndex });
  return [
    h(
      'table',
      { class: 'table' },
      tableParts(caption, [inspector.tokenHead, inspector.positionHead, inspector.share], rows),
    ),
  ];
}

/** @param {number} index @param {number} headIndex @param {Look} look @returns {Node[]} */
function head(index, headIndex, look) {
  const { ctx } = look;
  const { inspector } = ctx.strings;
  const model = ctx.log.header?.model;
  const geometry = model?.layers[index];
  if (!model || !geometry) return [];
  const queries = geometry.query_heads || model.num_query_heads;
  const groups = geometry.key_shape?.[0] ?? model.num_kv_heads;
  const kv = Math.floor((headIndex * groups) / queries);
  /** @type {[string, Child|Child[]][]} */
  const rows = [[inspector.readsThrough, fill(inspector.kvHead, { head: kv })]];
  if (geometry.scaling !== null) rows.push([inspector.scaling, geometry.scaling.toPrecision(3)]);
  return [
    title(fill(inspector.headTitle, { head: headIndex }), fill(inspector.layer, { layer: index })),
    facts(rows),
    headsPicture(model, headIndex),
    ...topTable(index, look, headIndex),
  ];
}

/** @param {number} id @param {Look} look @returns {Node[]} */
function request(id, look) {
  const { world, ctx } = look;
  const { inspector, tape } = ctx.strings;
  const item = world.requests.get(id);
  if (!item) return [];
  const { temperature, top_k: topK, top_p: topP } = item.sampling;
  const sampling =
    temperature === 0
      ? inspector.greedy
      : [fill(inspector.temperature, { t: temperature }), topK > 0 && `top k ${topK}`, topP < 1 && `top p ${topP}`]
          .filter(Boolean)
          .join(', ');
  /** @type {[string, Child|Child[]][]} */
  const rows = [
    [inspector.promptTokens, count(item.promptLength)],
    [inspector.hitTokens, count(item.numHitTokens)],
    [inspector.generatedTokens, count(item.tokens.length - item.promptLength)],
    [inspector.computed, count(item.state === 'finished' ? 0 : item.numComputed)],
    [inspector.sampling, sampling],
  ];
  const { pages } = ctx.strings.lenses;
  if (item.state !== 'finished' && pages.state[item.state] !== '')
    rows.unshift([inspector.state, pages.state[item.state]]);
  if (item.fork)
    rows.push([
      '',
      fill(pages.forkOf, {
        letter: world.requests.get(item.fork.parent_id)?.letter ?? '?',
        position: item.fork.position,
      }),
    ]);
  if (item.salt !== null) rows.push([inspector.salt, item.salt]);
  const turns = conversation(world, item);
  if (turns.length > 1)
    rows.push([
      inspector.continues,
      turns
        .slice(0, -1)
        .map((turn) => turn.letter)
        .join(' → '),
    ]);
  if (item.finish) rows.push([inspector.ended, fill(tape.ended[item.finish.code], { max: item.maxNewTokens })]);
  const table = tableOf(item);
  if (table.length > 0)
    rows.push([
      inspector.table,
      table
        .slice(0, 24)
        .map((block) => (block < 0 ? '·' : block))
        .join(' ') + (table.length > 24 ? ' …' : ''),
    ]);
  const parts = [title(fill(inspector.requestTitle, { letter: item.letter }), clip(item.prompt, 80)), facts(rows)];
  const miss = missOf(ctx.log, id, world.seq);
  if (miss) {
    parts.push(
      h('h3', { class: 'details-sub' }, inspector.missTitle),
      facts([
        [inspector.missHit, duration(miss.hit_first_token_us / 1000)],
        [inspector.missMiss, duration(miss.first_token_us / 1000)],
        ['', fill(inspector.missTokens, { n: count(item.numHitTokens) })],
      ]),
    );
  }
  return parts;
}
