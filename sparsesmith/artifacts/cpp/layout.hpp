// Host side: a CSR matrix and a storage format built from it. Plain C++17, no CUDA.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

struct Csr {
  int num_rows = 0;
  int num_cols = 0;
  std::vector<int> row_offsets;  // num_rows + 1
  std::vector<int> col_indices;  // ascending within a row
  int nnz() const { return static_cast<int>(col_indices.size()); }
  int length(int row) const { return row_offsets[row + 1] - row_offsets[row]; }
};

struct Layout {
  std::map<std::string, int> sizes;
  std::map<std::string, std::vector<int>> ints;
  std::map<std::string, std::vector<std::uint16_t>> shorts;
  std::map<std::string, std::vector<std::uint8_t>> bytes;
  std::vector<int> value_sources;  // position in CSR order of each slot, -1: padding; empty: CSR order itself
  std::map<std::string, std::size_t> scratch;
};

using Parameters = std::map<std::string, int>;

// Whether a parameter has this word: `index_u16` for index=u16.
inline bool is_set(const Parameters& parameters, const std::string& flag) { return parameters.count(flag) != 0; }

// Columns as the index parameter asks: 32 bits, or 16 or 8 bits counted from a base, or the low 16 bits.
inline void store_columns(Layout& layout, const std::vector<int>& columns, const Parameters& parameters,
                          const std::string& name = "col_indices") {
  if (is_set(parameters, "index_i32")) {
    layout.ints[name] = columns;
  } else if (is_set(parameters, "index_u8")) {
    layout.bytes[name].assign(columns.begin(), columns.end());
  } else {
    layout.shorts[name].assign(columns.begin(), columns.end());
  }
}

// The num_hubs columns with most nonzeros, most popular first, lower columns first among equals. `numbers`: of every
// column its place among them, or num_hubs more than the column.
inline std::vector<int> popular_columns(const Csr& csr, int num_hubs, std::vector<int>& numbers) {
  std::vector<int> counts(csr.num_cols, 0), order(csr.num_cols);
  for (int column : csr.col_indices) ++counts[column];
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return counts[a] > counts[b]; });
  order.resize(num_hubs);
  numbers.resize(csr.num_cols);
  std::iota(numbers.begin(), numbers.end(), num_hubs);
  for (int hub = 0; hub < num_hubs; ++hub) numbers[order[hub]] = hub;
  return order;
}

// Polynomial hash over shape and index arrays: tells whether a matrix has the pattern that the kernel was tuned for.
inline std::uint64_t fingerprint(const Csr& csr) {
  std::uint64_t hash = 0, power = 1;
  auto mix = [&](int word) {
    hash += (static_cast<std::uint64_t>(word) + 1) * power;
    power *= 6364136223846793005ull;
  };
  mix(csr.num_rows);
  mix(csr.num_cols);
  for (int offset : csr.row_offsets) mix(offset);
  for (int column : csr.col_indices) mix(column);
  return hash;
}
