// Rows gathered by length into bins of one width, a number of lanes a row; slots of a warp side by side.
inline Layout build_row_bins(const Csr& csr, const Parameters& parameters) {
  if (!is_set(parameters, "numbering_natural")) {
    Parameters of_order = parameters;
    of_order["numbering_natural"] = 1;
    Numbered numbered = numbered_by(csr, is_set(parameters, "numbering_breadth"));
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
