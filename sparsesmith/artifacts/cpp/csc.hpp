inline Layout build_csc(const Csr& csr, const Parameters&) {
  Layout layout;
  std::vector<int>& offsets = layout.ints["col_offsets"];
  offsets.assign(csr.num_cols + 1, 0);
  for (int column : csr.col_indices) ++offsets[column + 1];
  for (int column = 0; column < csr.num_cols; ++column) offsets[column + 1] += offsets[column];
  std::vector<int>& rows = layout.ints["row_indices"];
  std::vector<int>& places = layout.ints["places"];
  rows.resize(csr.col_indices.size());
  places.resize(csr.col_indices.size());
  std::vector<int> next(offsets.begin(), offsets.end() - 1);
  for (int row = 0; row < csr.num_rows; ++row)
    for (int j = csr.row_offsets[row]; j < csr.row_offsets[row + 1]; ++j) {
      int place = next[csr.col_indices[j]]++;
      rows[place] = row;
      places[place] = j;
    }
  return layout;
}
