#include <ATen/ops/from_blob.h>

#include <strata/error.hpp>
#include <strata/toolbox/tensor_bytes.hpp>

#include <cstddef>
#include <span>

namespace strata::toolbox {

void save_tensors(StateWriter& writer, const std::string& name, const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor host = tensors[i].cpu().contiguous();
    writer.rank_bytes(name + " " + std::to_string(i),
                      {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()});
  }
}

void load_tensors(const StateReader& reader, const std::string& name, const std::vector<at::Tensor>& tensors) {
  const bool together = reader.contains(name);
  std::vector<std::byte> bytes = together ? reader.bytes(name) : std::vector<std::byte>();
  std::size_t at = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!together) {
      bytes = reader.bytes(name + " " + std::to_string(i));
      at = 0;
    }
    if (bytes.size() - at < tensors[i].nbytes() || (!together && bytes.size() != tensors[i].nbytes()))
      throw UserError("{}: the checkpoint has another number of bytes", name);
    if (tensors[i].nbytes() > 0)
      tensors[i].copy_(
          at::from_blob(bytes.data() + at, tensors[i].sizes(), at::TensorOptions().dtype(tensors[i].scalar_type())));
    at += tensors[i].nbytes();
  }
}

}  // namespace strata::toolbox
