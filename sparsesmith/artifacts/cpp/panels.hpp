// Column panels: slots by round, panel and bin of rows, segments padded to four slots; parts of a panel of equal size.
inline Layout build_panels(const Csr& csr, const Parameters& parameters) {
  const int panel_cols = parameters.at("panel_cols"), num_bins = parameters.at("bins");
  const int rounds = parameters.at("rounds"), nnz = csr.nnz();
  const int num_panels = (csr.num_cols - 1) / panel_cols + 1;
  const int total_bins = rounds * num_bins;
  const int bin_nnz = static_cast<int>((std::int64_t{nnz} + total_bins - 1) / total_bins);
  const std::size_t num_segments = std::size_t(rounds) * num_panels * num_bins;
  auto segment_of = [&](int nonzero) {
    const int bin = nonzero / bin_nnz;
    const std::size_t panel = std::size_t(bin / num_bins) * num_panels + csr.col_indices[nonzero] / panel_cols;
    return panel * num_bins + bin % num_bins;
  };
  std::vector<int> counts(num_segments, 0), offsets(num_segments + 1, 0);
  for (int j = 0; j < nnz; ++j) ++counts[segment_of(j)];
  for (std::size_t s = 0; s < num_segments; ++s) offsets[s + 1] = offsets[s] + (counts[s] + 3) / 4 * 4;
  Layout layout;
  layout.value_sources.assign(offsets.back(), -1);
  auto& columns = layout.shorts["col_indices"];
  auto& positions = layout.shorts["positions"];
  columns.assign(offsets.back(), 0);
  positions.assign(offsets.back(), 0);
  std::vector<int> next(offsets.begin(), offsets.end() - 1);
  for (int j = 0; j < nnz; ++j) {
    const int slot = next[segment_of(j)]++;
    layout.value_sources[slot] = j;
    columns[slot] = static_cast<std::uint16_t>(csr.col_indices[j] % panel_cols);
    positions[slot] = static_cast<std::uint16_t>(j % bin_nnz);
  }
  int bin_slots = 0;
  for (int bin = 0; bin < total_bins; ++bin) {
    const std::int64_t begin = std::min<std::int64_t>(std::int64_t{bin} * bin_nnz, nnz);
    int position = static_cast<int>(std::min<std::int64_t>(begin + bin_nnz, nnz) - begin);
    for (int panel = 0; panel < num_panels; ++panel) {
      const std::size_t s = (std::size_t(bin / num_bins) * num_panels + panel) * num_bins + bin % num_bins;
      for (int slot = next[s]; slot < offsets[s + 1]; ++slot) positions[slot] = static_cast<std::uint16_t>(position++);
    }
    bin_slots = std::max(bin_slots, position);
  }
  std::vector<std::vector<int>> panels(rounds), starts(rounds);
  int num_parts = 0, most_slots = 0;
  for (int round = 0; round < rounds; ++round) {
    auto start_of = [&](int panel) { return offsets[(std::size_t(round) * num_panels + panel) * num_bins]; };
    auto parts_of = [&](std::int64_t slots) {
      std::int64_t parts = 0;
      for (int p = 0; p < num_panels; ++p) parts += (start_of(p + 1) - start_of(p) + slots - 1) / slots;
      return parts;
    };
    int widest = 1;
    for (int p = 0; p < num_panels; ++p) widest = std::max(widest, start_of(p + 1) - start_of(p));
    std::int64_t low = 1, high = (widest + 31) / 32;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (parts_of(middle * 32) <= parameters.at("parts")) high = middle; else low = middle + 1;
    }
    for (int p = 0; p < num_panels; ++p)
      for (std::int64_t slot = start_of(p); slot < start_of(p + 1); slot += low * 32) {
        panels[round].push_back(p);
        starts[round].push_back(static_cast<int>(slot));
      }
    num_parts = std::max(num_parts, static_cast<int>(panels[round].size()));
    most_slots = std::max(most_slots, start_of(num_panels) - start_of(0));
  }
  auto& part_panels = layout.ints["part_panels"];
  auto& part_offsets = layout.ints["part_offsets"];
  for (int round = 0; round < rounds; ++round) {
    panels[round].resize(num_parts, 0);
    starts[round].resize(num_parts, offsets[std::size_t(round + 1) * num_panels * num_bins]);
    part_panels.insert(part_panels.end(), panels[round].begin(), panels[round].end());
    part_offsets.insert(part_offsets.end(), starts[round].begin(), starts[round].end());
  }
  part_offsets.push_back(offsets.back());
  auto row_at = [&](std::int64_t nonzero) {
    auto past = std::upper_bound(csr.row_offsets.begin(), csr.row_offsets.end(), nonzero);
    return static_cast<int>(past - csr.row_offsets.begin()) - 1;
  };
  auto& bin_rows = layout.ints["bin_rows"];
  auto& cut_rows = layout.ints["cut_rows"];
  for (int bin = 0; bin < total_bins; ++bin) {
    const std::int64_t begin = std::min<std::int64_t>(std::int64_t{bin} * bin_nnz, nnz);
    const std::int64_t end = std::min<std::int64_t>(begin + bin_nnz, nnz);
    const int last = row_at(end);
    const bool is_cut = csr.row_offsets[last] < end;
    bin_rows.push_back(bin == 0 ? 0 : row_at(begin));
    bin_rows.push_back(last + is_cut);
    cut_rows.push_back(is_cut && csr.row_offsets[last] >= begin ? last : -1);
  }
  auto& segment_offsets = layout.ints["segment_offsets"];
  for (int round = 0; round < rounds; ++round)
    for (int bin = 0; bin <= num_bins; ++bin)
      for (int panel = 0; panel < num_panels; ++panel)
        segment_offsets.push_back(offsets[(std::size_t(round) * num_panels + panel) * num_bins + bin]);
  layout.ints["row_offsets"] = csr.row_offsets;
  layout.sizes = {{"num_panels", num_panels}, {"num_parts", num_parts}, {"num_bins", num_bins},
                  {"bin_nnz", bin_nnz}, {"bin_slots", bin_slots}};
  layout.scratch["products"] = most_slots;
  return layout;
}
