// Matrices to begin with. One is real and lies beside this file; the others are made here, by formula, from what people solve.

/** @typedef {{num_rows: number, num_cols: number, row_indices: number[], col_indices: number[]}} Lists */
/** @typedef {{name: string, words: string, file?: string, make?: () => Lists}} Example */

/** @type {Example[]} */
export const EXAMPLES = [
  { name: "jagmesh7.mtx", words: "A triangular mesh, 1,138 rows, 7,450 nonzeros (SuiteSparse HB/jagmesh7, CC-BY 4.0)", file: "examples/jagmesh7.mtx.gz" },
  { name: "poisson-2d", words: "Poisson's equation on a grid of 100 x 100, five points", make: () => stencil([100, 100], cross(2)) },
  { name: "diffusion-3d", words: "Diffusion on a grid of 14 x 14 x 14, all 27 neighbours", make: () => stencil([14, 14, 14], box(3)) },
  { name: "graph", words: "A graph whose degrees follow a power law: a few hubs, many leaves", make: () => powerLaw(4000, 8) },
  { name: "blocks", words: "A banded matrix of dense 3 x 3 blocks, as of elasticity", make: () => blocks(800, 3, [0, 1, 2, 17, 40]) },
  { name: "arrow", words: "A diagonal with full last rows and columns, as of linear programs with coupling constraints", make: () => arrow(6000, 4) },
];

/** Points of a grid and the neighbours of each. @param {number[]} extents @param {number[][]} offsets @returns {Lists} */
export function stencil(extents, offsets) {
  const size = extents.reduce((product, each) => product * each, 1);
  return gathered(size, size, (add) => {
    for (let point = 0; point < size; point++) {
      const place = coordinates(point, extents);
      for (const offset of offsets) {
        const other = place.map((each, axis) => each + offset[axis]);
        if (other.every((each, axis) => each >= 0 && each < extents[axis])) add(point, number(other, extents));
      }
    }
  });
}

/** Rows of about `mean` entries, lengths and columns by Zipf's law. @param {number} size @param {number} mean @returns {Lists} */
export function powerLaw(size, mean) {
  const chance = random(20261122);
  const harmonic = Math.log(size);
  return gathered(size, size, (add) => {
    for (let row = 0; row < size; row++) {
      const length = Math.min(size / 8, Math.max(1, Math.round((mean * size) / harmonic / (1 + ((row * 7919) % size)))));
      const seen = new Set([row]);
      while (seen.size < length) seen.add(Math.min(size - 1, Math.floor(size ** chance()) - 1));
      for (const col of seen) add(row, col);
    }
  });
}

/** @param {number} count @param {number} extent @param {number[]} distances @returns {Lists} */
export function blocks(count, extent, distances) {
  return gathered(count * extent, count * extent, (add) => {
    for (let row = 0; row < count; row++) {
      for (const distance of new Set(distances.flatMap((each) => [each, -each]))) {
        if (row + distance < 0 || row + distance >= count) continue;
        for (let inner = 0; inner < extent * extent; inner++) add(row * extent + Math.floor(inner / extent), (row + distance) * extent + (inner % extent));
      }
    }
  });
}

/** @param {number} size @param {number} full @returns {Lists} */
export function arrow(size, full) {
  return gathered(size, size, (add) => {
    for (let row = 0; row < size; row++) {
      const isFull = row >= size - full;
      for (let col = isFull ? 0 : size - full; col < size; col++) add(row, col);
      if (!isFull) add(row, row);
    }
  });
}

/** @param {number} rows @param {number} cols @param {(add: (row: number, col: number) => void) => void} write @returns {Lists} */
function gathered(rows, cols, write) {
  /** @type {Lists} */
  const lists = { num_rows: rows, num_cols: cols, row_indices: [], col_indices: [] };
  write((row, col) => {
    lists.row_indices.push(row);
    lists.col_indices.push(col);
  });
  return lists;
}

/** A point and its nearest neighbours. @param {number} axes */
function cross(axes) {
  return box(axes).filter((offset) => offset.filter((each) => each).length <= 1);
}

/** A point and all around it. @param {number} axes @returns {number[][]} */
function box(axes) {
  return axes ? [-1, 0, 1].flatMap((step) => box(axes - 1).map((rest) => [step, ...rest])) : [[]];
}

/** @param {number} point @param {number[]} extents */
function coordinates(point, extents) {
  return extents.map((extent, axis) => Math.floor(point / extents.slice(axis + 1).reduce((product, each) => product * each, 1)) % extent);
}

/** @param {number[]} place @param {number[]} extents */
function number(place, extents) {
  return place.reduce((sum, each, axis) => sum * extents[axis] + each, 0);
}

/** Numbers in [0, 1), the same every time (mulberry32). @param {number} seed */
function random(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
