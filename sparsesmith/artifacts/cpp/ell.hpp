// Column-major: slot k of row i at k * stride + i; padding repeats the row's last column.
inline Layout build_ell(const Csr& csr, const Parameters&) {
  int width = 0;
  for (int row = 0; row < csr.num_rows; ++row) width = std::max(width, csr.length(row));
  const int stride = (csr.num_rows + 31) / 32 * 32;
  const std::size_t slots = std::size_t(width) * stride;
  Layout layout;
  layout.sizes = {{"width", width}, {"stride", stride}};
  layout.value_sources.assign(slots, -1);
  std::vector<int>& columns = layout.ints["col_indices"];
  columns.assign(slots, 0);
  for (int row = 0; row < csr.num_rows; ++row) {
    const int length = csr.length(row), first = csr.row_offsets[row];
    for (int k = 0; k < width; ++k) {
      const std::size_t slot = std::size_t(k) * stride + row;
      if (length > 0) columns[slot] = csr.col_indices[first + std::min(k, length - 1)];
      if (k < length) layout.value_sources[slot] = first + k;
    }
  }
  return layout;
}
