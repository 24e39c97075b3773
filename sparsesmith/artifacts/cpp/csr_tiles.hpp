// Whole rows packed into tiles of a fixed number of slots, behind them the pieces of rows that are longer than a tile.
// rows: as they are (natural), longest first (length), by the column of the middle nonzero, empty rows first (column).
inline std::vector<int> tile_row_sequence(const Csr& csr, const Parameters& parameters) {
  const bool by_length = is_set(parameters, "rows_length"), by_column = is_set(parameters, "rows_column");
  std::vector<int> sequence(csr.num_rows), key(csr.num_rows);
  std::iota(sequence.begin(), sequence.end(), 0);
  for (int row = 0; row < csr.num_rows; ++row) {
    const int middle = csr.row_offsets[row] + csr.length(row) / 2;
    key[row] = by_length ? -csr.length(row) : by_column && csr.length(row) > 0 ? csr.col_indices[middle] : -1;
  }
  if (by_length || by_column)
    std::stable_sort(sequence.begin(), sequence.end(), [&key](int a, int b) { return key[a] < key[b]; });
  return sequence;
}

struct Tile {
  int first, end;         // rows, as positions in the sequence
  int skipped, nonzeros;  // nonzeros of the first row in the tiles before, nonzeros of this tile
};

inline std::vector<Tile> cut_tiles(const Csr& csr, const std::vector<int>& sequence, int capacity, int max_rows,
                                   std::vector<Tile>& pieces) {
  std::vector<Tile> whole;
  for (int row = 0; row < csr.num_rows;) {
    const int length = csr.length(sequence[row]);
    if (length > capacity) {
      for (int skipped = 0; skipped < length; skipped += capacity)
        pieces.push_back({row, row + 1, skipped, std::min(capacity, length - skipped)});
      ++row;
      continue;
    }
    Tile tile{row, row, 0, 0};
    while (row < csr.num_rows && row - tile.first < max_rows && tile.nonzeros + csr.length(sequence[row]) <= capacity)
      tile.nonzeros += csr.length(sequence[row++]);
    tile.end = row;
    whole.push_back(tile);
  }
  return whole;
}

