// Slices of `slice` block rows, column-major in a slice; block elements in planes of as many as a vector load takes.
inline Layout build_bsell(const Csr& csr, const Parameters& parameters) {
  const int rows = parameters.at("block_rows"), cols = parameters.at("block_cols"), size = rows * cols;
  const int slice = parameters.at("slice"), num_block_rows = (csr.num_rows + rows - 1) / rows;
  const int sigma = parameters.at("sigma") ? parameters.at("sigma") : num_block_rows;
  const int num_slices = (num_block_rows + slice - 1) / slice, vector = size % 4 == 0 ? 4 : size % 2 == 0 ? 2 : 1;
  std::vector<std::vector<int>> present(num_block_rows);
  for (int row = 0; row < csr.num_rows; ++row)
    for (int j = csr.row_offsets[row]; j < csr.row_offsets[row + 1]; ++j)
      present[row / rows].push_back(csr.col_indices[j] / cols);
  for (std::vector<int>& blocks : present) {
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  }
  std::vector<int> lanes(std::size_t(num_slices) * slice, -1);
  std::iota(lanes.begin(), lanes.begin() + num_block_rows, 0);
  for (int first = 0; sigma > 1 && first < num_block_rows; first += sigma) {
    const int last = static_cast<int>(std::min<std::int64_t>(std::int64_t{first} + sigma, num_block_rows));
    std::stable_sort(lanes.begin() + first, lanes.begin() + last,
                     [&present](int a, int b) { return present[a].size() > present[b].size(); });
    if (last == num_block_rows) break;
  }
  Layout layout;
  layout.sizes["num_slices"] = num_slices;
  const bool narrow = is_set(parameters, "index_u16");
  std::vector<int> offsets{0}, columns, bases;
  for (int s = 0; s < num_slices; ++s) {
    const int* lane = &lanes[std::size_t(s) * slice];
    std::size_t width = 0;
    int base = csr.num_cols;
    for (int l = 0; l < slice; ++l) {
      if (lane[l] < 0 || present[lane[l]].empty()) continue;
      width = std::max(width, present[lane[l]].size());
      base = std::min(base, present[lane[l]].front());
    }
    if (width == 0) base = 0;
    bases.push_back(base);
    const std::size_t first_value = layout.value_sources.size();
    layout.value_sources.resize(first_value + width * slice * size, -1);
    for (std::size_t k = 0; k < width; ++k)
      for (int l = 0; l < slice; ++l) {
        const int block_row = lane[l];
        const std::size_t length = block_row < 0 ? 0 : present[block_row].size();
        const int column = length > 0 ? present[block_row][std::min(k, length - 1)] : base;
        columns.push_back(narrow ? column - base : column);
        if (k >= length) continue;
        for (int row = block_row * rows; row < std::min((block_row + 1) * rows, csr.num_rows); ++row)
          for (int j = csr.row_offsets[row]; j < csr.row_offsets[row + 1]; ++j) {
            if (csr.col_indices[j] / cols != column) continue;
            const int e = row % rows * cols + csr.col_indices[j] % cols;
            layout.value_sources[first_value + k * slice * size + (e / vector * slice + l) * vector + e % vector] = j;
          }
      }
    offsets.push_back(static_cast<int>(columns.size()));
  }
  layout.ints["slice_offsets"] = std::move(offsets);
  layout.ints["block_row_permutation"] = std::move(lanes);
  if (narrow) layout.ints["slice_col_base"] = std::move(bases);
  store_columns(layout, columns, parameters, "block_col_indices");
  return layout;
}
