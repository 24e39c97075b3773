// Diagonals of all rows, or of `slice` rows after another.
inline Layout build_dia(const Csr& csr, const Parameters& parameters) {
  const std::size_t slice = parameters.at("slice") ? parameters.at("slice") : csr.num_rows;
  std::vector<int> offsets;
  for (int row = 0; row < csr.num_rows; ++row)
    for (int j = csr.row_offsets[row]; j < csr.row_offsets[row + 1]; ++j) offsets.push_back(csr.col_indices[j] - row);
  std::vector<int> unique = offsets;
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  Layout layout;
  layout.sizes["num_diagonals"] = static_cast<int>(unique.size());
  layout.value_sources.assign(unique.size() * ((csr.num_rows + slice - 1) / slice * slice), -1);
  for (int row = 0; row < csr.num_rows; ++row)
    for (int j = csr.row_offsets[row]; j < csr.row_offsets[row + 1]; ++j) {
      const std::size_t diagonal = std::lower_bound(unique.begin(), unique.end(), offsets[j]) - unique.begin();
      layout.value_sources[(row / slice * unique.size() + diagonal) * slice + row % slice] = j;
    }
  layout.ints["diagonal_offsets"] = std::move(unique);
  return layout;
}
