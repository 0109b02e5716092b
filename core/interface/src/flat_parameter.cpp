#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>
#include <strata/error.hpp>
#include <strata/flat_parameter.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace strata {

const char* to_string(Residence residence) {
  switch (residence) {
    case Residence::Released:
      return "released";
    case Residence::Gathering:
      return "gathering";
    case Residence::Gathered:
      return "gathered";
  }
  throw Bug("unknown residence");
}

const char* to_string(GradientState state) {
  switch (state) {
    case GradientState::Empty:
      return "empty";
    case GradientState::Lent:
      return "lent";
    case GradientState::Partial:
      return "partial";
    case GradientState::Reducing:
      return "reducing";
    case GradientState::Complete:
      return "complete";
  }
  throw Bug("unknown gradient state");
}

namespace {

// The last parameter that begins at element `at` or before.
const ParameterSpan& span_of(const FlatParameterInfo& info, std::int64_t at) {
  const auto behind = std::ranges::upper_bound(info.parameters, at, {}, &ParameterSpan::offset);
  strata_check(behind != info.parameters.begin() && at <= info.elements, "a place within a flat parameter");
  return *std::prev(behind);
}

}  // namespace

std::int64_t FlatParameterInfo::cut_up_to(std::int64_t at) const {
  const ParameterSpan& span = span_of(*this, at);
  return at == span.offset + span.elements() ? at : at - (at - span.offset) % span.unit;
}

std::int64_t FlatParameterInfo::cut_behind(std::int64_t at) const {
  const ParameterSpan& span = span_of(*this, at);
  return span.offset + std::min(span.elements(), ((at - span.offset) / span.unit + 1) * span.unit);
}

// [Note: One storage for all views] Saved tensors of autograd, transposes and the parameters themselves all share one
// StorageImpl. Repointing it moves them together: a weight that autograd saved in the forward reads, after release and
// a new gather into another slot, the new memory. Parameters come from variable_data(), so each has its own version
// counter and a write to one does not invalidate what was saved of another; that weights do not change between forward
// and backward is the program's duty.
FlatParameter::FlatParameter(FlatParameterInfo info, at::Device device) : info_(std::move(info)) {
  strata_check(info_.elements > 0, "a flat parameter holds at least one element");
  const c10::NoGradGuard no_grad;
  storage_ = c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes()),
                          c10::DataPtr(nullptr, device), nullptr, false);
  const at::TensorOptions options = at::TensorOptions().dtype(info_.dtypes.parameter).device(device);
  const at::Tensor whole = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage_),
                                                                    at::empty({0}, options).key_set(), options.dtype());
  whole.unsafeGetTensorImpl()->set_sizes_contiguous({info_.elements});
  for (const ParameterSpan& span : info_.parameters) {
    at::Tensor view = whole.narrow(0, span.offset, span.elements()).view(span.cut().shape()).variable_data();
    view.set_requires_grad(info_.trainable);
    parameters_.push_back(std::move(view));
  }
  storage_.unsafeGetStorageImpl()->set_nbytes(std::size_t{0});
}

FlatParameter::~FlatParameter() = default;

std::int64_t FlatParameter::bytes() const {
  return info_.elements * static_cast<std::int64_t>(c10::elementSize(info_.dtypes.parameter));
}

void FlatParameter::gathering() {
  if (residence_ != Residence::Released)
    throw Bug("gathering {}, which is {} already", info_.name, to_string(residence_));
  residence_ = Residence::Gathering;
}

void FlatParameter::bind(const at::Tensor& memory) {
  if (!memory.is_contiguous() || memory.numel() < info_.elements || memory.scalar_type() != info_.dtypes.parameter ||
      memory.device() != storage_.device())
    throw Bug("binding {} to memory of the wrong length, dtype or device: {} x {} for {} x {}", info_.name,
              memory.numel(), c10::toString(memory.scalar_type()), info_.elements,
              c10::toString(info_.dtypes.parameter));
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  void* data = memory.is_meta() ? nullptr : memory.mutable_data_ptr();
  storage->set_data_ptr_noswap(c10::DataPtr(data, memory.device()));
  storage->set_nbytes(static_cast<std::size_t>(bytes()));
  bound_memory_ = memory;
  residence_ = Residence::Gathered;
}

void FlatParameter::unbind() {
  if (residence_ != Residence::Gathered) throw Bug("releasing {}, which is {}", info_.name, to_string(residence_));
  c10::StorageImpl* storage = storage_.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(nullptr, storage->device()));
  storage->set_nbytes(std::size_t{0});
  bound_memory_ = at::Tensor();
  residence_ = Residence::Released;
}

void FlatParameter::set_gradient_buffer(const at::Tensor& buffer) {
  if (!info_.trainable) throw Bug("{} is frozen and has no gradient", info_.name);
  if (buffer.defined() && buffer.numel() != info_.elements)
    throw Bug("a gradient buffer of {} elements for {} of {}", buffer.numel(), info_.name, info_.elements);
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterSpan& span = info_.parameters[i];
    parameters_[i].mutable_grad() =
        buffer.defined() ? buffer.narrow(0, span.offset, span.elements()).view(span.cut().shape()) : at::Tensor();
  }
}

void FlatParameter::move_gradient(GradientState to) {
  using enum GradientState;
  const GradientState from = gradient_state_;
  const bool legal = (to == Lent && (from == Empty || from == Partial)) ||
                     ((to == Partial || to == Reducing) && from == Lent) || (to == Complete && from == Reducing) ||
                     (to == Empty && from == Complete);
  if (!legal) throw Bug("the gradient of {} cannot go from {} to {}", info_.name, to_string(from), to_string(to));
  gradient_state_ = to;
}

}  // namespace strata
