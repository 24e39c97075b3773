inline Layout build_csr(const Csr& csr, const Parameters& parameters) {
  Layout layout;
  layout.ints["row_offsets"] = csr.row_offsets;
  store_columns(layout, csr.col_indices, parameters);
  return layout;
}
