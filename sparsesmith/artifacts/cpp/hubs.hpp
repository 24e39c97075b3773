// Popular columns numbered first; CSR order with one slot for an empty row; a bitmap with ranks for the rows' starts.
inline Layout build_hubs(const Csr& csr, const Parameters& parameters) {
  const int num_hubs = std::min(parameters.at("hub_cols"), csr.num_cols), items = parameters.at("items");
  std::vector<int> numbers, order = popular_columns(csr, num_hubs, numbers);
  Layout layout;
  std::vector<int> columns, ranks;
  std::vector<std::uint32_t> words;
  int rows = 0;
  auto store = [&](int column, int source, bool starts) {
    if (columns.size() % 32 == 0) {
      words.push_back(0);
      ranks.push_back(rows);
    }
    if (starts) {
      words.back() |= 1u << columns.size() % 32;
      ++rows;
    }
    columns.push_back(column);
    layout.value_sources.push_back(source);
  };
  for (int row = 0; row < csr.num_rows; ++row) {
    const int first = csr.row_offsets[row], last = csr.row_offsets[row + 1];
    if (first == last) store(0, -1, true);
    for (int j = first; j < last; ++j) store(numbers[csr.col_indices[j]], j, j == first);
  }
  while (columns.size() % (32 * items)) store(0, -1, false);
  layout.sizes = {{"num_hubs", num_hubs}, {"num_segments", static_cast<int>(columns.size() / (32 * items))}};
  layout.scratch["hub_x"] = (num_hubs + 3) / 4 * 4;
  layout.ints["hub_columns"] = std::move(order);
  layout.ints["row_starts"].assign(words.begin(), words.end());
  layout.ints["row_ranks"] = std::move(ranks);
  layout.ints["col_indices"] = std::move(columns);
  return layout;
}
