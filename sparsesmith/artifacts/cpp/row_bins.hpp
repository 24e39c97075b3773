// Rows and columns in another order than the user's.
struct Numbered {
  Csr csr;
  std::vector<int> rows, cols, sources;  // of each place (nonzero) the user's row, column (nonzero)
};

// The order in which a walk in breadth meets rows and columns, columns counted from num_rows. Nodes are numbered by their
// nonzeros, the fewest first; of each component a first walk finds a node far out, a second one from there is the order.
inline std::vector<int> breadth_order(const Csr& csr) {
  const int num_nodes = csr.num_rows + csr.num_cols;
  std::vector<int> lengths(num_nodes, 0), nodes(num_nodes), numbers(num_nodes);
  for (int row = 0; row < csr.num_rows; ++row) lengths[row] = csr.length(row);
  for (int column : csr.col_indices) ++lengths[csr.num_rows + column];
  std::iota(nodes.begin(), nodes.end(), 0);
  std::stable_sort(nodes.begin(), nodes.end(), [&](int a, int b) { return lengths[a] < lengths[b]; });
  std::vector<int> offsets(num_nodes + 1, 0), rows_of(csr.nnz()), column_offsets(csr.num_cols + 1, 0);
  for (int number = 0; number < num_nodes; ++number) {
    numbers[nodes[number]] = number;
    offsets[number + 1] = offsets[number] + lengths[nodes[number]];
  }
  for (int column = 0; column < csr.num_cols; ++column)
    column_offsets[column + 1] = column_offsets[column] + lengths[csr.num_rows + column];
  std::vector<int> ends(column_offsets.begin(), column_offsets.end() - 1);
  for (int row = 0; row < csr.num_rows; ++row)
    for (int k = csr.row_offsets[row]; k < csr.row_offsets[row + 1]; ++k) rows_of[ends[csr.col_indices[k]]++] = row;
  std::vector<int> neighbours(offsets[num_nodes]), filled(offsets.begin(), offsets.end() - 1);
  for (int number = 0; number < num_nodes; ++number) {  // Ascending, so that every node's neighbours ascend.
    const int node = nodes[number], column = node - csr.num_rows;
    if (node < csr.num_rows)
      for (int k = csr.row_offsets[node]; k < csr.row_offsets[node + 1]; ++k)
        neighbours[filled[numbers[csr.num_rows + csr.col_indices[k]]]++] = number;
    else
      for (int k = column_offsets[column]; k < column_offsets[column + 1]; ++k)
        neighbours[filled[numbers[rows_of[k]]]++] = number;
  }
  std::vector<int> order, walks(num_nodes, 0);
  auto walk = [&](int start, int time) {
    const std::size_t first = order.size();
    order.push_back(start);
    walks[start] = time;
    for (std::size_t next = first; next < order.size(); ++next)
      for (int j = offsets[order[next]]; j < offsets[order[next] + 1]; ++j)
        if (walks[neighbours[j]] < time) {
          walks[neighbours[j]] = time;
          order.push_back(neighbours[j]);
        }
    return first;
  };
  for (int number = 0; number < num_nodes; ++number) {
    if (walks[number]) continue;
    const std::size_t first = walk(number, 1);
    const int last = order.back();
    order.resize(first);
    walk(last, 2);
  }
  for (int& number : order) number = nodes[number];
  return order;
}

inline Numbered numbered_by(const Csr& csr, const Parameters& parameters) {
  Numbered numbered;
  std::vector<int> places(csr.num_cols);
  if (is_set(parameters, "numbering_breadth")) {
    for (int node : breadth_order(csr))
      (node < csr.num_rows ? numbered.rows : numbered.cols).push_back(node < csr.num_rows ? node : node - csr.num_rows);
  } else {
    numbered.cols = popular_columns(csr, csr.num_cols, places);
    numbered.rows.resize(csr.num_rows);
    std::iota(numbered.rows.begin(), numbered.rows.end(), 0);
  }
  for (int place = 0; place < csr.num_cols; ++place) places[numbered.cols[place]] = place;
  numbered.csr.num_rows = csr.num_rows;
  numbered.csr.num_cols = csr.num_cols;
  numbered.csr.row_offsets.push_back(0);
  for (int row : numbered.rows) {
    const std::size_t first = numbered.sources.size();
    for (int k = csr.row_offsets[row]; k < csr.row_offsets[row + 1]; ++k) numbered.sources.push_back(k);
    std::sort(numbered.sources.begin() + first, numbered.sources.end(),
              [&](int a, int b) { return places[csr.col_indices[a]] < places[csr.col_indices[b]]; });
    numbered.csr.row_offsets.push_back(static_cast<int>(numbered.sources.size()));
  }
  for (int source : numbered.sources) numbered.csr.col_indices.push_back(places[csr.col_indices[source]]);
  return numbered;
}

