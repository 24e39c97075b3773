inline Layout build_csr(const Csr& csr, const Parameters& parameters) {
  Layout layout;
  layout.ints["row_offsets"] = csr.row_offsets;
  std::vector<int> columns = csr.col_indices;
  if (is_set(parameters, "index_u8") || is_set(parameters, "index_u16_row")) {
    std::vector<int>& bases = layout.ints["row_col_base"];
    for (int row = 0; row < csr.num_rows; ++row) {
      bases.push_back(csr.length(row) > 0 ? csr.col_indices[csr.row_offsets[row]] : 0);
      for (int j = csr.row_offsets[row]; j < csr.row_offsets[row + 1]; ++j) columns[j] -= bases.back();
    }
  }
  store_columns(layout, columns, parameters);
  return layout;
}
