#include <ATen/ops/empty_like.h>
#include <strata/error.hpp>
#include <strata/fakes/resting_buffers.hpp>

namespace strata::fakes {

namespace {

void spoil(const at::Tensor& tensor) {
  if (!tensor.is_meta() && tensor.numel() > 0) tensor.view(at::kByte).fill_(0xFF);
}

class InWindows final : public Partitioner {
 public:
  InWindows(Partitioner& plugin, RestingBuffers& buffers) : plugin_(plugin), buffers_(buffers) {}

  std::vector<GroupSpec> groups(const MeshShape& mesh) const override { return plugin_.groups(mesh); }
  void attach(PartitionContext& context) override { plugin_.attach(context); }
  Lookahead lookahead() const override { return plugin_.lookahead(); }
  std::vector<Slice> owned() override { return plugin_.owned(); }
  void shutdown() override { plugin_.shutdown(); }
  void save(StateWriter& writer) const override { plugin_.save(writer); }
  void load(StateReader& reader, int version) override { plugin_.load(reader, version); }

  void prefetch(FlatParameter& flat, Phase phase) override {
    buffers_.bring(Category::Parameter, flat);
    plugin_.prefetch(flat, phase);
    if (flat.residence() == Residence::Gathered) buffers_.take_away(Category::Parameter, flat);
  }
  void gather(FlatParameter& flat, Phase phase) override {
    buffers_.bring(Category::Parameter, flat);
    plugin_.gather(flat, phase);
    buffers_.take_away(Category::Parameter, flat);
  }
  void release(FlatParameter& flat, Phase phase) override { plugin_.release(flat, phase); }
  LentGradient gradient(FlatParameter& flat, Accumulation accumulation) override {
    buffers_.bring(Category::Gradient, flat, !accumulation.first);
    return plugin_.gradient(flat, accumulation);
  }
  void reduce(FlatParameter& flat, Accumulation accumulation) override { plugin_.reduce(flat, accumulation); }
  void finish_gradient(FlatParameter& flat) override {
    plugin_.finish_gradient(flat);
    buffers_.take_away(Category::Gradient, flat);
  }
  void publish(FlatParameter& flat) override {
    buffers_.bring(Category::Parameter, flat);
    plugin_.publish(flat);
    buffers_.take_away(Category::Parameter, flat);
  }

 private:
  Partitioner& plugin_;
  RestingBuffers& buffers_;
};

}  // namespace

Buffer& RestingBuffers::make(const BufferRequest& request) {
  const std::string& name = request.flat->info().name;
  Resting& resting = buffers_.emplace_back(
      request, store_.allocate(request.category, Tier::Device, name, request.elements, request.dtype),
      std::string(to_string(request.category)) + " buffer of " + name);
  if (request.resident) resting.buffer.bring(resting.memory);
  return resting.buffer;
}

template <class Work>
void RestingBuffers::each(Category category, const FlatParameter& flat, Work&& work) {
  for (Resting& resting : buffers_)
    if (resting.request.category == category && resting.request.flat == &flat && !resting.request.resident)
      work(resting);
}

void RestingBuffers::bring(Category category, const FlatParameter& flat, bool contents) {
  each(category, flat, [&](Resting& resting) {
    if (resting.buffer.here()) return;
    const at::Tensor tensor = at::empty_like(resting.memory);
    if (contents)
      tensor.copy_(resting.memory);
    else
      spoil(tensor);
    resting.buffer.bring(tensor);
  });
}

void RestingBuffers::take_away(Category category, const FlatParameter& flat) {
  each(category, flat, [&](Resting& resting) {
    if (!resting.buffer.here()) return;
    const at::Tensor tensor = resting.buffer.tensor();
    resting.memory.copy_(tensor);
    resting.buffer.take_away();
    spoil(tensor);
  });
}

at::Tensor RestingBuffers::at_rest(const BufferRange& range) const {
  for (const Resting& resting : buffers_)
    if (&resting.buffer == range.buffer)
      return (resting.buffer.here() ? resting.buffer.tensor() : resting.memory).narrow(0, range.begin, range.elements);
  throw Bug("a slice lies in no buffer of PartitionContext::buffer()");
}

std::unique_ptr<Partitioner> with_buffers(Partitioner& partitioner, RestingBuffers& buffers) {
  return std::make_unique<InWindows>(partitioner, buffers);
}

}  // namespace strata::fakes