// Rows gathered by length into bins of one width, a number of lanes a row; slots of a warp side by side.
inline Layout build_row_bins(const Csr& csr, const Parameters& parameters) {
  if (!is_set(parameters, "numbering_natural")) {
    Parameters of_order = parameters;
    of_order["numbering_natural"] = 1;
    Numbered numbered = numbered_by(csr, parameters);
    Layout layout = build_row_bins(numbered.csr, of_order);
    for (int& row : layout.ints["row_permutation"]) row = row < 0 ? -1 : numbered.rows[row];
    for (int& source : layout.value_sources) source = source < 0 ? -1 : numbered.sources[source];
    layout.ints["col_order"] = std::move(numbered.cols);
    layout.scratch["ordered_x"] = csr.num_cols;
    return layout;
  }
  const int num_limits = parameters.at("widths_count"), most_steps = parameters.at("steps");
  std::vector<std::vector<int>> rows_of(num_limits);
  for (int row = 0; row < csr.num_rows; ++row) {
    int bin = 0;
    while (parameters.at("widths_" + std::to_string(bin)) < csr.length(row)) ++bin;
    rows_of[bin].push_back(row);
  }
  Layout layout;
  const bool narrow = is_set(parameters, "index_u16");
  const int high_bits = is_set(parameters, "index_u18") ? 2 : is_set(parameters, "index_u20") ? 4 : 0;
  std::vector<int> bins, permutation, bases, columns;
  std::vector<std::uint8_t> high;
  int num_bins = 0, num_warps = 0;
  for (int bin = num_limits - 1; bin >= 0; --bin) {
    std::vector<int>& rows = rows_of[bin];
    if (rows.empty()) continue;
    int width = 1, lanes = 1;
    for (int row : rows) width = std::max(width, csr.length(row));
    while (lanes < parameters.at("max_lanes") && lanes * most_steps < width) lanes *= 2;
    const int steps = (width + lanes - 1) / lanes;
    const int warps = static_cast<int>((std::int64_t(rows.size()) * lanes + 31) / 32);
    bins.insert(bins.end(), {num_warps, lanes, static_cast<int>(permutation.size()), static_cast<int>(columns.size())});
    rows.resize(std::size_t(warps) * 32 / lanes, -1);
    permutation.insert(permutation.end(), rows.begin(), rows.end());
    for (int warp = 0; warp < warps; ++warp) {
      const int* own = &rows[std::size_t(warp) * 32 / lanes];
      int base = csr.num_cols;
      for (int r = 0; r < std::max(1, 32 / lanes); ++r)
        if (own[r] >= 0 && csr.length(own[r]) > 0) base = std::min(base, csr.col_indices[csr.row_offsets[own[r]]]);
      if (base == csr.num_cols) base = 0;
      bases.push_back(base);
      for (int step = 0; step < steps; ++step) {
        if (high_bits && step % (8 / high_bits) == 0) high.resize(high.size() + 32);
        for (int lane = 0; lane < 32; ++lane) {
          const int row = own[lane / lanes], j = step * lanes + (warp * 32 + lane) % lanes;
          const int length = row < 0 ? 0 : csr.length(row), first = row < 0 ? 0 : csr.row_offsets[row];
          const int column = length > 0 ? csr.col_indices[first + std::min(j, length - 1)] : base;
          if (high_bits) high[high.size() - 32 + lane] |= (column >> 16) << step % (8 / high_bits) * high_bits;
          columns.push_back(narrow ? column - base : column);
          layout.value_sources.push_back(j < length ? first + j : -1);
        }
      }
    }
    ++num_bins;
    num_warps += warps;
  }
  bins.insert(bins.end(), {num_warps, 0, static_cast<int>(permutation.size()), static_cast<int>(columns.size())});
  layout.sizes = {{"num_bins", num_bins}, {"num_warps", num_warps}};
  layout.ints["bins"] = std::move(bins);
  layout.ints["row_permutation"] = std::move(permutation);
  if (narrow) layout.ints["warp_col_base"] = std::move(bases);
  if (high_bits) layout.bytes["high_bits"] = std::move(high);
  store_columns(layout, columns, parameters);
  return layout;
}
