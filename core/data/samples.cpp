#include "data/samples.hpp"

#include <strata/error.hpp>

#include "plugin_host/plugin_call.hpp"

namespace strata::data {

OrderedSamples::OrderedSamples(TokenSource source, config::DataOrder order, const SampleRequest& request)
    : source_(std::move(source)), seq_len_(request.seq_len) {
  if (order == config::DataOrder::Own) {
    own_ = source_.own_order(request);
    return;
  }
  const std::int64_t samples = source_.sample_count(seq_len_);
  general_ = order == config::DataOrder::Shuffled ? SampleOrder::shuffled(samples, request.seed)
                                                  : SampleOrder::sequential(samples);
}

std::int64_t OrderedSamples::count() const {
  return own_ == nullptr ? general_->samples() : own_->count();
}

std::int64_t OrderedSamples::sample(std::int64_t position) const {
  return own_ == nullptr ? general_->sample(position) : own_->sample(position);
}

void OrderedSamples::read(std::int64_t position, std::int64_t* destination) const {
  if (own_ == nullptr) return source_.copy(general_->sample(position) * seq_len_, seq_len_ + 1, destination);
  if (position >= own_->count())
    throw UserError(Place{source_.path()}, "the order of the plugin " + source_.plugin_name() + " holds " +
                                               std::to_string(own_->count()) +
                                               " samples, as many as train.steps take, and the run goes on behind "
                                               "them; raise train.steps");
  plugin_host::plugin_call(source_.plugin_name(), "read()", [&] { own_->read(position, destination); });
}

}  // namespace strata::data
