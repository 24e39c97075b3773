// Values that the kernel was tuned for, as it stores them.
using Encoded = std::map<std::string, std::vector<unsigned char>>;

template <typename Word>
inline void put(Encoded& encoded, const std::string& name, const std::vector<Word>& words) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(words.data());
  encoded[name].assign(bytes, bytes + words.size() * sizeof(Word));
}

// Polynomial hash over the bits of the values, in CSR order.
inline std::uint64_t values_fingerprint(const Element* values, std::size_t count) {
  std::uint64_t hash = 0, power = 1;
  for (std::size_t k = 0; k < count; ++k) {
    const Element value = unsigned_zero(values[k]);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(Element));
    hash += (bits + 1) * power;
    power *= 6364136223846793005ull;
  }
  return hash;
}

template <typename Code>
inline Encoded encode_dictionary(const std::vector<Element>& packed, const Layout&, int) {
  std::vector<Element> table = packed;
  std::sort(table.begin(), table.end());
  table.erase(std::unique(table.begin(), table.end()), table.end());
  std::vector<Code> codes(packed.size());
  for (std::size_t slot = 0; slot < packed.size(); ++slot)
    codes[slot] = static_cast<Code>(std::lower_bound(table.begin(), table.end(), packed[slot]) - table.begin());
  Encoded encoded;
  put(encoded, "value_codes", codes);
  put(encoded, "dictionary", table);
  return encoded;
}

// Slot k of row i at k * stride + i.
template <typename Code>
inline Encoded encode_rows(const std::vector<Element>& packed, const Layout& layout, int num_rows) {
  const auto found = layout.sizes.find("stride");
  const std::size_t stride = found == layout.sizes.end() ? num_rows : found->second;
  std::vector<std::vector<Element>> rows(num_rows);
  for (int row = 0; row < num_rows; ++row)
    for (std::size_t slot = row; slot < packed.size(); slot += stride) rows[row].push_back(packed[slot]);
  std::vector<std::vector<Element>> table = rows;
  std::sort(table.begin(), table.end());
  table.erase(std::unique(table.begin(), table.end()), table.end());
  std::vector<Code> codes(num_rows);
  for (int row = 0; row < num_rows; ++row)
    codes[row] = static_cast<Code>(std::lower_bound(table.begin(), table.end(), rows[row]) - table.begin());
  std::vector<Element> values;
  for (const auto& row : table) values.insert(values.end(), row.begin(), row.end());
  Encoded encoded;
  put(encoded, "row_codes", codes);
  put(encoded, "row_values", values);
  return encoded;
}

inline Encoded encode_constant(const std::vector<Element>& packed, const Layout& layout, int) {
  const auto first = std::find_if(layout.value_sources.begin(), layout.value_sources.end(), [](int j) { return j >= 0; });
  const std::size_t slot = layout.value_sources.empty() ? 0 : first - layout.value_sources.begin();
  Encoded encoded;
  put(encoded, "constant_value", std::vector<Element>{packed[slot]});
  return encoded;
}

inline Encoded encode_float32(const std::vector<Element>& packed, const Layout&, int) {
  Encoded encoded;
  put(encoded, "values", std::vector<float>(packed.begin(), packed.end()));
  return encoded;
}
