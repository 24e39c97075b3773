inline Layout build_bsr(const Csr& csr, const Parameters& parameters) {
  const int block_rows = parameters.at("block_rows"), block_cols = parameters.at("block_cols");
  const int num_block_rows = (csr.num_rows + block_rows - 1) / block_rows;
  Layout layout;
  layout.sizes["num_block_rows"] = num_block_rows;
  std::vector<int> offsets{0}, columns;
  for (int block_row = 0; block_row < num_block_rows; ++block_row) {
    const int last = std::min((block_row + 1) * block_rows, csr.num_rows);
    std::vector<int> present;
    for (int j = csr.row_offsets[block_row * block_rows]; j < csr.row_offsets[last]; ++j)
      present.push_back(csr.col_indices[j] / block_cols);
    std::sort(present.begin(), present.end());
    present.erase(std::unique(present.begin(), present.end()), present.end());
    const std::size_t first_slot = layout.value_sources.size();
    layout.value_sources.resize(first_slot + present.size() * block_rows * block_cols, -1);
    for (int row = block_row * block_rows; row < last; ++row)
      for (int j = csr.row_offsets[row]; j < csr.row_offsets[row + 1]; ++j) {
        const int column = csr.col_indices[j];
        const std::size_t block =
            std::lower_bound(present.begin(), present.end(), column / block_cols) - present.begin();
        layout.value_sources[first_slot + (block * block_rows + row % block_rows) * block_cols + column % block_cols] = j;
      }
    columns.insert(columns.end(), present.begin(), present.end());
    offsets.push_back(static_cast<int>(columns.size()));
  }
  layout.ints["block_row_offsets"] = std::move(offsets);
  layout.ints["block_col_indices"] = std::move(columns);
  return layout;
}
