// Windows of rows cut by panels of columns; strips of `height` rows share a column entry, cells begin at multiples of 16.
inline Layout build_cells(const Csr& csr, const Parameters& parameters) {
  const int strips = parameters.at("strips"), height = parameters.at("height"), pad = parameters.at("pad");
  const int cell_cols = parameters.at("cell_cols"), parts = parameters.at("parts"), cell_rows = strips * height;
  const int num_windows = (csr.num_rows + cell_rows - 1) / cell_rows;
  const int num_panels = (csr.num_cols + cell_cols - 1) / cell_cols;
  Layout layout;
  auto& cell_offsets = layout.ints["cell_offsets"];
  auto& strip_offsets = layout.ints["strip_offsets"];
  auto& columns = layout.bytes["col_indices"];
  int cell_slots = 0;
  cell_offsets.push_back(0);
  std::vector<int> next(csr.row_offsets.begin(), csr.row_offsets.end() - 1);
  std::vector<int> sources(std::size_t(cell_cols) * height);
  for (int window = 0; window < num_windows; ++window)
    for (int panel = 0; panel < num_panels; ++panel) {
      const int first = cell_offsets.back();
      for (int strip = 0; strip < strips; ++strip) {
        strip_offsets.push_back(static_cast<int>(columns.size()) - first);
        std::vector<bool> present(cell_cols, false);
        std::fill(sources.begin(), sources.end(), -1);
        for (int i = 0; i < height; ++i) {
          const std::int64_t row = (std::int64_t{window} * strips + strip) * height + i;
          if (row >= csr.num_rows) break;
          for (int& j = next[row]; j < csr.row_offsets[row + 1] && csr.col_indices[j] / cell_cols == panel; ++j) {
            const int column = csr.col_indices[j] % cell_cols;
            present[column] = true;
            sources[std::size_t(column) * height + i] = j;
          }
        }
        int count = 0;
        for (int column = 0; column < cell_cols; ++column) {
          if (!present[column]) continue;
          columns.push_back(static_cast<std::uint8_t>(column));
          const auto entry = sources.begin() + std::size_t(column) * height;
          layout.value_sources.insert(layout.value_sources.end(), entry, entry + height);
          ++count;
        }
        for (; count % pad != 0; ++count) columns.push_back(columns.back());
        layout.value_sources.resize(columns.size() * height, -1);
      }
      strip_offsets.push_back(static_cast<int>(columns.size()) - first);
      while (columns.size() % 16 != 0) columns.push_back(0);
      layout.value_sources.resize(columns.size() * height, -1);
      cell_offsets.push_back(static_cast<int>(columns.size()));
      cell_slots = std::max(cell_slots, cell_offsets.back() - first);
    }
  layout.sizes = {{"num_windows", num_windows}, {"num_panels", num_panels}, {"cell_slots", cell_slots}};
  if (parts > 1) layout.scratch["partial"] = std::size_t(parts) * csr.num_rows;
  return layout;
}
