// Consecutive whole rows, at most nnz_per_block nonzeros and max_rows rows, and the distinct columns of each such block.
inline Layout build_csr_distinct(const Csr& csr, const Parameters& parameters) {
  if (!is_set(parameters, "rows_natural")) {
    Parameters of_order = parameters;
    of_order["rows_natural"] = 1;
    Numbered numbered = numbered_by(csr, true, false);
    Layout layout = build_csr_distinct(numbered.csr, of_order);
    layout.ints["row_ids"] = std::move(numbered.rows);
    layout.value_sources = std::move(numbered.sources);
    return layout;
  }
  const int nnz_per_block = parameters.at("nnz_per_block"), max_rows = parameters.at("max_rows");
  Layout layout;
  std::vector<int> block_rows{0}, offsets{0}, block_cols;
  std::vector<std::uint16_t> places(csr.col_indices.size());
  int most = 0;
  for (int row = 0; row < csr.num_rows;) {
    if (csr.length(row) > nnz_per_block) throw std::runtime_error("sparsesmith: a row is longer than a block");
    int end = row;
    while (end < csr.num_rows && end - row < max_rows &&
           std::int64_t{csr.row_offsets[end + 1]} - csr.row_offsets[row] <= nnz_per_block)
      ++end;
    const auto first = csr.col_indices.begin() + csr.row_offsets[row], last = csr.col_indices.begin() + csr.row_offsets[end];
    std::vector<int> columns(first, last);
    std::sort(columns.begin(), columns.end());
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    for (auto column = first; column != last; ++column)
      places[column - csr.col_indices.begin()] = static_cast<std::uint16_t>(
          std::lower_bound(columns.begin(), columns.end(), *column) - columns.begin());
    most = std::max(most, static_cast<int>(columns.size()));
    block_cols.insert(block_cols.end(), columns.begin(), columns.end());
    offsets.push_back(static_cast<int>(block_cols.size()));
    block_rows.push_back(end);
    row = end;
  }
  layout.sizes["num_blocks"] = static_cast<int>(block_rows.size()) - 1;
  layout.sizes["max_block_cols"] = most;
  layout.ints["block_rows"] = std::move(block_rows);
  layout.ints["block_col_offsets"] = std::move(offsets);
  layout.ints["block_cols"] = std::move(block_cols);
  layout.ints["row_offsets"] = csr.row_offsets;
  layout.shorts["col_indices"] = std::move(places);
  return layout;
}
