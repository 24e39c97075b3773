inline Layout build_coo(const Csr& csr, const Parameters& parameters) {
  Layout layout;
  std::vector<int>& rows = layout.ints["row_indices"];
  rows.reserve(csr.col_indices.size());
  for (int row = 0; row < csr.num_rows; ++row) rows.insert(rows.end(), csr.length(row), row);
  store_columns(layout, csr.col_indices, parameters);
  return layout;
}
