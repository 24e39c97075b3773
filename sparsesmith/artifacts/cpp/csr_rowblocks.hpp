// Consecutive whole rows, at most nnz_per_block nonzeros and max_rows rows, unless one row alone is longer.
inline Layout build_csr_rowblocks(const Csr& csr, const Parameters& parameters) {
  const int nnz_per_block = parameters.at("nnz_per_block"), max_rows = parameters.at("max_rows");
  std::vector<int> block_rows{0};
  for (int row = 0; row < csr.num_rows;) {
    const std::int64_t limit = std::int64_t{csr.row_offsets[row]} + nnz_per_block;
    auto past = std::upper_bound(csr.row_offsets.begin() + row, csr.row_offsets.end(), limit);
    int end = static_cast<int>(past - csr.row_offsets.begin()) - 1;
    end = std::min(std::max(end, row + 1), std::min(row + max_rows, csr.num_rows));
    block_rows.push_back(end);
    row = end;
  }
  Layout layout;
  const int num_blocks = static_cast<int>(block_rows.size()) - 1;
  layout.sizes["num_blocks"] = num_blocks;
  std::vector<int> columns = csr.col_indices;
  if (is_set(parameters, "index_u16")) {
    std::vector<int> base(num_blocks, 0);
    for (int block = 0; block < num_blocks; ++block) {
      auto first = columns.begin() + csr.row_offsets[block_rows[block]];
      auto last = columns.begin() + csr.row_offsets[block_rows[block + 1]];
      if (first != last) base[block] = *std::min_element(first, last);
      for (; first != last; ++first) *first -= base[block];
    }
    layout.ints["block_col_base"] = std::move(base);
  }
  layout.ints["block_rows"] = std::move(block_rows);
  layout.ints["row_offsets"] = csr.row_offsets;
  store_columns(layout, columns, parameters);
  return layout;
}
