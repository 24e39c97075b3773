// libsparsesmith_op for C++17: an operator that gives everything back by itself and throws what went wrong.
#ifndef SPARSESMITH_OP_HPP
#define SPARSESMITH_OP_HPP

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "sparsesmith_op.h"

namespace sparsesmith {

class Error : public std::runtime_error {
 public:
  explicit Error(int status) : std::runtime_error(sparsesmith_op_last_error()), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

class Operator {
 public:
  explicit Operator(const std::string& path) {
    sparsesmith_op* op = nullptr;
    check(sparsesmith_op_load(path.c_str(), &op));
    op_.reset(op);
  }
  Operator(const void* image, std::size_t num_bytes, const sparsesmith_csr* csr = nullptr) {
    sparsesmith_op* op = nullptr;
    check(sparsesmith_op_create(image, num_bytes, csr, &op));
    op_.reset(op);
  }

  // y = alpha A x + beta y; device pointers.
  void apply(const void* x, void* y, void* stream = nullptr, double alpha = 1, double beta = 0) const {
    check(sparsesmith_op_apply(op_.get(), alpha, x, beta, y, stream));
  }
  // y = alpha A^T x + beta y.
  void apply_transposed(const void* x, void* y, void* stream = nullptr, double alpha = 1, double beta = 0) const {
    check(sparsesmith_op_apply_transposed(op_.get(), alpha, x, beta, y, stream));
  }
  void update_values(const void* values, std::int64_t num_values, void* stream = nullptr) {
    check(sparsesmith_op_update_values(op_.get(), values, num_values, stream));
  }
  sparsesmith_op_info info() const {
    sparsesmith_op_info info{};
    check(sparsesmith_op_describe(op_.get(), &info));
    return info;
  }

 private:
  struct Destroy {
    void operator()(sparsesmith_op* op) const { sparsesmith_op_destroy(op); }
  };
  static void check(int status) {
    if (status != SPARSESMITH_OK) throw Error(status);
  }
  std::unique_ptr<sparsesmith_op, Destroy> op_;
};

}  // namespace sparsesmith
#endif
