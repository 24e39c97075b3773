// Slots of one slice, each with a base of its own: lanes whose next column is out of reach wait for a later slot.
inline void add_windows(const Csr& csr, const int* lane, int slice, int reach, std::vector<int>& columns,
                        std::vector<int>& bases, Layout& layout) {
  std::vector<int> next(slice, 0), end(slice, 0);
  for (int l = 0; l < slice; ++l) {
    if (lane[l] < 0) continue;
    next[l] = csr.row_offsets[lane[l]];
    end[l] = csr.row_offsets[lane[l] + 1];
  }
  for (;;) {
    int base = csr.num_cols;
    for (int l = 0; l < slice; ++l)
      if (next[l] < end[l]) base = std::min(base, csr.col_indices[next[l]]);
    if (base == csr.num_cols) return;
    bases.push_back(base);
    for (int l = 0; l < slice; ++l) {
      const bool taken = next[l] < end[l] && csr.col_indices[next[l]] - base < reach;
      columns.push_back(taken ? csr.col_indices[next[l]] - base : 0);
      layout.value_sources.push_back(taken ? next[l]++ : -1);
    }
  }
}

// Slices of `slice` lanes, column-major in a slice; rows sorted by descending length within windows of sigma rows.
inline Layout build_sell(const Csr& csr, const Parameters& parameters) {
  if (!is_set(parameters, "rows_natural")) {
    Parameters of_order = parameters;
    of_order["rows_natural"] = 1;
    const Numbered numbered = numbered_by(csr, true, false);
    Layout layout = build_sell(numbered.csr, of_order);
    for (int& row : layout.ints["row_permutation"]) row = row < 0 ? -1 : numbered.rows[row];
    for (int& source : layout.value_sources) source = source < 0 ? -1 : numbered.sources[source];
    return layout;
  }
  const int slice = parameters.at("slice"), sigma = parameters.at("sigma") ? parameters.at("sigma") : csr.num_rows;
  const int num_slices = (csr.num_rows + slice - 1) / slice;
  std::vector<int> lanes(std::size_t(num_slices) * slice, -1);
  std::iota(lanes.begin(), lanes.begin() + csr.num_rows, 0);
  for (int first = 0; sigma > 1 && first < csr.num_rows; first += sigma) {
    const int last = static_cast<int>(std::min<std::int64_t>(std::int64_t{first} + sigma, csr.num_rows));
    std::stable_sort(lanes.begin() + first, lanes.begin() + last,
                     [&csr](int a, int b) { return csr.length(a) > csr.length(b); });
    if (last == csr.num_rows) break;
  }
  Layout layout;
  layout.sizes["num_slices"] = num_slices;
  const bool narrow = is_set(parameters, "index_u16");
  const int reach = is_set(parameters, "index_u8") ? 256 : is_set(parameters, "index_u16_slot") ? 65536 : 0;
  std::vector<int> offsets{0}, columns, bases;
  for (int s = 0; s < num_slices; ++s) {
    const int* lane = &lanes[std::size_t(s) * slice];
    if (reach) {
      add_windows(csr, lane, slice, reach, columns, bases, layout);
      offsets.push_back(static_cast<int>(columns.size()));
      continue;
    }
    int width = 0, base = csr.num_cols;
    for (int l = 0; l < slice; ++l) {
      if (lane[l] < 0 || csr.length(lane[l]) == 0) continue;
      width = std::max(width, csr.length(lane[l]));
      base = std::min(base, csr.col_indices[csr.row_offsets[lane[l]]]);
    }
    if (width == 0) base = 0;
    bases.push_back(base);
    const int origin = narrow ? base : 0;
    for (int k = 0; k < width; ++k)
      for (int l = 0; l < slice; ++l) {
        const int length = lane[l] < 0 ? 0 : csr.length(lane[l]);
        const int first = lane[l] < 0 ? 0 : csr.row_offsets[lane[l]];
        columns.push_back((length > 0 ? csr.col_indices[first + std::min(k, length - 1)] : base) - origin);
        layout.value_sources.push_back(k < length ? first + k : -1);
      }
    offsets.push_back(static_cast<int>(columns.size()));
  }
  layout.ints["slice_offsets"] = std::move(offsets);
  layout.ints["row_permutation"] = std::move(lanes);
  if (narrow || reach) layout.ints[reach ? "slot_col_base" : "slice_col_base"] = std::move(bases);
  store_columns(layout, columns, parameters);
  return layout;
}
