// Segments of equal work: merge-path diagonals over (row ends, nonzeros), or nonzeros alone.
inline Layout build_csr_merge(const Csr& csr, const Parameters& parameters) {
  const int items = parameters.at("items");
  const bool by_nnz = is_set(parameters, "balance_nnz");
  const std::int64_t work = by_nnz ? csr.nnz() : std::int64_t{csr.nnz()} + csr.num_rows;
  const int num_segments = static_cast<int>((work + items - 1) / items);
  std::vector<int> rows, offsets;
  for (int segment = 0, row = 0; segment <= num_segments; ++segment) {
    const std::int64_t start = std::min<std::int64_t>(std::int64_t{segment} * items, work);
    if (by_nnz) {
      while (row < csr.num_rows && csr.row_offsets[row + 1] <= start) ++row;
      rows.push_back(segment == 0 ? 0 : row);
      offsets.push_back(static_cast<int>(start));
    } else {
      while (row < csr.num_rows && std::int64_t{csr.row_offsets[row + 1]} + row < start) ++row;
      rows.push_back(row);
      offsets.push_back(static_cast<int>(start - row));
    }
  }
  Layout layout;
  std::vector<int> columns = csr.col_indices;
  if (is_set(parameters, "index_u16") || is_set(parameters, "index_u8")) {
    std::vector<int>& bases = layout.ints["segment_col_base"];
    for (int segment = 0; segment < num_segments; ++segment) {
      const auto first = columns.begin() + offsets[segment], last = columns.begin() + offsets[segment + 1];
      bases.push_back(first == last ? 0 : *std::min_element(first, last));
      std::for_each(first, last, [&bases](int& column) { column -= bases.back(); });
    }
  }
  layout.sizes["num_segments"] = num_segments;
  layout.ints["segment_rows"] = std::move(rows);
  layout.ints["segment_offsets"] = std::move(offsets);
  layout.ints["row_offsets"] = csr.row_offsets;
  store_columns(layout, columns, parameters);
  layout.scratch["carry"] = num_segments;
  return layout;
}
