inline Layout build_csr_based(const Csr& csr, const Parameters& parameters) {
  Layout layout;
  layout.ints["row_offsets"] = csr.row_offsets;
  std::vector<int>& columns = layout.ints["col_indices"];
  for (int column : csr.col_indices) columns.push_back(column + is_set(parameters, "base_one"));
  return layout;
}
