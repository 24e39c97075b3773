// A bit an entry: strips of 16 rows cut by parts of columns, values in a stream for each lane and each of its two rows.
inline Layout build_bitmap(const Csr& csr, const Parameters& parameters) {
  const int part_cols = parameters.at("part_cols"), chunks = part_cols / 64;
  const int num_strips = (csr.num_rows + 15) / 16, num_parts = (csr.num_cols + part_cols - 1) / part_cols;
  Layout layout;
  auto& line_offsets = layout.ints["line_offsets"];
  auto& quarter_chunks = layout.ints["quarter_chunks"];
  std::vector<std::uint32_t> masks(std::size_t(num_strips) * num_parts * chunks * 32);
  auto rounded_up = [](int lines) { return (lines + 3) / 4 * 4; };
  int part_lines = 0;
  line_offsets.push_back(0);
  std::vector<int> next(csr.row_offsets.begin(), csr.row_offsets.end() - 1);
  for (int strip = 0; strip < num_strips; ++strip)
    for (int part = 0; part < num_parts; ++part) {
      const std::size_t first_chunk = (std::size_t(strip) * num_parts + part) * chunks;
      std::vector<std::vector<int>> streams(64);
      std::vector<std::size_t> reach(chunks);
      int filled = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t past = std::int64_t{part} * part_cols + (chunk + 1) * 64;
        for (int i = 0; i < 16 && strip * 16 + i < csr.num_rows; ++i) {
          const int row = strip * 16 + i;
          for (int& j = next[row]; j < csr.row_offsets[row + 1] && csr.col_indices[j] < past; ++j) {
            const int column = csr.col_indices[j] % 64, lane = i % 8 * 4 + column % 16 / 4, half = i / 8;
            const int bit = 8 * (2 * half + column % 2) + column / 16 * 2 + column % 4 / 2;
            masks[(first_chunk + chunk) * 32 + lane] |= std::uint32_t{1} << bit;
            streams[2 * lane + half].push_back(j);
            filled = chunk + 1;
          }
        }
        for (const auto& stream : streams) reach[chunk] = std::max(reach[chunk], stream.size());
      }
      const int longest = static_cast<int>(reach.back()), lines = longest > 0 ? rounded_up(longest + 2) : 0;
      for (int quarter = 1; quarter <= 4; ++quarter) {
        const int arrived = std::min(quarter * rounded_up((lines + 3) / 4), lines);
        int fitting = 0;
        while (fitting < filled && static_cast<int>(reach[fitting]) + 2 <= arrived) ++fitting;
        quarter_chunks.push_back(fitting);
      }
      const std::size_t begin = layout.value_sources.size();
      layout.value_sources.resize(begin + std::size_t(lines) * 64, -1);
      for (std::size_t stream = 0; stream < 64; ++stream)
        for (std::size_t i = 0; i < streams[stream].size(); ++i)
          layout.value_sources[begin + (i + 1) * 64 + stream] = streams[stream][i];
      line_offsets.push_back(line_offsets.back() + lines);
      part_lines = std::max(part_lines, lines);
    }
  layout.ints["masks"].assign(masks.begin(), masks.end());
  layout.sizes = {{"num_strips", num_strips}, {"num_parts", num_parts}, {"part_lines", part_lines}};
  return layout;
}
