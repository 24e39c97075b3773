// Rows and columns in another order than the user's.
struct Numbered {
  Csr csr;
  std::vector<int> rows, cols, sources;  // of each place (nonzero) the user's row, column (nonzero)
};

// The order in which a walk in breadth meets rows and columns, columns counted from num_rows. Nodes are numbered by their
// nonzeros, the fewest first; of each component a first walk finds a node far out, a second one from there is the order.
inline std::vector<int> breadth_order(const Csr& csr) {
  const int num_nodes = csr.num_rows + csr.num_cols;
  std::vector<int> lengths(num_nodes, 0), nodes(num_nodes), numbers(num_nodes);
  for (int row = 0; row < csr.num_rows; ++row) lengths[row] = csr.length(row);
  for (int column : csr.col_indices) ++lengths[csr.num_rows + column];
  std::iota(nodes.begin(), nodes.end(), 0);
  std::stable_sort(nodes.begin(), nodes.end(), [&](int a, int b) { return lengths[a] < lengths[b]; });
  std::vector<int> offsets(num_nodes + 1, 0), rows_of(csr.nnz()), column_offsets(csr.num_cols + 1, 0);
  for (int number = 0; number < num_nodes; ++number) {
    numbers[nodes[number]] = number;
    offsets[number + 1] = offsets[number] + lengths[nodes[number]];
  }
  for (int column = 0; column < csr.num_cols; ++column)
    column_offsets[column + 1] = column_offsets[column] + lengths[csr.num_rows + column];
  std::vector<int> ends(column_offsets.begin(), column_offsets.end() - 1);
  for (int row = 0; row < csr.num_rows; ++row)
    for (int k = csr.row_offsets[row]; k < csr.row_offsets[row + 1]; ++k) rows_of[ends[csr.col_indices[k]]++] = row;
  std::vector<int> neighbours(offsets[num_nodes]), filled(offsets.begin(), offsets.end() - 1);
  for (int number = 0; number < num_nodes; ++number) {  // Ascending, so that every node's neighbours ascend.
    const int node = nodes[number], column = node - csr.num_rows;
    if (node < csr.num_rows)
      for (int k = csr.row_offsets[node]; k < csr.row_offsets[node + 1]; ++k)
        neighbours[filled[numbers[csr.num_rows + csr.col_indices[k]]]++] = number;
    else
      for (int k = column_offsets[column]; k < column_offsets[column + 1]; ++k)
        neighbours[filled[numbers[rows_of[k]]]++] = number;
  }
  std::vector<int> order, walks(num_nodes, 0);
  auto walk = [&](int start, int time) {
    const std::size_t first = order.size();
    order.push_back(start);
    walks[start] = time;
    for (std::size_t next = first; next < order.size(); ++next)
      for (int j = offsets[order[next]]; j < offsets[order[next] + 1]; ++j)
        if (walks[neighbours[j]] < time) {
          walks[neighbours[j]] = time;
          order.push_back(neighbours[j]);
        }
    return first;
  };
  for (int number = 0; number < num_nodes; ++number) {
    if (walks[number]) continue;
    const std::size_t first = walk(number, 1);
    const int last = order.back();
    order.resize(first);
    walk(last, 2);
  }
  for (int& number : order) number = nodes[number];
  return order;
}

// `in_breadth`: whether a walk decides; else columns are by their popularity. `moves_cols`: false leaves them as they are.
inline Numbered numbered_by(const Csr& csr, bool in_breadth, bool moves_cols = true) {
  Numbered numbered;
  std::vector<int> places(csr.num_cols);
  if (in_breadth) {
    for (int node : breadth_order(csr))
      (node < csr.num_rows ? numbered.rows : numbered.cols).push_back(node < csr.num_rows ? node : node - csr.num_rows);
  } else {
    numbered.cols = popular_columns(csr, csr.num_cols, places);
    numbered.rows.resize(csr.num_rows);
    std::iota(numbered.rows.begin(), numbered.rows.end(), 0);
  }
  if (!moves_cols) std::sort(numbered.cols.begin(), numbered.cols.end());
  for (int place = 0; place < csr.num_cols; ++place) places[numbered.cols[place]] = place;
  numbered.csr.num_rows = csr.num_rows;
  numbered.csr.num_cols = csr.num_cols;
  numbered.csr.row_offsets.push_back(0);
  for (int row : numbered.rows) {
    const std::size_t first = numbered.sources.size();
    for (int k = csr.row_offsets[row]; k < csr.row_offsets[row + 1]; ++k) numbered.sources.push_back(k);
    std::sort(numbered.sources.begin() + first, numbered.sources.end(),
              [&](int a, int b) { return places[csr.col_indices[a]] < places[csr.col_indices[b]]; });
    numbered.csr.row_offsets.push_back(static_cast<int>(numbered.sources.size()));
  }
  for (int source : numbered.sources) numbered.csr.col_indices.push_back(places[csr.col_indices[source]]);
  return numbered;
}