inline Layout build_csr_tiles(const Csr& csr, const Parameters& parameters) {
  if (const int num_hubs = std::min(parameters.at("hub_cols"), csr.num_cols)) {
    // The tiles of the matrix with popular columns numbered first.
    std::vector<int> numbers, hubs = popular_columns(csr, num_hubs, numbers);
    Csr numbered = csr;
    numbered.num_cols += num_hubs;
    for (int& column : numbered.col_indices) column = numbers[column];
    Parameters rest = parameters;
    rest["hub_cols"] = 0;
    Layout layout = build_csr_tiles(numbered, rest);
    layout.sizes["num_hubs"] = num_hubs;
    layout.ints["hub_columns"] = std::move(hubs);
    return layout;
  }
  const int vector = parameters.at("vector"), capacity = 32 * vector * parameters.at("chunks");
  const int max_rows = parameters.at("max_rows");
  const bool narrow = is_set(parameters, "index_u16"), sorts = is_set(parameters, "order_column");
  const bool splits = is_set(parameters, "long_rows_split"), natural = is_set(parameters, "rows_natural");
  const std::vector<int> sequence = tile_row_sequence(csr, parameters);
  std::vector<Tile> pieces, tiles = cut_tiles(csr, sequence, capacity, max_rows, pieces);
  const std::size_t num_whole = tiles.size(), num_tiles = num_whole + pieces.size();
  if (!pieces.empty() && !splits) throw std::runtime_error("sparsesmith: a row is longer than a tile");
  tiles.insert(tiles.end(), pieces.begin(), pieces.end());
  Layout layout;
  std::vector<int> tile_rows, row_ids, bases, columns(num_tiles * capacity), split_rows, split_pieces;
  std::vector<std::uint16_t> local_offsets, places(num_tiles * capacity);
  layout.value_sources.resize(num_tiles * capacity);
  std::vector<int> sources(capacity), order(capacity);
  auto column_of = [&](int place) {
    return sources[place] < 0 ? -1 : csr.col_indices[sources[place]];
  };
  for (std::size_t t = 0; t < num_tiles; ++t) {
    const Tile& tile = tiles[t];
    tile_rows.insert(tile_rows.end(), {tile.first, tile.end});
    std::fill(sources.begin(), sources.end(), -1);
    int place = 0;
    for (int r = 0; r <= max_rows; ++r) {
      local_offsets.push_back(static_cast<std::uint16_t>(place));
      const int row = tile.first + r < tile.end ? sequence[tile.first + r] : -1;
      if (r < max_rows) row_ids.push_back(row);
      if (row < 0) continue;
      const int length = std::min(csr.length(row) - tile.skipped, tile.nonzeros);
      for (int k = 0; k < length; ++k) sources[place++] = csr.row_offsets[row] + tile.skipped + k;
    }
    int largest = 0;
    for (int q = 0; q < tile.nonzeros; ++q) largest = std::max(largest, column_of(q));
    std::iota(order.begin(), order.end(), 0);
    if (sorts)
      std::stable_sort(order.begin(), order.begin() + tile.nonzeros,
                       [&](int a, int b) { return column_of(a) < column_of(b); });
    // Padding stands behind the nonzeros of the tile, or of each chunk where they are sorted.
    const int num_runs = sorts ? parameters.at("chunks") : 1, run = capacity / num_runs;
    for (int q = 0, padding = tile.nonzeros; q < capacity; ++q) {
      const int begin = static_cast<int>(std::int64_t{q / run} * tile.nonzeros / num_runs);
      const int end = static_cast<int>(std::int64_t{q / run + 1} * tile.nonzeros / num_runs);
      const bool stored = begin + q % run < end;
      const int place = stored ? order[begin + q % run] : padding++;
      const std::size_t slot = t * capacity + (q / 32 / vector * 32 + q % 32) * vector + q / 32 % vector;
      columns[slot] = stored ? column_of(place) : sorts && end > begin ? column_of(order[end - 1]) : largest;
      places[slot] = static_cast<std::uint16_t>(place);
      layout.value_sources[slot] = stored ? sources[place] : -1;
    }
    if (t >= num_whole && tile.skipped == 0) {
      split_rows.push_back(sequence[tile.first]);
      split_pieces.push_back(static_cast<int>(t - num_whole));
    }
  }
  layout.sizes["num_tiles"] = static_cast<int>(num_tiles);
  if (splits) {
    layout.sizes["num_whole_tiles"] = static_cast<int>(num_whole);
    layout.sizes["num_split_rows"] = static_cast<int>(split_rows.size());
    layout.scratch["carry"] = std::max<std::size_t>(num_tiles - num_whole, 1);
    split_pieces.push_back(static_cast<int>(num_tiles - num_whole));
    if (split_rows.empty()) split_rows.push_back(0);
    layout.ints["split_rows"] = std::move(split_rows);
    layout.ints["split_pieces"] = std::move(split_pieces);
  }
  layout.ints[natural ? "tile_rows" : "row_ids"] = natural ? std::move(tile_rows) : std::move(row_ids);
  layout.shorts["local_offsets"] = std::move(local_offsets);
  if (sorts) layout.shorts["places"] = std::move(places);
  if (narrow) {
    const int run = sorts ? 32 * vector : capacity;
    for (auto slot = columns.begin(); slot != columns.end(); slot += run) {
      const int smallest = *std::min_element(slot, slot + run);
      bases.push_back(smallest);
      std::for_each(slot, slot + run, [smallest](int& column) { column -= smallest; });
    }
    layout.ints[sorts ? "col_base" : "tile_col_base"] = std::move(bases);
  }
  store_columns(layout, columns, parameters);
  return layout;
}
