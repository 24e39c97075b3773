// ELLPACK of `width` slots a row, column-major, and a remainder: long rows whole, or what is beyond a row's slots.
inline Layout build_hyb(const Csr& csr, const Parameters& parameters) {
  const int width = parameters.at("width"), reach = 65536, stride = (csr.num_rows + 31) / 32 * 32;
  const bool narrow = is_set(parameters, "index_u16"), whole_rows = !is_set(parameters, "rest_coo");
  std::vector<int> bases(stride / 32, 0);
  for (int slice = 0; narrow && slice < stride / 32; ++slice) {
    std::vector<int> middles;
    for (int row = slice * 32; row < std::min(slice * 32 + 32, csr.num_rows); ++row)
      if (csr.length(row) > 0) middles.push_back(csr.col_indices[csr.row_offsets[row] + csr.length(row) / 2]);
    std::sort(middles.begin(), middles.end());
    const int median = middles.empty() ? 0 : middles[middles.size() / 2];
    bases[slice] = std::min(std::max(median - reach / 2, 0), std::max(csr.num_cols - reach, 0));
  }
  Layout layout;
  layout.sizes["stride"] = stride;
  const std::size_t slots = std::size_t(width) * stride;
  std::vector<int> columns(slots, 0), rest_rows, rest_cols, rest_sources, mask(stride / 32, 0), long_rows, offsets{0};
  layout.value_sources.assign(slots, -1);
  for (int row = 0; row < csr.num_rows; ++row) {
    const int first = csr.row_offsets[row], last = csr.row_offsets[row + 1], base = bases[row / 32];
    auto reached = [&](int j) {
      return !narrow || (csr.col_indices[j] >= base && csr.col_indices[j] - base < reach);
    };
    if (whole_rows && first < last && (last - first > width || !reached(first) || !reached(last - 1))) {
      long_rows.push_back(row);
      mask[row / 32] |= static_cast<int>(1u << row % 32);
      continue;
    }
    int filled = 0;
    for (int j = first; j < last; ++j) {
      if (filled < width && reached(j)) {
        columns[std::size_t(filled) * stride + row] = csr.col_indices[j] - base;
        layout.value_sources[std::size_t(filled++) * stride + row] = j;
      } else {
        rest_rows.push_back(row);
        rest_sources.push_back(j);
      }
    }
    for (int k = std::max(filled, 1); filled > 0 && k < width; ++k)
      columns[std::size_t(k) * stride + row] = columns[std::size_t(filled - 1) * stride + row];
  }
  std::stable_sort(long_rows.begin(), long_rows.end(), [&](int a, int b) { return csr.length(a) > csr.length(b); });
  for (int row : long_rows) {
    for (int j = csr.row_offsets[row]; j < csr.row_offsets[row + 1]; ++j) rest_sources.push_back(j);
    offsets.push_back(static_cast<int>(rest_sources.size()));
  }
  for (int source : rest_sources) rest_cols.push_back(csr.col_indices[source]);
  layout.value_sources.insert(layout.value_sources.end(), rest_sources.begin(), rest_sources.end());
  if (whole_rows) {
    layout.sizes["num_rest_rows"] = static_cast<int>(long_rows.size());
    layout.ints["rest_mask"] = std::move(mask);
    layout.ints["rest_offsets"] = std::move(offsets);
    rest_rows = std::move(long_rows);
  } else {
    layout.sizes["num_rest"] = static_cast<int>(rest_rows.size());
  }
  if (rest_rows.empty()) rest_rows.push_back(0);
  if (rest_cols.empty()) rest_cols.push_back(0);
  layout.ints["rest_rows"] = std::move(rest_rows);
  layout.ints["rest_cols"] = std::move(rest_cols);
  if (narrow) layout.ints["slice_col_base"] = std::move(bases);
  store_columns(layout, columns, parameters);
  return layout;
}
